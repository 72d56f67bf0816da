// The colours of the page around a component, and small helpers that all components share.
// The values of CSS custom properties at an element.
export function properties(element, names) {
  const style = getComputedStyle(element);
  return names.map((name) => style.getPropertyValue(name).trim());
}

// The colours that Python leaves to the page, at an element, and its letters.
const COLOURS = ["ink", "panel", "line", "accent", "warm", "cool", "grape"];
export function coloursOf(element) {
  const values = properties(element, COLOURS.map((name) => `--${name}`));
  return { ...Object.fromEntries(COLOURS.map((name, i) => [name, values[i]])), font: getComputedStyle(element).fontFamily };
}

// A figure with the page's colours and letters: "var(--ink)" stands for one.
export function dressed({ data, layout }, colours) {
  const fill = (value) => {
    if (typeof value === "string") return value.startsWith("var(--") ? colours[value.slice(6, -1)] : value;
    if (!value || typeof value !== "object") return value;
    if (Array.isArray(value)) return value[0] && typeof value[0] === "object" ? value.map(fill) : value;
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, fill(inner)]));
  };
  const { ink, panel, line, font } = colours, axis = { color: ink, gridcolor: line, linecolor: line, zeroline: false, ticks: "",
    tickfont: { size: 11 }, title: { font: { size: 11 }, standoff: 5 }, automargin: true };
  const template = { layout: { font: { family: font, size: 12, color: ink }, paper_bgcolor: panel, plot_bgcolor: panel, hovermode: "closest",
    margin: { l: 58, r: 16, t: 8, b: 40 }, modebar: { orientation: "h", bgcolor: "rgba(0,0,0,0)", color: ink, activecolor: ink },
    hoverlabel: { bgcolor: panel, bordercolor: line, font: { color: ink, size: 12 }, namelength: -1 }, xaxis: axis, yaxis: axis } };
  return { data: data.map(fill), layout: { autosize: true, uirevision: "kept", ...fill(layout), template } };
}

// Make an element with a class, or with properties, attributes and listeners ({ on }). String children are text, never markup.
export function make(tag, given, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(typeof given === "string" ? given && { className: given } : given ?? {})) {
    if (key === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else if (key in node) node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

// Set a node's text only if it differs, which saves a layout.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setTextOrHide(node, text) {
  setText(node, text);
  node.hidden = text === "";
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "";
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

export const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
export const at = (path) => new URL(path, document.baseURI).href;
