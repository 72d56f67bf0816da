// The cards that hold the charts: creates and removes them, tracks which are visible or being dragged in, and draws them.
import { checkbox } from "./curves_controls.js";
import { CONFIG, layoutOf, tracesOf } from "./curves_figure.js";
import { emptyReason, PANELS } from "./curves_panels.js";
import { DrawScheduler } from "./curves_scheduler.js";
import { Tail } from "./curves_tail.js";
import { adoptStyles } from "./load_plotly.js";
import { make, setTextOrHide } from "./theme.js";

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
