// Live training curves of one or several runs: metrics are polled, stored in columns, downsampled and drawn.
//
//   mount(element, data, send) → { update(data), destroy() }
//   data = { runs: [{ id, label, group, colour, live }], metric, title, number, bands, panels, settings, base: "lab/" }
//
// Calls send("state", { id, state }) when a run changes its state. Without `panels`, results and diagnostics are tabs.
import { AXES, emptyReason, PANELS, panelsOf, Poller, Run } from "./curves_data.js";
import { layoutOf, seriesOf, tracesOf } from "./curves_figure.js";
import { DrawScheduler, Tail } from "./curves_scheduler.js";
import { adoptStyles, coloursOf, CONFIG, plotly } from "./load_plotly.js";
import { clamp, make, setTextOrHide } from "./theme.js";

const THEME_INTERVAL = 1000, RETRY = 2000;  // milliseconds: between checks of the page's colours, before loading Plotly again

export function mount(element, data, send) {
  const view = { runs: new Map(), series: [], hidden: new Set(), settings: initialSettings(data.settings), metric: "", title: "", number: null, theme: null };
  const settingsChanged = () => { saveSettings(view.settings); cards.scheduler.drawAll(); };
  const strips = new StatusStrips(), bar = controls(view.settings, settingsChanged), cards = new Cards(view, settingsChanged);
  const connectionLost = make("p", { className: "lost", role: "status", hidden: true }, "Connection lost. Trying again…");
  const legend = make("div", "legend"), kinds = tabs((chosen) => { diagnostics = chosen; arrange(); cards.scheduler.drawAll(); });
  const root = make("div", "ace-curves", strips.node, connectionLost, make("div", "top", kinds.node, bar.node), legend, cards.node);
  const poller = new Poller(view.runs, {
    nextIn: () => cards.scheduler.nextIn(),
    received: (changed) => { if (changed) cards.dataChanged(); strips.write(view.runs, view); },
    stateChanged: (run, state) => send?.("state", { id: run.given.id, state }),
    connection: (lost) => { connectionLost.hidden = !lost; },
  });
  let lastData = "", destroyed = false, diagnostics = false, panels = null;

  // Returns true if the page has changed its colours.
  function readTheme() {
    const before = JSON.stringify(view.theme);
    view.theme = coloursOf(root);
    if (JSON.stringify(view.theme) === before) return false;
    root.style.colorScheme = view.theme.dark ? "dark" : "light";  // for the browser's own checkboxes and lists
    return true;
  }

  function update(given) {
    const text = JSON.stringify(given), same = text === lastData;
    lastData = text;
    if (!same) show(given);
    poller.refresh(given.base);  // also with equal data: a run may have been resumed
  }

  function show(given) {
    const { runs } = view, wanted = new Set(given.runs.map((run) => run.id));
    for (const id of runs.keys()) if (!wanted.has(id)) runs.delete(id);
    for (const run of given.runs) {
      if (runs.has(run.id)) runs.get(run.id).given = run; else runs.set(run.id, new Run(run));
    }
    view.metric = given.metric;
    view.title = given.title ?? given.metric;
    view.number = given.number;
    view.series = seriesOf(given, runs);
    drawLegend(legend, view.series, view.hidden, () => cards.scheduler.drawAll());
    panels = given.panels ?? null;
    kinds.name(view.title);
    kinds.node.hidden = panels !== null;
    arrange();
    strips.write(runs, view);
    readTheme();
    cards.scheduler.drawAll();
  }

  function arrange() {
    cards.arrange(panels ?? panelsOf(diagnostics));
    bar.log.hidden = !cards.panels.has("losses");
  }

  function load() {
    plotly(data.base).then((Plotly) => { if (!destroyed) cards.start(Plotly); }, () => { if (!destroyed) setTimeout(load, RETRY); });
  }

  function destroy() {
    destroyed = true;
    clearInterval(themeTimer);
    poller.destroy();
    cards.destroy();
    root.remove();
    delete element.__curves;
  }

  element.append(root);
  element.__curves = {  // for tests and benchmarks
    points: (id) => view.runs.get(id)?.steps.length ?? 0,
    drawn: () => cards.drawn,
    lag: () => cards.scheduler.lag,
    ranges: (name) => cards.ranges(name),
    redraw: () => cards.scheduler.redraw(),
  };
  update(data);
  load();
  const themeTimer = setInterval(() => { if (!document.hidden && readTheme()) cards.scheduler.drawAll(); }, THEME_INTERVAL);
  return { update, destroy };
}

// The cards that hold the charts: creates and removes them, tracks which are visible or being dragged in, and draws them.

// A short piece of a curve for the key of a chart: its dash and its points.
function keySymbol({ curve, colour, width, marker, points, band }) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 10");
  const shape = document.createElementNS(svg.namespaceURI, marker ? "circle" : "path");
  for (const [k, v] of Object.entries(marker ? { cx: 12, cy: 5, r: 4 } : { d: "M1 5H23" })) shape.setAttribute(k, v);
  Object.assign(shape.style, { stroke: colour, strokeWidth: width, fill: "none",
    strokeDasharray: { dash: "6 4", dot: "2 3" }[curve.dash] ?? "none" });
  if (band) {  // a filled piece
    shape.setAttribute("d", "M1 0H23V10H1Z");
    Object.assign(shape.style, { stroke: "none", fill: colour, opacity: 0.25 });
  }
  svg.append(shape);
  if (points) {
    const point = document.createElementNS(svg.namespaceURI, curve.dash ? "rect" : "circle");
    for (const [k, v] of Object.entries(curve.dash ? { x: 9, y: 2, width: 6, height: 6 } : { cx: 12, cy: 5, r: 3 })) point.setAttribute(k, v);
    Object.assign(point.style, { stroke: colour, strokeWidth: 1.5, fill: curve.dash ? "none" : colour });
    svg.append(point);
  }
  return svg;
}

export class Cards {
  constructor(view, settingsChanged) {
    Object.assign(this, { view, settingsChanged, Plotly: null, drawn: 0, panels: new Map(), node: make("div", "grid") });
    this.scheduler = new DrawScheduler(this.panels, (panel) => this.draw(panel));
    this.observer = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) target.panel.inView = isIntersecting;
      this.scheduler.schedule();
    }, { rootMargin: "60px" });
    this.resizer = new ResizeObserver(() => {
      for (const { plot, tail } of this.panels.values()) {
        if (!plot._fullLayout || !plot.clientWidth || Math.abs(plot._fullLayout.width - plot.clientWidth) <= 1) continue;
        tail.forget();
        this.Plotly.Plots.resize(plot);
      }
    });
    this.resizer.observe(this.node);
    this.release = () => {
      for (const panel of this.panels.values()) panel.dragged = false;
      this.scheduler.schedule();
    };
    for (const kind of ["pointerup", "pointercancel"]) window.addEventListener(kind, this.release, true);
  }

  // Draws from now on, with the loaded library.
  start(Plotly) {
    this.Plotly = Plotly;
    this.scheduler.start();
  }

  // Shows the panels with these names, or all without names.
  arrange(names) {
    const wanted = PANELS.filter(({ name }) => !names || names.includes(name));
    for (const panel of this.panels.values()) if (!wanted.some(({ name }) => name === panel.name)) this.remove(panel);
    for (const definition of wanted) if (!this.panels.has(definition.name)) this.panels.set(definition.name, this.create(definition));
    this.node.append(...wanted.map(({ name }) => this.panels.get(name).box));
  }

  create(definition) {
    const panel = { ...definition, caption: make("span", { className: "title", title: definition.hint ?? "" }), key: make("span", "key"), plot: make("div", "plot"), tail: new Tail(),
      empty: make("p", "empty", "Loading…"), dirty: true, dragged: false, inView: false, pointer: null, kind: null, keyText: "", version: "" };
    const head = make("figcaption", "", panel.caption, panel.key), body = make("div", "body", panel.plot, panel.tail.node, panel.empty);
    if (panel.name === "nfe") head.append(panel.two = checkbox("Also while attention trains", this.view.settings, "two", this.settingsChanged));
    body.addEventListener("pointerdown", () => { panel.dragged = true; }, true);
    panel.box = make("figure", "card", head, body);
    panel.box.dataset.panel = panel.name;
    panel.box.panel = panel;
    this.observer.observe(panel.box);
    return panel;
  }

  remove(panel) {
    this.observer.unobserve(panel.box);
    if (panel.plot._fullLayout) this.Plotly.purge(panel.plot);
    panel.box.remove();
    this.panels.delete(panel.name);
  }

  // A text that changes whenever the data of a panel does.
  versionOf(panel) {
    return [...this.view.runs.values()].map((run) =>
      [run[panel.of].version, run.steps.length > 0, run.loaded, run.gone, run.status?.state].join(" ")).join(",");
  }

  // New records have arrived: marks the panels that they change.
  dataChanged() {
    for (const panel of this.panels.values()) if (panel.version !== this.versionOf(panel)) panel.dirty = true;
    this.scheduler.dataChanged();
  }

  draw(panel) {
    const { traces, key } = tracesOf(panel, this.view), runs = [...this.view.runs.values()], any = traces.some((trace) => trace.visible);
    panel.dirty = false;
    panel.version = this.versionOf(panel);
    setTextOrHide(panel.caption, panel.title(String(this.view.title)).replace(/^./, (c) => c.toUpperCase()));
    this.drawKey(panel, key);
    if (panel.two) panel.two.hidden = !runs.some((run) => run.steps.has("nfe_forward_a"));
    panel.plot.classList.toggle("empty-plot", !any);
    setTextOrHide(panel.empty, any ? "" : traces.length ? "All curves are hidden" : emptyReason(panel, runs));
    if (!traces.length) panel.tail.forget();
    else if (this.extend(panel, traces)) this.drawn++;
    else this.plot(panel, traces);
  }

  // Draws only what is new, if that is enough until somebody looks closer; returns true if it is.
  extend(panel, traces) {
    const { whole } = panel;
    panel.whole = false;
    return !whole && this.scheduler.idle() && [...this.view.runs.values()].some((run) => run.busy) && panel.tail.extend(panel.plot, traces);
  }

  drawKey(panel, key) {
    const keyText = JSON.stringify(key);
    if (keyText === panel.keyText) return;
    panel.keyText = keyText;
    panel.key.replaceChildren(...(key.length > 1 ? key.map((item) => make("span", "", keySymbol(item), make("span", "", item.curve.name))) : []));
  }

  plot(panel, traces) {
    const exists = Boolean(panel.plot._fullLayout), { pointer } = panel;
    panel.kind = this.view.settings.x;
    this.Plotly.react(panel.plot, traces, layoutOf(panel, this.view), CONFIG);
    panel.tail.start(traces);
    this.drawn++;
    if (!exists) {
      adoptStyles(this.node);
      panel.plot.on("plotly_relayout", () => this.scheduler.drawSoon(panel));
      panel.plot.on("plotly_hover", (event) => { panel.pointer = event.event; });
      panel.plot.on("plotly_unhover", () => { panel.pointer = null; });
    } else if (pointer) {
      panel.pointer = pointer;
      this.Plotly.Fx.hover(panel.plot, pointer, "xy");  // move the hover label to the new data
    }
  }

  // The visible ranges of a panel's axes.
  ranges(name) {
    const layout = this.panels.get(name)?.plot._fullLayout;
    return layout ? { x: [...layout.xaxis.range], y: [...layout.yaxis.range] } : null;
  }

  destroy() {
    this.scheduler.destroy();
    this.observer.disconnect();
    this.resizer.disconnect();
    for (const kind of ["pointerup", "pointercancel"]) window.removeEventListener(kind, this.release, true);
    for (const panel of this.panels.values()) this.remove(panel);
  }
}

// The reader's controls: smoothing, x axis and scale, which the browser remembers, and the legend that hides and shows series.

const STORAGE_KEY = "acenode.curves";

function loadSettings() {
  try { return JSON.parse(localStorage.getItem(STORAGE_KEY)) ?? {}; } catch { return {}; }
}

export function saveSettings(settings) {
  try { localStorage.setItem(STORAGE_KEY, JSON.stringify(settings)); } catch { /* not available in a private window */ }
}

// The defaults, overridden by the given settings and those from an earlier visit.
export function initialSettings(given) {
  const settings = { smoothing: 0, log: false, x: "step", two: false, ...given, ...loadSettings() };
  settings.smoothing = clamp(Number(settings.smoothing) || 0, 0, 0.99);
  if (!Object.hasOwn(AXES, settings.x)) settings.x = "step";
  return settings;
}

// A checkbox for settings[key].
export function checkbox(label, settings, key, changed) {
  const box = make("input", { type: "checkbox", checked: Boolean(settings[key]),
    on: { input: () => { settings[key] = box.checked; changed(); } } });
  return make("label", "", box, label);
}

export function controls(settings, changed) {
  const value = make("output", "", settings.smoothing.toFixed(2));
  const slider = make("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: settings.smoothing, on: { input: () => {
    settings.smoothing = Number(slider.value);
    value.textContent = settings.smoothing.toFixed(2);
    changed();
  } } });
  const select = make("select", { on: { input: () => { settings.x = select.value; changed(); } } },
    ...Object.entries(AXES).map(([kind, { title }]) => make("option", { value: kind }, title)));
  select.value = settings.x;
  const log = checkbox("Log scale for losses", settings, "log", changed);
  return { node: make("div", "bar", make("label", "", "Smoothing", slider, value), make("label", "", "X axis", select), log), log };
}

// One button for each series: a click hides or shows it, a double click shows only it, or all again.
export function drawLegend(legend, series, hidden, changed) {
  const showPressed = () => series.forEach((one, i) => legend.children[i].setAttribute("aria-pressed", String(!hidden.has(one.key))));
  const handler = (change) => () => { change(); showPressed(); changed(); };
  legend.hidden = series.length < 2;
  legend.replaceChildren(...series.map((one) => {
    const swatch = make("span", "swatch");
    swatch.style.backgroundColor = one.colour;
    return make("button", { type: "button", title: "Click to hide or show. Double-click to show only this one.", on: {
      click: handler(() => { if (!hidden.delete(one.key)) hidden.add(one.key); }),
      dblclick: handler(() => {
        const alone = series.every((other) => (other === one) !== hidden.has(other.key));
        hidden.clear();
        if (!alone) for (const other of series) if (other !== one) hidden.add(other.key);
      }),
    } }, swatch, make("span", "name", one.label));
  }));
  showPressed();
}

// Two tabs, results and diagnostics; calls chosen(diagnostics) when another one is selected.
export function tabs(chosen) {
  const buttons = [false, true].map((diagnostics) => make("button", { type: "button", role: "tab", on: { click: () => select(diagnostics) } }));
  buttons[1].textContent = "Diagnostics";
  buttons[1].title = "Function evaluations (NFE), step size of the solver, gradient norms, seconds per step, learning rate";
  const node = make("div", { className: "tabs", role: "tablist", "aria-label": "Curves" }, ...buttons);
  const select = (diagnostics) => {
    buttons.forEach((button, i) => button.setAttribute("aria-selected", String(Boolean(i) === diagnostics)));
    chosen(diagnostics);
  };
  node.addEventListener("keydown", ({ key }) => {
    if (key !== "ArrowLeft" && key !== "ArrowRight") return;
    const next = buttons.find((button) => button.getAttribute("aria-selected") === "false");
    next.click();
    next.focus();
  });
  buttons.forEach((button, i) => button.setAttribute("aria-selected", String(i === 0)));
  return { node, name: (title) => { buttons[0].textContent = `${title.replace(/^./, (c) => c.toUpperCase())} and loss`; } };
}

// The status strips above the charts: progress, latest values and error of each run.

const number = (value) => Number.isFinite(value) ? String(Number(value.toPrecision(4))) : "–";

// Coarser than duration(), because it is read while it counts down.
function timeLeft(seconds) {
  if (!Number.isFinite(seconds) || seconds <= 0) return "";
  if (seconds < 90) return `about ${seconds < 10 ? Math.ceil(seconds) : 5 * Math.round(seconds / 5)} s left`;
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? `about ${minutes} min left` : `about ${Math.floor(minutes / 60)} h ${minutes % 60} min left`;
}

function stage(run) {
  const { epoch, epochs, phase } = run.status ?? {};
  if (!epochs) return "";
  if (!run.busy) return `${epoch} of ${epochs} epochs`;
  return phase === "testing" ? "testing" : `epoch ${Math.min((epoch ?? 0) + 1, epochs)} of ${epochs}`;
}

// A value of the metric in its unit, as the pages write it; `format` is a MetricFormat.
export function metricText(value, format) {
  if (!Number.isFinite(value) || !format) return number(value);
  const { scale, digits, unit } = format, scaled = scale * value;
  return `${digits === null ? number(scaled) : scaled.toFixed(digits)}${unit}`;
}

function values(run, { metric, title, number: format }) {
  const latest = [["loss of the state (L_h)", "steps", "L_h", number], ["of attention (L_a)", "steps", "L_a", number],
    [`validation ${title}`, "epochs", `validation_${metric}`, (value) => metricText(value, format)]];
  return latest.map(([name, of, key, written]) => [name, run.latest(of, key), written]).filter(([, value]) => value !== null)
    .map(([name, value, written]) => `${name}\u00a0${written(value)}`).join("   ");
}

export class StatusStrips {
  constructor() {
    this.node = make("div", "strips");
    this.shown = new Map();  // run → the parts of its strip
  }

  // Updates the strips. A run has one while it is queued or running, or if it has an error.
  write(runs, view) {
    for (const [run, { box }] of this.shown) if (runs.get(run.given.id) !== run) { box.remove(); this.shown.delete(run); }
    for (const run of runs.values()) {
      if (run.given.live || run.status?.error || this.shown.has(run)) this.writeOne(this.shown.get(run) ?? this.add(run), run, view);
    }
    this.node.hidden = ![...this.shown.values()].some((part) => !part.box.hidden);
  }

  add(run) {
    const part = { label: make("strong", "label"), state: make("span", "state"), stage: make("span"), left: make("span"),
      values: make("span", "values"), fill: make("div", "fill"), error: make("p", "error") };
    part.track = make("div", { className: "track", role: "progressbar", "aria-label": String(run.given.label) }, part.fill);
    part.box = make("section", "strip", make("div", "head", part.label, part.state, part.stage, part.left, part.values), part.track, part.error);
    this.node.append(part.box);
    this.shown.set(run, part);
    return part;
  }

  writeOne(part, run, view) {
    const status = run.status ?? {}, error = String(status.error || ""), state = run.gone ? "deleted" : status.state ?? "…";
    part.box.hidden = !run.given.live && !error;
    part.box.dataset.state = state;
    setTextOrHide(part.label, String(run.given.label ?? run.given.id));
    setTextOrHide(part.state, state);
    setTextOrHide(part.stage, stage(run));
    setTextOrHide(part.left, state === "running" ? timeLeft(status.seconds_left) : "");
    setTextOrHide(part.values, values(run, view));
    setTextOrHide(part.error, error);
    const percent = Math.round(1000 * clamp(status.progress ?? 0, 0, 1)) / 10;
    part.track.hidden = !run.given.live;
    part.track.setAttribute("aria-valuenow", String(percent));
    part.fill.style.width = `${percent}%`;
  }
}
