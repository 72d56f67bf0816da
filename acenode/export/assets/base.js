"use strict";
// The page's data and colours, and charts that follow a change of colours.
const DATA = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);

// Escape text for Plotly, which interprets some markup.
function plain(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}
function brief(text, most = 14) {
  const letters = [...String(text)];
  return plain(letters.length > most ? letters.slice(0, most - 1).join("") + "…" : text);
}
const className = (label) => label in DATA.classes ? DATA.classes[label] : String(label);
const classColour = AcePlayer.colourOfClass;  // as in the player and in the app

function theme() {
  const style = getComputedStyle(document.documentElement);
  const names = ["ink", "muted", "line", "tint", "panel", "accent", "warm", "ok"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue("--" + name).trim()]));
}

function axis(colours, title, more = {}) {
  return { title: { text: title, standoff: 8 }, gridcolor: colours.line, zerolinecolor: colours.line, linecolor: colours.line,
    tickcolor: colours.line, automargin: true, ...more };
}

function layout(colours, x, y, more = {}) {
  return { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 58, r: 16, t: 10, b: 46 },
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colours.ink },
    hoverlabel: { bgcolor: colours.panel, bordercolor: colours.line, font: { color: colours.ink } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colours.muted, activecolor: colours.accent },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 12 } },
    xaxis: x, yaxis: y, uirevision: "kept", ...more };
}

// One shape with a tick for each jump of the state, along the bottom of a time axis.
function rug(colours, jumps, suffix) {
  if (!jumps.length) return [];
  return [{ type: "path", path: jumps.map((t) => `M${t},0V0.05`).join(""), xref: "x" + suffix, yref: `y${suffix} domain`,
    line: { color: colours.muted, width: 1 } }];
}

// A chart is a function of the colours. It is drawn if the page has a place for it, and again when the colours change.
const CHARTS = new Map();
const OPTIONS = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
function draw(id) {
  const made = CHARTS.get(id)(theme());
  Plotly.react(id, made.data, made.layout, OPTIONS);
}
function chart(id, make) {
  if (!at(id)) return;
  CHARTS.set(id, make);
  draw(id);
}
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const id of CHARTS.keys()) draw(id); });
