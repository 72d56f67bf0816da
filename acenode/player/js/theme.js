// The colours of the page around a component, and small helpers that all components share.

const WATCH_MS = 500;  // between two looks at the page's colours

// The colours that a component and Python's figures take from the page, and its letters; `old` if they are still the same.
const COLOURS = ["ink", "panel", "line", "accent", "warm", "cool", "grape"];
export function coloursOf(element, old = null) {
  const style = getComputedStyle(element), values = COLOURS.map((name) => style.getPropertyValue(`--${name}`).trim());
  const font = style.fontFamily, key = [...values, font].join("|");
  return old?.key === key ? old : { key, font, ...Object.fromEntries(COLOURS.map((name, i) => [name, values[i]])) };
}

// Calls changed() when read(before) returns other colours than before; `now` has them.
export class Colours {
  constructor(read, changed) {
    this.now = read(null);
    this.timer = setInterval(() => {
      const before = this.now;
      if (!document.hidden) this.now = read(before);
      if (this.now !== before) changed();
    }, WATCH_MS);
  }

  end() { clearInterval(this.timer); }
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

export const button = (words, pressed, more = {}) => make("button", { type: "button", on: { click: pressed }, ...more }, words);

export const slider = (label, low, high, step, moved) => make("input", { type: "range", min: String(low), max: String(high),
  step: String(step), "aria-label": label, on: { input: ({ target }) => moved(Number(target.value)) } });

// A list of options [value, words].
export const select = (label, options, chosen) => make("select", { "aria-label": label, on: { change: ({ target }) => chosen(target.value) } },
  ...options.map(([value, words]) => make("option", { value }, words)));

export const checkbox = (words, checked, changed) => make("label", "check",
  make("input", { type: "checkbox", checked, on: { change: ({ target }) => changed(target.checked) } }), words);

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
