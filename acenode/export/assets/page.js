"use strict";
// Draws the figures that Python made in the page's colours, again when these change; smooths curves over steps; shows one
// record at a time; and mounts the trajectory player with the snapshots that are embedded in the page.
const DATA = JSON.parse(document.getElementById("data").textContent), { coloursOf, dressed, mount } = AcePlayer;
const at = (id) => document.getElementById(id);
const OPTIONS = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };

// Exponential moving average, corrected for its start; gaps stay gaps and are skipped.
function smooth(values, weight) {
  let sum = 0, share = 0;
  return values.map((v) => {
    if (v === null) return null;
    sum = weight * sum + (1 - weight) * v;
    share = weight * share + (1 - weight);
    return sum / share;
  });
}

function smoothed({ data, layout }) {
  const weight = Number(at("smoothing").value);
  const faint = (trace) => ({ ...trace, mode: "lines", opacity: 0.3, showlegend: false, hoverinfo: "skip", line: { ...trace.line, width: 1 } });
  return { layout, data: weight ? data.flatMap((trace) => trace.fill ? [trace] : [faint(trace), { ...trace, y: smooth(trace.y, weight) }]) : data };
}

function draw(id) {
  const figure = DATA.figures[id === "records" ? `records/${at("record").value}` : id];
  const { data, layout } = dressed(DATA.smoothed?.includes(id) ? smoothed(figure) : figure, coloursOf(document.body));
  if (id === "losses" && at("log").checked) Object.assign(layout.yaxis, { type: "log", uirevision: "log" });
  if (layout.height) at(id).style.height = `${layout.height}px`;
  Plotly.react(id, data, layout, OPTIONS);
}

const drawAll = () => { for (const node of document.querySelectorAll(".plot")) draw(node.id); };
function resmooth() {
  at("smoothing-value").textContent = Number(at("smoothing").value).toFixed(2);
  for (const id of DATA.smoothed) draw(id);
}
if (at("smoothing")) {
  at("smoothing").addEventListener("input", resmooth);
  at("smoothing-value").textContent = Number(at("smoothing").value).toFixed(2);
  at("log").addEventListener("change", () => { if (at("losses")) draw("losses"); });
}
at("record")?.addEventListener("change", () => draw("records"));
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
drawAll();
if (at("player")) mount(at("player"), DATA.player);
