// Live training curves of one or several runs: the figures of app/results/live_curves.py are asked for again and again, those
// in view and changed only, and drawn into charts that keep their zoom.
//
//   mount(element, data, send) → { update(data), destroy() }
//   data = { runs: [{ id, label, live }], series: [{ label, colour, runs }], metric, title, number, base: "lab/" }
//
// Calls send("state", { id, state }) when a run changes its state. Results and diagnostics are tabs.
import { Card, Drawing } from "./figures.js";
import { poll } from "./poll.js";
import { at, button, checkbox, clamp, make, select, setText, setTextOrHide, slider } from "./theme.js";

const STORAGE_KEY = "acenode.curves";
const AXES = { step: "Step", epoch: "Epoch", time: "Training time (s)" };
const RESULTS = ["metric", "losses"], DIAGNOSTICS = ["nfe", "dt", "gradients", "seconds", "lr"];
const INTERVAL = 750, IDLE_INTERVAL = 5000;  // milliseconds between two requests, and while no run trains
const TIMEOUT = 15000;

function initialSettings() {
  let stored = {};
  try { stored = JSON.parse(localStorage.getItem(STORAGE_KEY)) ?? {}; } catch { /* not available in a private window */ }
  const settings = { smoothing: 0, log: false, x: "step", two: false, ...stored };
  settings.smoothing = clamp(Number(settings.smoothing) || 0, 0, 0.99);
  return Object.hasOwn(AXES, settings.x) ? settings : { ...settings, x: "step" };
}

// A short piece of a curve for the key of a chart: dashed, a band, or the circle of the best epoch.
function keyItem({ name, colour, dash, band, circle }) {
  const mark = make("span", band ? "mark band" : circle ? "mark circle" : "mark");
  Object.assign(mark.style, { color: colour, borderTopStyle: { dash: "dashed", dot: "dotted" }[dash] ?? "solid" });
  return make("span", "", mark, make("span", "", name));
}

// Smoothing, x axis and scale, which the browser remembers.
function controls(settings, changed) {
  const set = (values) => { Object.assign(settings, values); changed(); };
  const value = make("output", "", settings.smoothing.toFixed(2));
  const smoothing = slider("Smoothing", 0, 0.99, 0.01, (weight) => { value.textContent = weight.toFixed(2); set({ smoothing: weight }); });
  const axis = select("X axis", Object.entries(AXES), (x) => set({ x }));
  const log = checkbox("Log scale for losses", settings.log, (on) => set({ log: on }));
  [smoothing.value, axis.value] = [settings.smoothing, settings.x];
  return { log, node: make("div", "bar", make("label", "", "Smoothing", smoothing, value), make("label", "", "X axis", axis), log) };
}

// Two tabs, results and diagnostics; calls chosen(diagnostics) when another one is selected.
function tabs(chosen) {
  const buttons = ["", "Diagnostics"].map((words, i) => button(words, () => show(i > 0), { role: "tab" }));
  buttons[1].title = "Function evaluations (NFE), step size of the solver, gradient norms, seconds per step, learning rate";
  const mark = (diagnostics) => buttons.forEach((one, i) => one.setAttribute("aria-selected", String(Boolean(i) === diagnostics)));
  const show = (diagnostics) => { mark(diagnostics); chosen(diagnostics); };
  const node = make("div", { className: "tabs", role: "tablist", "aria-label": "Curves" }, ...buttons);
  node.addEventListener("keydown", ({ key }) => {
    if (key !== "ArrowLeft" && key !== "ArrowRight") return;
    const next = buttons.find((one) => one.getAttribute("aria-selected") === "false");
    next.click();
    next.focus();
  });
  mark(false);
  return { node, name: (title) => setText(buttons[0], `${title.replace(/^./, (c) => c.toUpperCase())} and loss`) };
}

// One button for each series: a click hides or shows it, a double click shows only it, or all again.
function drawLegend(legend, series, hidden, changed) {
  const showPressed = () => series.forEach(({ label }, i) => legend.children[i].setAttribute("aria-pressed", String(!hidden.has(label))));
  const handler = (change) => () => { change(); showPressed(); changed(); };
  legend.hidden = series.length < 2;
  legend.replaceChildren(...series.map(({ label, colour }) => {
    const toggle = handler(() => { if (!hidden.delete(label)) hidden.add(label); }), alone = handler(() => {
      const already = series.every((other) => (other.label === label) !== hidden.has(other.label));
      hidden.clear();
      if (!already) for (const other of series) if (other.label !== label) hidden.add(other.label);
    });
    const node = button("", toggle, { title: "Click to hide or show. Double-click to show only this one." }), swatch = make("span", "swatch");
    node.addEventListener("dblclick", alone);
    swatch.style.backgroundColor = colour;
    node.append(swatch, make("span", "name", label));
    return node;
  }));
  showPressed();
}

// The status strips above the charts: progress, latest values and error of each run that trains or has failed.
class Strip {
  constructor({ label, id }) {
    Object.assign(this, { state: make("span", "state"), stage: make("span"), left: make("span"), values: make("span", "values"), fill: make("div"),
      error: make("p", "error") });
    this.track = make("div", { className: "ace-bar", role: "progressbar", "aria-label": String(label ?? id) }, this.fill);
    this.node = make("section", "strip", make("div", "head", make("strong", "label", String(label ?? id)), this.state, this.stage, this.left, this.values),
      this.track, this.error);
  }

  write(run, live) {
    this.node.hidden = !live && !run.error;
    this.node.dataset.state = run.state;
    for (const part of ["state", "stage", "left", "values", "error"]) setTextOrHide(this[part], run[part]);
    const percent = Math.round(1000 * run.progress) / 10;
    this.track.hidden = !live;
    this.track.setAttribute("aria-valuenow", String(percent));
    this.fill.style.width = `${percent}%`;
  }
}

export function mount(element, first, send) {
  const settings = initialSettings(), hidden = new Set(), cards = new Map(), strips = new Map();
  const stripsNode = make("div", "strips"), legend = make("div", "legend"), grid = make("div", "grid");
  const lost = make("p", { className: "lost", role: "status", hidden: true }, "Connection lost. Trying again…");
  const kinds = tabs((chosen) => { diagnostics = chosen; arrange(); }), bar = controls(settings, settingsChanged);
  const root = make("div", "ace ace-figures ace-curves", stripsNode, lost, make("div", "top", kinds.node, bar.node), legend, grid);
  element.append(root);
  let data = { runs: [] }, runs = {}, diagnostics = false, drawn = 0, given = "";
  const drawing = new Drawing(root, first.base, draw, (card) => !card.dragged, () => polling.now()), polling = poll(refresh, INTERVAL);
  const release = () => {
    for (const card of cards.values()) card.dragged = false;
    drawing.next();
  };
  for (const kind of ["pointerup", "pointercancel"]) window.addEventListener(kind, release, true);

  function settingsChanged() {
    try { localStorage.setItem(STORAGE_KEY, JSON.stringify(settings)); } catch { /* not available in a private window */ }
    polling.now();
  }

  function arrange() {
    const names = diagnostics ? DIAGNOSTICS : RESULTS;
    for (const [name, card] of cards) if (!names.includes(name)) { drawing.forget(card); cards.delete(name); }
    for (const name of names) if (!cards.has(name)) cards.set(name, create(name));
    grid.append(...names.map((name) => cards.get(name).node));
    bar.log.hidden = diagnostics;
    polling.now();
  }

  function create(name) {
    const two = name === "nfe" ? checkbox("Also while attention trains", settings.two, (on) => { settings.two = on; settingsChanged(); }) : null;
    const card = Object.assign(new Card({}, ...(two ? [two] : [])), { name, two, window: null, version: "", dragged: false, figure: undefined });
    card.node.dataset.panel = name;
    card.body.addEventListener("pointerdown", () => { card.dragged = true; }, true);
    drawing.watch(card);
    return card;
  }

  function draw(card, colours) {
    const fresh = !card.drawn, { figure, about } = card;
    for (const trace of figure?.data ?? []) trace.visible = !hidden.has(data.series[trace.meta]?.label);
    const any = figure?.data.some((trace) => trace.visible) ?? false;
    card.draw(figure, colours, figure ? "All curves are hidden" : about.empty, any);
    if (card.drawn && fresh) card.plot.on("plotly_relayout", () => {
      const { autorange, range } = card.plot._fullLayout.xaxis;
      card.window = autorange ? null : range.map(Number);
      polling.now();
    });
    drawn++;
  }

  function receive(answer) {
    for (const run of data.runs) {
      const next = answer.runs[run.id], before = runs[run.id];
      if (!next) continue;
      if (next.busy || next.error || strips.has(run.id)) {
        if (!strips.has(run.id)) stripsNode.append(strips.set(run.id, new Strip(run)).get(run.id).node);
        strips.get(run.id).write(next, run.live);
      }
      const drawnOtherwise = run.live !== undefined && run.live !== next.busy;  // it ended before the first answer
      if (before === undefined ? drawnOtherwise : before.state !== next.state) send?.("state", { id: run.id, state: next.gone ? "gone" : next.state });
    }
    runs = answer.runs;
    stripsNode.hidden = ![...strips.values()].some((strip) => !strip.node.hidden);
    for (const [name, about] of Object.entries(answer.panels)) {
      const card = cards.get(name);
      if (!card) continue;
      Object.assign(card, { about, figure: about.figure, version: about.version });
      setText(card.title, about.title);
      card.title.title = about.hint;
      card.hint.replaceChildren(...(about.key.length > 1 ? about.key.map(keyItem) : []));
      if (card.two) card.two.hidden = !about.two;
      drawing.add(card);
    }
  }

  async function refresh() {
    const begun = performance.now(), asked = data, panels = Object.fromEntries([...cards.values()].filter((card) => drawing.seen.has(card))
      .map(({ name, window, version }) => [name, { window, version }]));
    const { series, metric, title, number, base } = data, view = JSON.stringify({ series, metric, title, number, ...settings, panels });
    try {
      const answer = await fetch(at(`${base}live?runs=${data.runs.map(({ id }) => id).join(",")}&view=${encodeURIComponent(view)}`),
        { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT) });
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const found = await answer.json();
      if (drawing.ended) return IDLE_INTERVAL;
      lost.hidden = true;
      if (asked !== data) return 0;
      receive(found);
    } catch (error) {
      lost.hidden = false;  // the server does not respond: keep what is drawn
      throw error;
    }
    if (!Object.values(runs).some(({ busy }) => busy)) return IDLE_INTERVAL;
    return Math.max(0, INTERVAL - (performance.now() - begun));
  }

  function update(next) {
    const text = JSON.stringify(next);
    if (text !== given) {
      const ids = new Set(next.runs.map(({ id }) => id));
      for (const [id, strip] of strips) if (!ids.has(id)) { strip.node.remove(); strips.delete(id); }
      runs = Object.fromEntries(Object.entries(runs).filter(([id]) => ids.has(id)));
      [data, given] = [next, text];
      for (const card of cards.values()) card.version = "";
      kinds.name(String(next.title));
      drawLegend(legend, next.series, hidden, () => drawing.again());
    }
    polling.now();  // also with equal data: a run may have been resumed
  }

  element.__curves = {  // for tests and benchmarks
    points: (id) => runs[id]?.points ?? 0,
    drawn: () => drawn,
    ranges: (name) => {
      const layout = cards.get(name)?.plot._fullLayout;
      return layout ? { x: [...layout.xaxis.range], y: [...layout.yaxis.range] } : null;
    },
  };
  update(first);
  arrange();
  return { update, destroy() {
    polling.end();
    drawing.end();
    for (const kind of ["pointerup", "pointercancel"]) window.removeEventListener(kind, release, true);
    root.remove();
    delete element.__curves;
  } };
}
