// The colours of the page around a component, and small helpers that all components share.
const FALLBACK = { text: "#1b2433", background: "#ffffff", panel: "#f4f6fa", border: "#d9dfe9", primary: "#2b62d9" };
const NAMES = { text: "--st-text-color", background: "--st-background-color", panel: "--st-secondary-background-color",
  border: "--st-border-color", primary: "--st-primary-color" };

// The values of CSS custom properties at an element.
export function properties(element, names) {
  const style = getComputedStyle(element);
  return names.map((name) => style.getPropertyValue(name).trim());
}

export function theme(element) {
  const values = properties(element, Object.values(NAMES));
  return Object.fromEntries(Object.keys(NAMES).map((key, i) => [key, values[i] || FALLBACK[key]]));
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
