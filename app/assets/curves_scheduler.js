// Decides when to draw. Drawing competes with training for the processor, so it draws one panel per frame, only visible
// panels, and new data at most once per interval, which grows with the cost of drawing. On a page without user input the
// interval is longer; if drawing all panels is expensive, only the first follows the data and the others take turns.
import { clamp } from "./theme.js";

const MIN_INTERVAL = 500, MAX_INTERVAL = 900;  // milliseconds between two updates
const TOLERANCE = 20;  // milliseconds by which an update may come early
const GRACE = 100;  // milliseconds that a delayed update waits for a response due at the same time
const INTERVAL_PER_COST = 8;  // an interval is this many times the cost of an update
const BUDGET = 70;  // milliseconds that one update may cost
const SMOOTHING = 0.7;  // of the moving average of the cost
const IDLE_AFTER = 5000, IDLE_INTERVAL = 850;  // milliseconds without input, and between two updates from then on
const CHEAP = 15;  // milliseconds: an idle page still updates all panels if they cost less together
const TURN = 3;  // otherwise every third update draws a second panel
const INPUTS = ["pointermove", "pointerdown", "wheel", "keydown"];

export class DrawScheduler {
  constructor(panels, draw) {
    Object.assign(this, { panels, draw, started: false, destroyed: false, queue: new Set(), frame: 0, timer: 0 });
    Object.assign(this, { interval: MIN_INTERVAL, cost: null, spent: 0, measuring: false, updated: -MIN_INTERVAL, received: 0, lag: 0 });
    Object.assign(this, { lastInput: performance.now(), turn: 0 });
    this.onVisibility = () => {
      this.received = 0;  // the time for which a page was hidden is not lag
      this.schedule();
    };
    this.onInput = () => {
      const wasIdle = this.idle();
      this.lastInput = performance.now();
      if (!wasIdle) return;
      for (const panel of this.panels.values()) if (!panel.tail.empty) this.drawSoon(panel);
      this.update();
    };
    document.addEventListener("visibilitychange", this.onVisibility);
    for (const kind of INPUTS) window.addEventListener(kind, this.onInput, { capture: true, passive: true });
  }

  idle() { return performance.now() - this.lastInput > IDLE_AFTER; }

  start() {
    this.started = true;
    this.schedule();
  }

  // A panel in which the pointer drags must not be redrawn.
  canDraw(panel) { return this.started && !document.hidden && panel.inView && !panel.dragged; }

  drawAll() {
    for (const panel of this.panels.values()) this.drawSoon(panel);
  }

  // Draws all of a panel, because more has changed than its data.
  drawSoon(panel) {
    panel.dirty = panel.whole = true;
    this.queue.add(panel);
    this.schedule();
  }

  // Draws queued panels in the next frame.
  schedule() {
    if (!this.frame && !this.destroyed) this.frame = requestAnimationFrame(() => this.step());
  }

  step() {
    this.frame = 0;
    if (this.destroyed || !this.started) return;
    for (const panel of this.panels.values()) if (panel.dirty && !panel.plot._fullLayout) this.queue.add(panel);
    for (const panel of this.queue) if (!panel.dirty || this.panels.get(panel.name) !== panel) this.queue.delete(panel);
    const ready = [...this.queue].filter((panel) => this.canDraw(panel));
    const now = this.idle() ? ready : ready.slice(0, 1);  // when idle, one frame is cheaper than two
    for (const panel of now) this.drawPanel(panel);
    if (now.length < ready.length) this.schedule(); else this.finish();
  }

  drawPanel(panel) {
    this.queue.delete(panel);
    const start = performance.now(), first = !panel.plot._fullLayout;
    this.draw(panel);
    const took = performance.now() - start;
    panel.drawnAt = start;
    if (first) return;  // the first drawing is not typical
    this.spent += took;
    panel.cost = panel.cost === undefined ? took : SMOOTHING * panel.cost + (1 - SMOOTHING) * took;
  }

  // Everything that can be drawn is drawn: records the lag and adapts the interval.
  finish() {
    if (this.received) [this.lag, this.received] = [performance.now() - this.received, 0];
    if (this.measuring && this.spent > 0) {
      this.cost = this.cost === null ? this.spent : SMOOTHING * this.cost + (1 - SMOOTHING) * this.spent;
      this.interval = clamp(INTERVAL_PER_COST * this.cost, MIN_INTERVAL, MAX_INTERVAL);
    }
    [this.measuring, this.spent] = [false, 0];
  }

  // Some panels have new data: draws them now, or at the end of the interval.
  dataChanged() {
    const visible = !document.hidden && [...this.panels.values()].some((panel) => panel.dirty && panel.inView);
    if (visible) this.received ||= performance.now();
    this.update();
  }

  update() {
    clearTimeout(this.timer);
    const dirty = [...this.panels.values()].filter((panel) => panel.dirty), wait = this.remaining();
    if (!dirty.length || this.destroyed) return;
    if (wait > TOLERANCE) {
      this.timer = setTimeout(() => this.update(), wait + GRACE);
      return;
    }
    this.updated = performance.now();
    this.measuring = true;
    const now = this.affordable(dirty);
    for (const panel of now) this.queue.add(panel);
    if (now.length < dirty.filter((panel) => panel.inView).length) this.timer = setTimeout(() => this.update(), this.pause() + GRACE);
    this.schedule();
  }

  // As many visible panels as the budget allows, but at least the first of the page and the one that has waited longest.
  affordable(dirty) {
    const [main] = this.panels.values(), visible = dirty.filter((panel) => panel.inView);
    const order = visible.sort((a, b) => (b === main) - (a === main) || (a.drawnAt ?? 0) - (b.drawnAt ?? 0));
    let cost = 0;
    const total = order.reduce((sum, panel) => sum + (panel.cost ?? 0), 0);
    if (this.idle() && total > CHEAP) return order.slice(0, ++this.turn % TURN ? 1 : 2);
    return order.filter((panel, i) => (cost += panel.cost ?? 0) <= BUDGET || i < 2);
  }

  // Milliseconds until the next update may start.
  remaining() { return this.updated + this.pause() - performance.now(); }

  pause() { return this.idle() ? Math.max(this.interval, IDLE_INTERVAL) : this.interval; }

  // Milliseconds until new data should be requested, so that the response can be drawn when it arrives.
  nextIn() { return this.remaining() > TOLERANCE ? this.remaining() : this.pause(); }

  // Draws all visible panels at once; returns the milliseconds it took.
  redraw() {
    const start = performance.now();
    for (const panel of this.panels.values()) if (this.canDraw(panel)) this.draw(panel);
    return performance.now() - start;
  }

  destroy() {
    this.destroyed = true;
    clearTimeout(this.timer);
    cancelAnimationFrame(this.frame);
    document.removeEventListener("visibilitychange", this.onVisibility);
    for (const kind of INPUTS) window.removeEventListener(kind, this.onInput, { capture: true });
  }
}

// The points that curves have gained since their chart was drawn: one short path each, over the chart. It costs a small
// part of drawing the chart anew, and is used on a page that nobody touches, for a few seconds at a time.
const LONGEST = 5000;  // milliseconds until the chart itself is drawn again

const DASHES = { dash: "9 9", dot: "3 3" };  // as Plotly draws them

export class Tail {
  constructor() {
    this.node = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.node.classList.add("tail");
    this.node.setAttribute("aria-hidden", "true");
    this.forget();
  }

  get empty() { return !this.node.childElementCount; }

  // The chart must be drawn before a tail can be.
  forget() {
    this.node.replaceChildren();
    Object.assign(this, { ends: null, since: 0 });
  }

  // The chart shows these traces.
  start(traces) {
    this.forget();
    const visible = traces.filter((trace) => trace.visible);
    if (!visible.every(({ mode, fill, x }) => mode === "lines" && !fill && x.length)) return;
    this.ends = new Map(visible.map(({ uid, x, y }) => [uid, [x.at(-1), y.at(-1)]]));
    this.since = performance.now();
  }

  // Draws what the traces have beyond the chart; returns false if they do not fit into it, or the chart is too old.
  extend({ _fullLayout: layout }, traces) {
    const visible = traces.filter((trace) => trace.visible);
    if (!this.ends || performance.now() - this.since > LONGEST || visible.length !== this.ends.size) return false;
    const scales = [scaleOf(layout.xaxis, layout._size.w, false), scaleOf(layout.yaxis, layout._size.h, true)], paths = [];
    for (const trace of visible) {
      const end = this.ends.get(trace.uid), d = end && pathOf(trace, end, ...scales);
      if (typeof d !== "string") return false;
      if (d) paths.push(pathElement(trace, d));
    }
    const { l, t, w, h } = layout._size;
    this.node.style.cssText = `left: ${l}px; top: ${t}px; width: ${w}px; height: ${h}px`;
    this.node.replaceChildren(...paths);
    return true;
  }
}

// Maps a value to pixels along an axis; NaN outside its range.
function scaleOf({ type, range }, length, downwards) {
  const [from, to] = range.map(Number);
  return (value) => {
    const share = ((type === "log" ? Math.log10(value) : value) - from) / (to - from);
    return share >= 0 && share <= 1 ? length * (downwards ? 1 - share : share) : NaN;
  };
}

// The path from the last point of the chart through the newer ones: "" if there is none, null if one lies outside.
function pathOf({ x, y, line }, [lastX, lastY], across, down) {
  let first = x.length, d = "", drawing = false;
  while (first > 0 && x[first - 1] > lastX) first--;
  if (first === x.length) return "";
  const put = (u, v) => {
    if (Number.isNaN(v)) return (drawing = false, true);  // a gap
    const [px, py] = [across(u), down(v)];
    if (Number.isNaN(px) || Number.isNaN(py)) return false;
    const at = `${px.toFixed(1)} ${py.toFixed(1)}`;
    d += drawing ? (line.shape === "hv" ? `H${px.toFixed(1)}V${py.toFixed(1)}` : `L${at}`) : `M${at}`;
    return drawing = true;
  };
  if (!put(lastX, lastY)) return null;
  for (let i = first; i < x.length; i++) if (!put(x[i], y[i])) return null;
  return d;
}

function pathElement({ line, opacity = 1 }, d) {
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", d);
  Object.assign(path.style, { stroke: line.color, strokeWidth: line.width, opacity, fill: "none",
    strokeDasharray: DASHES[line.dash] ?? "none" });
  return path;
}
