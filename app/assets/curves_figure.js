// Plotly's traces, layout and configuration for a panel. `view` has { runs, series, hidden, settings, metric, theme }.
import { AXES, below } from "./curves_data.js";

const AHEAD = 6, MOST_AHEAD = 0.25;  // seconds of a running run for which a chart has room to the right, and the most room it has

const truncated = (text, length) => text.length > length ? `${text.slice(0, length - 1)}…` : text;
const escaped = (text) => truncated(text, 40).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

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

// The series of a chart: single runs, or the mean and spread of a group's runs.

const PALETTE = ["#2b62d9", "#c2541b", "#1f7a4d", "#8b4fc4", "#b0781c", "#1b8a9a", "#c23b6b", "#5b6b7a"];

// One series for each run, or with `bands` one for each group.
export function seriesOf(data, runs) {
  const groups = new Map();
  data.runs.forEach((given, i) => {
    const key = data.bands ? `group ${given.group ?? given.label}` : `run ${given.id}`;
    if (!groups.has(key)) groups.set(key, { key, label: String((data.bands ? given.group : null) ?? given.label ?? given.id),
      colour: given.colour || PALETTE[i % PALETTE.length], runs: [] });
    groups.get(key).runs.push(runs.get(given.id));
  });
  const series = [...groups.values()];
  for (const one of series) if (one.runs.length > 1) one.label += ` · ${one.runs.length} runs`;
  return series;
}

// Exponential moving average with bias correction; NaN is skipped.
function smooth(values, weight) {
  let sum = 0, total = 0;
  return values.map((v) => {
    if (Number.isNaN(v)) return NaN;
    sum = weight * sum + (1 - weight) * v;
    total = weight * total + (1 - weight);
    return sum / total;
  });
}

// Returns all steps that any run has, and where each step is among the rows of each run: between two rows if the run
// lacks it, because recorded runs keep some of their steps only; NaN before its first step and after its last.
function align(tables) {
  const steps = tables.map((t) => t.get("step") ?? []);
  const grid = [...new Set(steps.flatMap((s) => [...s]))].sort((a, b) => a - b);
  const places = steps.map((own) => {
    const place = new Float64Array(grid.length).fill(NaN);
    for (let i = 0, row = 0; i < grid.length && own.length; i++) {
      while (row < own.length - 1 && own[row + 1] <= grid[i]) row++;
      if (own[row] === grid[i]) place[i] = row;
      else if (own[row] < grid[i] && row < own.length - 1) place[i] = row + (grid[i] - own[row]) / (own[row + 1] - own[row]);
    }
    return place;
  });
  return { grid, places };
}

// The value at a place among the rows, linear between two of them.
function valueAt(column, place) {
  if (!column || Number.isNaN(place)) return NaN;
  const row = Math.floor(place), share = place - row;
  return share > 0 ? column[row] + share * (column[row + 1] - column[row]) : column[row];
}

// Mean over runs, and a band of mean ± sample standard deviation, or of both values if there are only two.
function spread({ grid, places }, columns, positive) {
  const n = grid.length, y = new Float64Array(n).fill(NaN), low = y.slice(), high = y.slice();
  for (let i = 0; i < n; i++) {
    const values = columns.map((column, r) => valueAt(column, places[r][i])).filter((v) => !Number.isNaN(v));
    const count = values.length, min = Math.min(...values), max = Math.max(...values);
    if (!count) continue;
    const mean = y[i] = values.reduce((sum, v) => sum + v, 0) / count;
    if (count === 2) [low[i], high[i]] = [min, max];
    if (count < 3) continue;
    const std = Math.sqrt(values.reduce((sum, v) => sum + (v - mean) ** 2, 0) / (count - 1));
    low[i] = positive && mean - std <= 0 ? min : mean - std; // a log axis cannot show values below zero
    high[i] = mean + std;
  }
  return { y, low, high };
}

// The x values of a group: sums of the runs' mean increments, which never decrease when one run ends early.
function commonX({ grid, places }, xs) {
  const x = new Float64Array(grid.length);
  for (let i = 0; i < grid.length; i++) {
    const increments = xs.map((own, r) => valueAt(own, places[r][i]) - (i > 0 ? valueAt(own, places[r][i - 1]) : 0))
      .filter((v) => !Number.isNaN(v));
    x[i] = (i > 0 ? x[i - 1] : 0) + (increments.length ? increments.reduce((sum, v) => sum + v, 0) / increments.length : 0);
  }
  return x;
}

// Returns the values of one quantity of a series: { x, y, raw, low, high }.
export function curveOf(series, of, key, range, view) {
  const { kind, weight, positive } = view, { runs } = series;
  const columns = (name) => runs.map((run) => run[of].get(name));
  const smoothed = (name) => columns(name).map((c) => c && weight > 0 ? smooth(c, weight) : c);
  if (!runs.some((run) => run[of].has(key))) return null;
  if (runs.length === 1) {
    const [y] = smoothed(key), edges = range?.every((k) => runs[0][of].has(k)) ? range.map((k) => smoothed(k)[0]) : [];
    return { x: runs[0].x(of, kind), y, raw: weight > 0 ? columns(key)[0] : null, low: edges[0], high: edges[1] };
  }
  const rows = align(runs.map((run) => run[of]));
  return { x: commonX(rows, runs.map((run) => run.x(of, kind))), ...spread(rows, smoothed(key), positive),
    raw: weight > 0 ? spread(rows, columns(key), false).y : null };
}

// Downsampling: each bucket of 2^k rows, counted from row 0, keeps its extremes. Points already drawn do not move.

const IN_VIEW = 900, OUTSIDE = 200;  // rows above which points in view, or on each side of it, are reduced

// Calls each(from, to) for buckets of the visible rows, and for coarser buckets on both sides of them.
function buckets(x, window, each) {
  const n = x.length, from = window ? Math.max(0, below(x, window[0], n) - 1) : 0;
  const to = window ? Math.min(n, below(x, window[1], n) + 1) : n;
  for (const [a, b, most] of [[0, from, OUTSIDE], [from, to, IN_VIEW], [to, n, OUTSIDE]]) {
    const size = b - a <= most ? 1 : 2 ** Math.ceil(Math.log2(2 * (b - a) / most));
    for (let start = a - a % size; start < b; start += size) each(Math.max(a, start), Math.min(b, start + size));
  }
}

// Keeps the smallest and largest value of each bucket.
export function downsampleLine(x, y, window) {
  const out = { x: [], y: [] }, n = x.length;
  const put = (i) => { out.x.push(x[i]); out.y.push(y[i]); };
  buckets(x, window, (from, to) => {
    let lo = -1, hi = -1;
    for (let i = from; i < to; i++) {
      if (Number.isNaN(y[i])) continue;
      if (lo < 0 || y[i] < y[lo]) lo = i;
      if (hi < 0 || y[i] > y[hi]) hi = i;
    }
    if (lo < 0) put(from);
    else if (lo === hi) put(lo);
    else { put(Math.min(lo, hi)); put(Math.max(lo, hi)); }
  });
  if (n && out.x.at(-1) !== x[n - 1]) put(n - 1);
  return out;
}

// Returns the area between two curves as closed outlines, one for each stretch without a gap.
export function downsampleBand(x, low, high, window) {
  const out = { x: [], y: [] };
  let edge = [];
  const close = () => {
    if (edge.length > 1) {
      out.x.push(...edge.map((p) => p[0]), ...edge.map((p) => p[0]).reverse(), NaN);
      out.y.push(...edge.map((p) => p[2]), ...edge.map((p) => p[1]).reverse(), NaN);
    }
    edge = [];
  };
  buckets(x, window, (from, to) => {
    let min = Infinity, max = -Infinity;
    for (let i = from; i < to; i++) if (low[i] <= high[i]) { min = Math.min(min, low[i]); max = Math.max(max, high[i]); }
    if (min > max) close(); else edge.push([x[from], min, max]);
  });
  close();
  return out;
}
