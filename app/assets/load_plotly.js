// Plotly for components that draw their own charts: loaded once for the page, its configuration, and the page's colours.
import { at, properties } from "./theme.js";

export const CONFIG = { displaylogo: false, responsive: true, scrollZoom: false, doubleClick: "autosize", showTips: false,
  displayModeBar: "hover", modeBarButtons: [["toImage", "zoom2d", "pan2d", "autoScale2d"]] };

export function coloursOf(root) {
  const [text, panel, line, warm, cool, grape] = properties(root, ["--ink", "--panel", "--line", "--warm", "--cool", "--grape"]);
  const { color, fontFamily } = getComputedStyle(root);
  const dark = (color.match(/[\d.]+/g) ?? []).slice(0, 3).reduce((sum, v) => sum + Number(v), 0) > 384;  // light text: a dark theme
  return { text, panel, line, font: fontFamily, warm, cool, grape, dark };
}

export function plotly(base) {
  if (window.Plotly) return Promise.resolve(window.Plotly);
  window.__plotlyLoading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = at(`${base}plotly.js`);
    script.onload = () => window.Plotly ? resolve(window.Plotly) : script.onerror();
    script.onerror = () => {
      script.remove();
      window.__plotlyLoading = undefined; // the next caller tries again
      reject(new Error("Plotly could not be loaded"));
    };
    document.head.append(script);
  });
  return window.__plotlyLoading;
}

// Copies Plotly's style sheet into a shadow root, which does not see the rules in the page's head.
export function adoptStyles(element) {
  const root = element.getRootNode();
  const source = document.getElementById("plotly.js-style-global");
  if (root === document || !source?.sheet || root.querySelector("style[data-plotly]")) return;
  const copy = document.createElement("style");
  copy.dataset.plotly = "";
  copy.textContent = [...source.sheet.cssRules].map((rule) => rule.cssText).join("\n");
  root.append(copy);
}
