// The cards that hold the charts: which there are, which are seen or dragged in, and the drawing of one.
import { checkbox } from "./curves_bar.js";
import { CONFIG, layoutOf, tracesOf } from "./curves_figure.js";
import { Pace } from "./curves_pace.js";
import { emptyBecause, PANELS } from "./curves_panels.js";
import { adoptStyles } from "./load_plotly.js";
import { make, sayOrHide } from "./theme.js";

// A piece of a curve, as a key to its dash and to its points.
function sample({ curve, colour, width, marker, points }) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 10");
  const shape = document.createElementNS(svg.namespaceURI, marker ? "circle" : "path");
  for (const [k, v] of Object.entries(marker ? { cx: 12, cy: 5, r: 4 } : { d: "M1 5H23" })) shape.setAttribute(k, v);
  Object.assign(shape.style, { stroke: colour, strokeWidth: width, fill: "none",
    strokeDasharray: { dash: "6 4", dot: "2 3" }[curve.dash] ?? "none" });
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
  constructor(view, changed) {
    Object.assign(this, { view, changed, Plotly: null, drawn: 0, panels: new Map(), node: make("div", "grid") });
    this.pace = new Pace(this.panels, (panel) => this.draw(panel));
    this.observer = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) target.panel.inView = isIntersecting;
      this.pace.soon();
    }, { rootMargin: "60px" });
    this.resizer = new ResizeObserver(() => {
      for (const { plot } of this.panels.values()) {
        if (plot._fullLayout && plot.clientWidth > 0 && Math.abs(plot._fullLayout.width - plot.clientWidth) > 1) this.Plotly.Plots.resize(plot);
      }
    });
    this.resizer.observe(this.node);
    this.release = () => {
      for (const panel of this.panels.values()) panel.held = false;
      this.pace.soon();
    };
    for (const kind of ["pointerup", "pointercancel"]) window.addEventListener(kind, this.release, true);
  }

  begin(Plotly) {
    this.Plotly = Plotly;
    this.pace.begin();
  }

  // Those of the names, all where there are none.
  arrange(names) {
    const wanted = PANELS.filter(({ name }) => !names || names.includes(name));
    for (const panel of this.panels.values()) if (!wanted.some(({ name }) => name === panel.name)) this.remove(panel);
    for (const definition of wanted) if (!this.panels.has(definition.name)) this.panels.set(definition.name, this.card(definition));
    this.node.append(...wanted.map(({ name }) => this.panels.get(name).box));
  }

  card(definition) {
    const panel = { ...definition, caption: make("span", "title"), key: make("span", "key"), plot: make("div", "plot"),
      empty: make("p", "empty", "Loading…"), dirty: true, held: false, inView: false, pointer: null, kind: null, keyed: "", stamp: "" };
    const head = make("figcaption", "", panel.caption, panel.key), body = make("div", "body", panel.plot, panel.empty);
    if (panel.name === "nfe") head.append(panel.two = checkbox("phase two (2)", this.view.settings, "two", this.changed));
    body.addEventListener("pointerdown", () => { panel.held = true; }, true);
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

  // All that a panel's picture of the data depends on.
  stampOf(panel) {
    return [...this.view.runs.values()].map((run) =>
      [run[panel.of].version, run.steps.length > 0, run.answered, run.gone, run.status?.state].join(" ")).join(",");
  }

  // Records have come: which panels do they change?
  news() {
    for (const panel of this.panels.values()) if (panel.stamp !== this.stampOf(panel)) panel.dirty = true;
    this.pace.news();
  }

  draw(panel) {
    const { traces, key } = tracesOf(panel, this.view), runs = [...this.view.runs.values()], any = traces.some((trace) => trace.visible);
    panel.dirty = false;
    panel.stamp = this.stampOf(panel);
    sayOrHide(panel.caption, panel.title(String(this.view.title)).replace(/^./, (c) => c.toUpperCase()));
    this.drawKey(panel, key);
    if (panel.two) panel.two.hidden = !runs.some((run) => run.steps.has("nfe_forward_a"));
    panel.plot.classList.toggle("away", !any);
    sayOrHide(panel.empty, any ? "" : traces.length ? "All of its curves are hidden." : emptyBecause(panel, runs));
    if (traces.length) this.plot(panel, traces);
  }

  drawKey(panel, key) {
    const keyed = JSON.stringify(key);
    if (keyed === panel.keyed) return;
    panel.keyed = keyed;
    panel.key.replaceChildren(...(key.length > 1 ? key.map((item) => make("span", "", sample(item), make("span", "", item.curve.name))) : []));
  }

  plot(panel, traces) {
    const begun = Boolean(panel.plot._fullLayout), { pointer } = panel;
    panel.kind = this.view.settings.x;
    this.Plotly.react(panel.plot, traces, layoutOf(panel, this.view), CONFIG);
    this.drawn++;
    if (!begun) {
      adoptStyles(this.node);
      panel.plot.on("plotly_relayout", () => this.pace.one(panel));
      panel.plot.on("plotly_hover", (event) => { panel.pointer = event.event; });
      panel.plot.on("plotly_unhover", () => { panel.pointer = null; });
    } else if (pointer) {
      panel.pointer = pointer;
      this.Plotly.Fx.hover(panel.plot, pointer, "xy");  // the label follows the new data
    }
  }

  ranges(name) {
    const layout = this.panels.get(name)?.plot._fullLayout;
    return layout ? { x: [...layout.xaxis.range], y: [...layout.yaxis.range] } : null;
  }

  end() {
    this.pace.end();
    this.observer.disconnect();
    this.resizer.disconnect();
    for (const kind of ["pointerup", "pointercancel"]) window.removeEventListener(kind, this.release, true);
    for (const panel of this.panels.values()) this.remove(panel);
  }
}
