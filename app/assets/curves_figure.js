// Plotly's traces, layout and configuration for a panel. `view` has { runs, series, hidden, settings, metric, theme }.
import { downsampleBand, downsampleLine } from "./curves_downsample.js";
import { AXES } from "./curves_panels.js";
import { curveOf } from "./curves_series.js";
import { below } from "./curves_table.js";
import { properties } from "./theme.js";

export const CONFIG = { displaylogo: false, responsive: true, scrollZoom: false, doubleClick: "autosize", showTips: false,
  displayModeBar: "hover", modeBarButtons: [["toImage", "zoom2d", "pan2d", "autoScale2d"]] };

const AHEAD = 6, MOST_AHEAD = 0.25;  // seconds of a running run for which a chart has room to the right, and the most room it has

const truncated = (text, length) => text.length > length ? `${text.slice(0, length - 1)}…` : text;
const escaped = (text) => truncated(text, 40).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

export function coloursOf(root) {
  const [text, panel, line, warm, cool, grape] = properties(root, ["--ink", "--panel", "--line", "--warm", "--cool", "--grape"]);
  const { color, fontFamily } = getComputedStyle(root);
  const dark = (color.match(/[\d.]+/g) ?? []).slice(0, 3).reduce((sum, v) => sum + Number(v), 0) > 384;  // light text: a dark theme
  return { text, panel, line, font: fontFamily, warm, cool, grape, dark };
}

// True if the values are shares, which are written as percentages.
const isShare = (panel, { metric }) => panel.name === "metric" && String(metric).startsWith("accuracy");
const capital = (text) => text.replace(/^./, (c) => c.toUpperCase());

// Returns the traces of a panel and the entries of its key.
export function tracesOf(panel, view) {
  const { series, settings, theme } = view, traces = [], key = [], alone = series.length === 1, axis = panel.plot._fullLayout?.xaxis;
  const window = axis && !axis.autorange && panel.kind === settings.x ? axis.range.map(Number).sort((a, b) => a - b) : null;
  const options = { kind: settings.x, weight: panel.of === "epochs" || panel.exact ? 0 : settings.smoothing, positive: panel.log && settings.log };
  const curves = panel.curves(view.metric).filter((curve) => !curve.two || settings.two);
  series.forEach((one, s) => curves.forEach((curve, c) => {
    const found = curveOf(one, panel.of, curve.key, alone ? curve.range : null, options);
    if (!found) return;
    const colour = alone && curve.tint ? theme[curve.tint] : one.colour, width = curve.two ? 1.2 : 2;
    const name = alone ? curve.name : curves.length > 1 ? `${escaped(one.label)} ${curve.name}` : escaped(one.label);
    const few = found.x.length === 1 || (panel.of === "epochs" && found.x.length * series.length <= 80);
    const style = { name, mode: few ? "lines+markers" : "lines", marker: { size: curve.dash ? 7 : 5, symbol: curve.dash ? "square-open" : "circle", color: colour },
      hovertemplate: isShare(panel, view) ? "%{y:.2%}" : "%{y:.4~g}",
      line: { width, color: colour, dash: curve.dash ?? "solid", shape: panel.exact ? "hv" : "linear" } };
    const own = { type: "scatter", connectgaps: false, visible: !view.hidden.has(one.key), legendgroup: String(s) };
    const uid = `s${s}c${c}`;  // Plotly puts it into a CSS selector, so it must not contain a label
    traces.push(...layers(found, own, uid, style, window, theme.dark));
    const known = key.find((k) => k.curve === curve);
    const band = found.low && (one.runs.length > 2 ? "mean ± standard deviation" : one.runs.length === 2 ? "smallest to largest" : curve.band);
    if (band && !key.some((k) => k.curve.name === band)) key.push({ curve: { name: band }, colour: alone ? colour : theme.text, band: true });
    if (known) known.points ||= few;
    else key.push({ curve, colour: alone ? colour : theme.text, width, points: few });
    const best = curve.best && alone && one.runs.length === 1 ? one.runs[0].epochs.get("best")?.lastIndexOf(1) ?? -1 : -1;
    if (best < 0) return;
    key.push({ curve: { name: "best epoch" }, colour: theme.text, width: 1.5, marker: true });
    traces.push({ ...own, uid: `${uid}best`, x: [found.x[best]], y: [found.y[best]], mode: "markers", hoverinfo: "skip",
      marker: { symbol: "circle-open", size: 12, color: theme.text, line: { width: 1.5 } } });
  }));
  return { traces, key };
}

// The traces of one curve: its band and its unsmoothed values, if any, under its line.
function layers({ x, y, raw, low, high }, own, uid, style, window, dark) {
  const { color } = style.line, points = (downsample, ...columns) => own.visible ? downsample(x, ...columns, window) : {};
  const under = { ...own, mode: "lines", hoverinfo: "skip" }, found = [];
  if (low) {
    found.push({ ...under, ...points(downsampleBand, low, high), uid: `${uid}band`, fill: "toself", fillcolor: color, opacity: dark ? 0.3 : 0.18,
      line: { width: 0, color } });
  }
  if (raw) found.push({ ...under, ...points(downsampleLine, raw), uid: `${uid}raw`, opacity: dark ? 0.4 : 0.25, line: { width: 1, color } });
  return [...found, { ...own, ...points(downsampleLine, y), uid, ...style }];
}

// Where the curves of a running run will end in a moment: new points then fit into the chart as it is.
function soonX(run, kind) {
  const x = run.x("steps", kind), time = run.x("steps", "time"), n = x.length;
  if (!n) return 0;
  const gained = x[n - 1] - x[Math.max(0, below(time, time[n - 1] - AHEAD, n) - 1)];
  return x[n - 1] + Math.min(gained, MOST_AHEAD * (x[n - 1] - x[0]));
}

export function layoutOf(panel, view) {
  const { runs, settings, theme } = view;
  const logarithmic = panel.log && settings.log, { title, hover } = AXES[settings.x];
  const lastX = () => Math.max(1, ...[...runs.values()].map((run) => run.x(panel.of, settings.x).at(-1) ?? 0));
  const running = panel.of === "steps" ? [...runs.values()].filter((run) => run.busy) : [];
  const integers = settings.x === "step" || (settings.x === "epoch" && panel.of === "epochs");
  const axis = { color: theme.text, gridcolor: theme.line, linecolor: theme.line, zeroline: false, tickfont: { size: 11 },
    ticks: "", ticklabeloverflow: "allow", nticks: 7 };
  return {
    autosize: true, uirevision: "kept", showlegend: false, dragmode: "zoom", hovermode: "x unified", hoverdistance: 40,
    margin: { l: 62, r: 22, t: 8, b: 36 }, paper_bgcolor: theme.panel, plot_bgcolor: theme.panel,
    font: { family: theme.font, size: 12, color: theme.text },
    modebar: { orientation: "h", bgcolor: "rgba(0,0,0,0)", color: theme.text, activecolor: theme.text },
    hoverlabel: { bgcolor: theme.panel, bordercolor: theme.line, font: { color: theme.text, size: 12 }, namelength: -1 },
    xaxis: { ...axis, uirevision: settings.x, title: { text: title, font: { size: 11 }, standoff: 6 }, exponentformat: "none", separatethousands: true,
      unifiedhovertitle: { text: hover }, spikethickness: 1, spikedash: "dot", spikecolor: theme.text,
      ...(running.length ? { autorangeoptions: { include: Math.max(...running.map((run) => soonX(run, settings.x))) } } : {}),
      ...(integers && lastX() <= 5 ? { dtick: 1 } : {}) },  // no ticks between whole steps
    yaxis: { ...axis, uirevision: logarithmic ? "log" : "linear", type: logarithmic ? "log" : "linear", nticks: logarithmic ? 4 : 6,
      title: { text: capital(panel.axis ?? panel.title(String(view.title))), font: { size: 11 }, standoff: 4 }, ...(isShare(panel, view) ? { tickformat: ".3~%" } : {}),
      exponentformat: "e", minorloglabels: "complete", rangemode: panel.zero ? "tozero" : "normal" },
  };
}
