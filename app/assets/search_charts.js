// The trials of a search: best so far, importance, parallel coordinates and slices. They follow the search without rerunning
// the page; charts are updated, not drawn anew. The table of the best trials is shown first. Charts are drawn after it, one at
// a time, those that can be seen before those further down.
//
//   mount(element, { name, base: "lab/" }, send) → { update(data), destroy() }
//
// Calls send("state", text) when the search starts or ends, and when there is a best trial for the first time.
import { coloursOf, CONFIG, plotly } from "./load_plotly.js";
import { poll } from "./poll.js";
import { at, make, properties, setText, setTextOrHide } from "./theme.js";

const INTERVAL = 1200, IDLE_INTERVAL = 6000;  // milliseconds between two requests
const THEME_INTERVAL = 500;  // milliseconds between checks of the page's colours

// Draws charts one after the other, so that the page answers in between, and only while they can be seen or nearly.
class Drawing {
  constructor() {
    this.pending = new Map();  // chart → function that draws it
    this.seen = new Set();
    this.timer = 0;
    this.observer = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) this.seen[isIntersecting ? "add" : "delete"](target);
      this.next();
    }, { rootMargin: "300px" });
  }

  add(chart, draw) {
    this.pending.set(chart, draw);
    this.observer.observe(chart.node);
    this.next();
  }

  next() {
    if (this.timer) return;
    const [chart, draw] = [...this.pending].find(([one]) => this.seen.has(one.node)) ?? [];
    if (!chart) return;
    this.timer = setTimeout(() => {
      this.timer = 0;
      this.pending.delete(chart);
      draw();
      this.next();
    });
  }

  forget(chart) {
    this.pending.delete(chart);
    this.seen.delete(chart.node);
    this.observer.unobserve(chart.node);
  }

  end() {
    clearTimeout(this.timer);
    this.pending.clear();
    this.observer.disconnect();
  }

  get done() { return !this.timer && ![...this.pending.keys()].some((chart) => this.seen.has(chart.node)); }
}

class Chart {
  constructor(title, hint, wide = false) {
    this.plot = make("div", "plot");
    this.empty = make("p", { className: "empty", hidden: true });
    this.title = make("span", "title", title);
    this.hint = make("span", "key", hint);
    this.node = make("figure", { className: wide ? "card wide" : "card", "aria-label": title }, make("figcaption", "", this.title, this.hint),
      make("div", "body", this.plot, this.empty));
  }

  // Draws a figure, or says why there is none.
  draw(Plotly, figure, reason) {
    setTextOrHide(this.empty, figure ? "" : reason);
    this.plot.classList.toggle("empty-plot", !figure);
    if (figure) Plotly.react(this.plot, figure.data, figure.layout, CONFIG);
  }
}

class BestTable {
  constructor() {
    this.head = make("tr");
    this.body = make("tbody");
    this.node = make("div", { className: "search-scroll", tabIndex: 0, role: "region", "aria-label": "Best trials", hidden: true },
      make("table", "", make("thead", "", this.head), this.body));
    this.drawn = "";
  }

  write(view) {
    const text = JSON.stringify([view.top, view.ranges]);
    if (text === this.drawn) return;
    this.drawn = text;
    this.node.hidden = !view.top.length;
    const heads = ["Trial", `Validation ${view.metric}`, ...view.ranges.map(({ title }) => title.replace(/^./, (c) => c.toUpperCase())), "Run"];
    this.head.replaceChildren(...heads.map((title) => make("th", { scope: "col" }, title)));
    this.body.replaceChildren(...view.top.map((trial) => make("tr", "",
      make("th", { scope: "row" }, trial.default ? `${trial.number} (defaults)` : String(trial.number)), make("td", "", trial.value),
      ...trial.settings.map((value) => make("td", "", value)),
      make("td", "", trial.link ? make("a", { href: at(trial.link), target: "_self", "aria-label": `Curves of trial ${trial.number}` }, "Curves") : "–"))));
  }
}

export function mount(element, first, send) {
  const summary = make("div", "summary"), now = make("div", "now"), best = make("div", "now"), filled = make("span", "filled");
  const bar = make("div", { className: "bar", "aria-hidden": "true" }, filled), note = make("p", { className: "note", hidden: true });
  const charts = {
    best: new Chart("Best so far", "orange: best so far · ×: pruned"), importance: new Chart("Importance of each setting", ""),
    parallel: new Chart("Parallel coordinates", "orange: best tenth · blue: better half", true),
  };
  const table = new BestTable(), slices = [], slicesNode = make("div", "grid"), drawing = new Drawing();
  const heading = make("h2", { hidden: true }, "Best trials");
  const root = make("div", "search-charts", summary, bar, now, best, heading, table.node, make("div", "grid", charts.best.node, charts.importance.node, charts.parallel.node),
    make("h2", "", "Value by setting"), slicesNode, note);
  element.append(root);
  let data = first, view = null, trials = [], Plotly = null, theme = null, states = null, destroyed = false, revision = "";

  function readTheme() {
    const before = JSON.stringify(theme), [accent, muted] = properties(root, ["--accent", "--muted-line"]);
    theme = { ...coloursOf(root), accent, muted };
    return JSON.stringify(theme) !== before;
  }

  function merge(next) {
    if (next.all) trials = [];
    for (const [number, state, value, settings] of next.trials) trials[number] = { number, state, value, settings };
    revision = next.revision;
    view = next;
  }

  function writeTexts() {
    setText(summary, view.summary);
    filled.style.width = `${100 * Math.min(1, view.progress)}%`;
    setTextOrHide(now, view.now.length ? `Training: ${view.now.slice(0, 4).join("; ")}${view.now.length > 4 ? `; and ${view.now.length - 4} more` : ""}` : "");
    setTextOrHide(best, view.best.replace(/^./, (c) => c.toUpperCase()));
    setTextOrHide(note, trials.length > MOST ? `The charts show ${MOST.toLocaleString("en")} of ${trials.length.toLocaleString("en")} trials: the best, and evenly spaced ones` : "");
    table.write(view);
    heading.hidden = table.node.hidden;
  }

  function draw() {
    if (!view || !Plotly || destroyed) return;
    while (slices.length < view.ranges.length) {
      const chart = new Chart(view.ranges[slices.length].title.replace(/^./, (c) => c.toUpperCase()), "");
      slices.push(chart);
      slicesNode.append(chart.node);
    }
    const done = finishedOf(trials).length, few = `Shown from ${view.few} finished trials on`;
    drawing.add(charts.best, () => charts.best.draw(Plotly, done ? bestFigure(trials, view, theme) : null, view.nothing));
    drawing.add(charts.importance, () => charts.importance.draw(Plotly, view.importance.length ? importanceFigure(view, theme) : null, few));
    drawing.add(charts.parallel, () => charts.parallel.draw(Plotly, done ? parallelFigure(trials, view, theme) : null, view.nothing));
    slices.forEach((chart, i) => drawing.add(chart, () => chart.draw(Plotly, done ? sliceFigure(trials, view, theme, i) : null, view.nothing)));
  }

  async function refresh() {
    const { base, name } = data, answer = await fetch(at(`${base}search/${encodeURIComponent(name)}?since=${revision}`));
    if (!answer.ok || destroyed) return IDLE_INTERVAL;
    const next = await answer.json();
    if (name !== data.name) return 0;  // another search is shown by now
    const changed = next.all || next.trials.length || next.nothing !== view?.nothing || JSON.stringify(next.importance) !== JSON.stringify(view?.importance);
    merge(next);
    writeTexts();
    if (!Plotly) load();
    if (changed) draw();
    const before = states;
    states = `${next.state}/${next.has_best}`;
    if (before !== null && before !== states) send("state", states);
    return next.state === "running" ? INTERVAL : IDLE_INTERVAL;
  }

  const polling = poll(refresh, IDLE_INTERVAL);
  const themeTimer = setInterval(() => { if (!document.hidden && readTheme()) draw(); }, THEME_INTERVAL);
  function load() {
    plotly(data.base).then((loaded) => {
      if (Plotly || destroyed) return;
      Plotly = loaded;
      draw();
    }, () => {});  // tried again at the next refresh
  }
  element.__search = {  // for tests
    trials: () => trials.length, listed: () => !table.node.hidden, drawn: () => Boolean(charts.best.plot._fullLayout) && drawing.done,
  };
  readTheme();
  polling.now();
  return {
    update(next) {
      if (next.name !== data.name) {
        [states, revision, trials] = [null, "", []];
        for (const chart of slices.splice(0)) drawing.forget(chart);
        slicesNode.replaceChildren();
      }
      data = next;
      polling.now();
    },
    destroy() {
      destroyed = true;
      polling.end();
      drawing.end();
      clearInterval(themeTimer);
      if (Plotly) for (const chart of [...Object.values(charts), ...slices]) Plotly.purge(chart.plot);
      root.remove();
    },
  };
}

// Plotly's traces and layouts for the trials of a search. A trial is { number, state, value, settings }.
export const MOST = 500;  // trials in one chart; more would be slow to draw, and cover each other
const KEPT = 100;  // of the best ones, which are always drawn
const BEST_SHARE = 0.1;

const better = (view) => view.higher ? (a, b) => a > b : (a, b) => a < b;
const hasValue = (trial) => Number.isFinite(trial.value);
export const finishedOf = (trials) => trials.filter((trial) => trial.state === "finished" && hasValue(trial));

// The best value up to each finished trial.
export function bestSoFar(trials, view) {
  const isBetter = better(view), x = [], y = [];
  let best = null;
  for (const trial of finishedOf(trials)) {
    if (best === null || isBetter(trial.value, best)) best = trial.value;
    x.push(trial.number);
    y.push(best);
  }
  return { x, y };
}

// Sorts finished trials, the best first.
export const ranked = (trials, view) => {
  const sign = view.higher ? -1 : 1;
  return [...finishedOf(trials)].sort((a, b) => sign * (a.value - b.value) || a.number - b.number);
};

// At most MOST trials: the best ones, and of the others evenly spaced ones.
export function sampled(trials, view) {
  if (trials.length <= MOST) return trials;
  const kept = new Set(ranked(trials, view).slice(0, KEPT)), rest = trials.filter((trial) => !kept.has(trial));
  const count = MOST - kept.size;
  for (let i = 0; i < count; i++) kept.add(rest[Math.floor((i * rest.length) / count)]);
  return trials.filter((trial) => kept.has(trial));
}

// Where a setting's value lies in its range, from 0 to 1; null if the setting does not apply to the trial.
export function position(range, value) {
  if (value === null || value === undefined) return null;
  if (range.choices.length) return range.choices.length > 1 ? value / (range.choices.length - 1) : 0.5;
  const scale = range.log ? Math.log10 : (v) => v;
  return (scale(value) - scale(range.low)) / (scale(range.high) - scale(range.low));
}

// The whole numbers of a range of few, which are the only ticks of its axis; empty for other ranges.
export function wholeTicks(range) {
  if (!range.whole || range.high - range.low > (range.log ? 9 : 5)) return [];
  return Array.from({ length: range.high - range.low + 1 }, (_, i) => range.low + i);
}

const short = (value) => String(Number(Number(value).toPrecision(4)));
export const written = (range, value) => value === null || value === undefined ? "–" : range.choices.length ? range.choices[value] : short(value);
const escaped = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const capital = (text) => text.replace(/^./, (c) => c.toUpperCase());

// Breaks a title into lines of about `width` characters.
export function lines(text, width) {
  const found = [];
  for (const word of text.split(" ")) {
    if (found.length && `${found.at(-1)} ${word}`.length <= width) found[found.length - 1] += ` ${word}`;
    else found.push(word);
  }
  return found.map(escaped).join("<br>");
}

function words(trial, view) {
  const settings = view.ranges.map((range, i) => `${escaped(range.title)}: ${escaped(written(range, trial.settings[i]))}`);
  return [`trial ${trial.number}: ${short(trial.value)}`, ...settings].join("<br>");
}

function layoutOf(theme, x, y, more = {}) {
  const axis = { color: theme.text, gridcolor: theme.line, linecolor: theme.line, zeroline: false, tickfont: { size: 11 }, ticks: "", nticks: 7, automargin: true };
  return {
    autosize: true, uirevision: "kept", showlegend: false, hovermode: "closest", dragmode: "zoom", margin: { l: 58, r: 16, t: 8, b: 40 },
    paper_bgcolor: theme.panel, plot_bgcolor: theme.panel, font: { family: theme.font, size: 12, color: theme.text },
    modebar: { orientation: "h", bgcolor: "rgba(0,0,0,0)", color: theme.text, activecolor: theme.text },
    hoverlabel: { bgcolor: theme.panel, bordercolor: theme.line, font: { color: theme.text, size: 12 } },
    xaxis: { ...axis, title: { text: x, font: { size: 11 }, standoff: 6 }, ...more.xaxis },
    yaxis: { ...axis, title: { text: y, font: { size: 11 }, standoff: 4 }, nticks: 6, ...more.yaxis },
    ...(more.annotations ? { annotations: more.annotations } : {}), ...(more.shapes ? { shapes: more.shapes } : {}),
  };
}

const points = (trials, view, x, style) => ({ type: "scatter", mode: "markers", x, y: trials.map((t) => t.value),
  text: trials.map((t) => words(t, view)), hovertemplate: "%{text}<extra></extra>", ...style });

const metricTitle = (view) => `Validation ${view.metric}`;

// The value of every trial, and the best so far.
export function bestFigure(trials, view, theme) {
  const drawn = sampled(trials.filter(hasValue), view), best = bestSoFar(trials, view);
  const done = drawn.filter((t) => t.state === "finished"), pruned = drawn.filter((t) => t.state === "pruned");
  const few = trials.length <= 5;
  return { data: [
    points(pruned, view, pruned.map((t) => t.number), { uid: "pruned", marker: { symbol: "x-thin-open", size: 6, color: theme.muted, line: { width: 1.2, color: theme.muted } } }),
    points(done, view, done.map((t) => t.number), { uid: "done", marker: { size: 6, color: theme.accent, opacity: 0.75 } }),
    { uid: "best", type: "scatter", mode: "lines", x: best.x, y: best.y, line: { color: theme.warm, width: 2, shape: "hv" }, hoverinfo: "skip" },
  ], layout: layoutOf(theme, "Trial", metricTitle(view), { xaxis: { rangemode: "tozero", ...(few ? { dtick: 1 } : {}) } }) };
}

// How much each setting matters.
export function importanceFigure(view, theme) {
  const found = [...view.importance].reverse();
  return { data: [{ uid: "importance", type: "bar", orientation: "h", x: found.map(([, share]) => 100 * share), y: found.map(([title]) => lines(capital(title), 22)),
    marker: { color: theme.accent }, text: found.map(([, share]) => `${Math.round(100 * share)}%`), textposition: "auto", hoverinfo: "skip", width: 0.6 }],
  layout: layoutOf(theme, "Share of the importance (%)", "", { xaxis: { range: [0, 100] }, yaxis: { type: "category" } }) };
}

// One setting against the value of the trials.
export function sliceFigure(trials, view, theme, i) {
  const range = view.ranges[i], all = sampled(trials.filter((t) => hasValue(t) && t.settings[i] !== null && t.settings[i] !== undefined), view);
  const jitter = (n) => 0.5 * ((n * 0.618034) % 1 - 0.5);  // so that trials of one value do not cover each other
  const whole = wholeTicks(range), apart = range.choices.length || (whole.length && !range.log);
  const at = (list) => list.map((t) => apart ? t.settings[i] + jitter(t.number) : t.settings[i]);
  const done = all.filter((t) => t.state === "finished"), pruned = all.filter((t) => t.state === "pruned"), best = ranked(done, view).slice(0, 1);
  const xaxis = range.choices.length
    ? { tickvals: range.choices.map((_, n) => n), ticktext: range.choices.map((text) => lines(text, 12)), range: [-0.5, range.choices.length - 0.5] }
    : { type: range.log ? "log" : "linear", exponentformat: "e", minorloglabels: "complete", nticks: 5,
      ...(whole.length ? { tickvals: whole, ticktext: whole.map(String) } : {}) };
  return { data: [
    points(pruned, view, at(pruned), { uid: "pruned", marker: { symbol: "x-thin-open", size: 6, color: theme.muted, line: { width: 1.2, color: theme.muted } } }),
    points(done, view, at(done), { uid: "done", marker: { size: 6, color: theme.accent, opacity: 0.75 } }),
    points(best, view, at(best), { uid: "best", marker: { symbol: "circle-open", size: 13, color: theme.warm, line: { width: 2 } } }),
  ], layout: layoutOf(theme, capital(range.title), metricTitle(view), { xaxis }) };
}

// Every finished trial as a line through its settings and its value.
export function parallelFigure(trials, view, theme) {
  const done = sampled(finishedOf(trials), view), order = ranked(done, view), axes = view.ranges.length;
  const values = done.map((t) => t.value), low = Math.min(...values), high = Math.max(...values);
  const height = (value) => high > low ? (value - low) / (high - low) : 0.5;
  const top = new Set(order.slice(0, Math.max(1, Math.ceil(BEST_SHARE * order.length)))), half = new Set(order.slice(0, Math.ceil(order.length / 2)));
  const groups = [["rest", done.filter((t) => !half.has(t)), theme.muted, 1, 0.45], ["half", done.filter((t) => half.has(t) && !top.has(t)), theme.accent, 1, 0.55],
    ["top", done.filter((t) => top.has(t)), theme.warm, 2, 1]];
  const data = groups.map(([uid, list, color, width, opacity]) => {
    const x = [], y = [];
    for (const trial of list) {
      view.ranges.forEach((range, i) => { x.push(i); y.push(position(range, trial.settings[i])); });
      x.push(axes, null);
      y.push(height(trial.value), null);
    }
    return { uid, type: "scatter", mode: "lines", x, y, opacity, line: { color, width }, hoverinfo: "skip", connectgaps: false };
  });
  data.push({ uid: "ends", type: "scatter", mode: "markers", x: done.map(() => axes), y: done.map((t) => height(t.value)), text: done.map((t) => words(t, view)),
    hovertemplate: "%{text}<extra></extra>", marker: { size: 5, color: theme.text, opacity: 0.5 } });
  const label = (x, y, text) => ({ x, y, text: escaped(text), showarrow: false, xanchor: "left", xshift: 4, font: { size: 11, color: theme.text }, bgcolor: theme.panel, opacity: 0.9 });
  const ends = view.ranges.flatMap((range, i) => range.choices.length
    ? range.choices.map((text, n) => label(i, position(range, n), text)) : [label(i, 0, short(range.low)), label(i, 1, short(range.high))]);
  if (done.length) ends.push(label(axes, 0, short(low)), ...(high > low ? [label(axes, 1, short(high))] : []));
  const titles = [...view.ranges.map((range) => lines(capital(range.title), 16)), lines(metricTitle(view), 16)];
  const shapes = titles.map((_, x) => ({ type: "line", x0: x, x1: x, y0: 0, y1: 1, line: { color: theme.text, width: 1 }, layer: "below" }));
  const layout = layoutOf(theme, "", "", { annotations: ends, shapes,
    xaxis: { tickvals: titles.map((_, x) => x), ticktext: titles, range: [-0.08 * axes, axes * 1.12], showgrid: false, fixedrange: true, tickangle: 0 },
    yaxis: { visible: false, range: [-0.07, 1.07], fixedrange: true } });
  return { data, layout: { ...layout, margin: { l: 16, r: 16, t: 8, b: 40 } } };
}
