// The trials of a search: best so far, importance, parallel coordinates and slices. They follow the search without rerunning
// the page; charts are updated, not drawn anew. The table of the best trials is shown first. Charts are drawn after it, one at
// a time, those that can be seen before those further down.
//
//   mount(element, { name, base: "lab/" }, send) → { update(data), destroy() }
//
// Calls send("state", text) when the search starts or ends, and when there is a best trial for the first time.
import { CONFIG, coloursOf } from "./curves_figure.js";
import { plotly } from "./load_plotly.js";
import { poll } from "./poll.js";
import { bestFigure, finishedOf, importanceFigure, MOST, parallelFigure, sliceFigure } from "./search_figures.js";
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
