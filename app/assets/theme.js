// Colours of the page around a component, as Streamlit hands them down, and small things all components share.
const FALLBACK = { text: "#1b2433", background: "#ffffff", panel: "#f4f6fa", border: "#d9dfe9", primary: "#2b62d9" };
const NAMES = { text: "--st-text-color", background: "--st-background-color", panel: "--st-secondary-background-color",
  border: "--st-border-color", primary: "--st-primary-color" };

export function theme(element) {
  const style = getComputedStyle(element);
  return Object.fromEntries(Object.entries(NAMES).map(([key, name]) => [key, style.getPropertyValue(name).trim() || FALLBACK[key]]));
}

export function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;  // never markup
  return node;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "";
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

export const at = (path) => new URL(path, document.baseURI).href;
