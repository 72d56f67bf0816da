// Figures of a study with buttons that save them as SVG and as PNG. The browser draws the PNG, on white, three times as large.
import { make } from "./theme.js";

const ENLARGED = 3;

function save(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

const svgFile = (svg) => new Blob([svg], { type: "image/svg+xml" });

// The picture needs a size of its own: browsers draw an SVG without one at any size they like.
function sized(svg) {
  const node = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
  const [, , width, height] = node.getAttribute("viewBox").split(" ").map(Number);
  node.setAttribute("width", width);
  node.setAttribute("height", height);
  return { text: new XMLSerializer().serializeToString(node), width, height };
}

export async function pngFile(svg) {
  const { text, width, height } = sized(svg), url = URL.createObjectURL(svgFile(text)), image = new Image();
  try {
    image.src = url;
    await image.decode();
    const canvas = make("canvas", { width: ENLARGED * width, height: ENLARGED * height }), g = canvas.getContext("2d");
    g.fillStyle = "#ffffff";
    g.fillRect(0, 0, canvas.width, canvas.height);
    g.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((done) => canvas.toBlob(done, "image/png"));
  } finally {
    URL.revokeObjectURL(url);
  }
}

function figure({ name, title, svg }) {
  const picture = make("div", { className: "study-picture", tabIndex: 0, role: "region", "aria-label": title });
  picture.append(new DOMParser().parseFromString(svg, "image/svg+xml").documentElement);
  const button = (kind, act) => make("button", { type: "button", "data-kind": kind, "aria-label": `${title} as ${kind.toUpperCase()}`, on: { click: act } },
    kind.toUpperCase());
  return make("figure", "study-figure", make("figcaption", "", make("strong", "", title),
    button("svg", () => save(svgFile(sized(svg).text), `${name}.svg`)),
    button("png", async () => save(await pngFile(svg), `${name}.png`))), picture);
}

export function mount(element, first) {
  element.className = "study-figures";
  let drawn = "";
  function draw({ figures }) {
    const text = JSON.stringify(figures);
    if (text === drawn) return;
    drawn = text;
    element.replaceChildren(...figures.map(figure));
  }
  draw(first);
  return { update: draw, destroy() {} };
}
