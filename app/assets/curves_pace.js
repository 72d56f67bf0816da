// When to draw: one panel a frame, only what is seen, and what is new at most once an interval that follows the cost of
// drawing, because the training that is watched often needs the same processor. A page that nobody touches is calm: its
// first panel stays within a second of what is written, and so do the others where drawing all is cheap; else they take turns.
import { clamp } from "./theme.js";

const LEAST = 500, MOST = 900;  // milliseconds between two flushes
const NEAR = 20, GRACE = 100;  // so much too early is in time; so long a flush waits for the answer that is due with it
const SHARE = 8;  // an interval is so many times what a flush costs
const BUDGET = 70;  // milliseconds that a flush may cost: the losses first, the others in turn
const MEMORY = 0.7;  // of the moving average of that cost
const CALM = 5000, CALM_INTERVAL = 750;  // milliseconds without a touch, and between two flushes from then on
const CHEAP = 15;  // milliseconds that all panels of a calm page may cost together
const TURN = 3;  // of a calm page that costs more: every so many flushes another panel has its turn beside the first
const TOUCHES = ["pointermove", "pointerdown", "wheel", "keydown"];

export class Pace {
  constructor(panels, draw) {
    Object.assign(this, { panels, draw, begun: false, ended: false, queue: new Set(), frame: 0, timer: 0 });
    Object.assign(this, { interval: LEAST, cost: null, spent: 0, measured: false, flushed: -LEAST, received: 0, lag: 0 });
    Object.assign(this, { touched: performance.now(), turn: 0 });
    this.look = () => {
      this.received = 0;  // how long a page was hidden is no lag
      this.soon();
    };
    this.touch = () => {
      const rested = this.calm();
      this.touched = performance.now();
      if (rested) this.flush();
    };
    document.addEventListener("visibilitychange", this.look);
    for (const kind of TOUCHES) window.addEventListener(kind, this.touch, { capture: true, passive: true });
  }

  calm() { return performance.now() - this.touched > CALM; }

  begin() {
    this.begun = true;
    this.soon();
  }

  // A panel that is dragged in is not to be drawn over.
  ready(panel) { return this.begun && !document.hidden && panel.inView && !panel.held; }

  all() {
    for (const panel of this.panels.values()) this.one(panel);
  }

  one(panel) {
    panel.dirty = true;
    this.queue.add(panel);
    this.soon();
  }

  soon() {
    if (!this.frame && !this.ended) this.frame = requestAnimationFrame(() => this.step());
  }

  step() {
    this.frame = 0;
    if (this.ended || !this.begun) return;
    for (const panel of this.panels.values()) if (panel.dirty && !panel.plot._fullLayout) this.queue.add(panel);
    for (const panel of this.queue) if (!panel.dirty || this.panels.get(panel.name) !== panel) this.queue.delete(panel);
    const ready = [...this.queue].filter((panel) => this.ready(panel));
    if (!ready.length) return this.rest();
    for (const panel of this.calm() ? ready : ready.slice(0, 1)) this.drawNext(panel);  // one frame is cheaper than two
    this.soon();
  }

  drawNext(panel) {
    this.queue.delete(panel);
    const begun = performance.now(), first = !panel.plot._fullLayout;
    this.draw(panel);
    const took = performance.now() - begun;
    panel.when = begun;
    if (first) return;  // the first drawing of a panel says nothing about the next
    this.spent += took;
    panel.cost = panel.cost === undefined ? took : MEMORY * panel.cost + (1 - MEMORY) * took;
  }

  // All that can be drawn is drawn.
  rest() {
    if (this.received) [this.lag, this.received] = [performance.now() - this.received, 0];
    if (this.measured && this.spent > 0) {
      this.cost = this.cost === null ? this.spent : MEMORY * this.cost + (1 - MEMORY) * this.spent;
      this.interval = clamp(SHARE * this.cost, LEAST, MOST);
    }
    [this.measured, this.spent] = [false, 0];
  }

  // Some panels have become dirty: they are drawn now, or when the interval is over.
  news() {
    const seen = !document.hidden && [...this.panels.values()].some((panel) => panel.dirty && panel.inView);
    if (seen) this.received ||= performance.now();
    this.flush();
  }

  flush() {
    clearTimeout(this.timer);
    const dirty = [...this.panels.values()].filter((panel) => panel.dirty), early = this.early();
    if (!dirty.length || this.ended) return;
    if (early > NEAR) {
      this.timer = setTimeout(() => this.flush(), early + GRACE);
      return;
    }
    this.flushed = performance.now();
    this.measured = true;
    const now = this.affordable(dirty);
    for (const panel of now) this.queue.add(panel);
    if (now.length < dirty.filter((panel) => panel.inView).length) this.timer = setTimeout(() => this.flush(), this.pause() + GRACE);
    this.soon();
  }

  // As many of the panels as the budget allows: the first of the page and the one that waited longest in any case.
  affordable(dirty) {
    const [main] = this.panels.values(), seen = dirty.filter((panel) => panel.inView);
    const order = seen.sort((a, b) => (b === main) - (a === main) || (a.when ?? 0) - (b.when ?? 0));
    let cost = 0;
    const all = order.reduce((sum, panel) => sum + (panel.cost ?? 0), 0);
    if (this.calm() && all > CHEAP) return order.slice(0, ++this.turn % TURN ? 1 : 2);
    return order.filter((panel, i) => (cost += panel.cost ?? 0) <= BUDGET || i < 2);
  }

  // Milliseconds until what is new may be drawn again.
  early() { return this.flushed + this.pause() - performance.now(); }

  pause() { return this.calm() ? Math.max(this.interval, CALM_INTERVAL) : this.interval; }

  // When to ask for more, so that the answer can be drawn as it comes.
  next() { return this.early() > NEAR ? this.early() : this.pause(); }

  // Everything that is seen, at once; the milliseconds it took.
  redraw() {
    const begun = performance.now();
    for (const panel of this.panels.values()) if (this.ready(panel)) this.draw(panel);
    return performance.now() - begun;
  }

  end() {
    this.ended = true;
    clearTimeout(this.timer);
    cancelAnimationFrame(this.frame);
    document.removeEventListener("visibilitychange", this.look);
    for (const kind of TOUCHES) window.removeEventListener(kind, this.touch, { capture: true });
  }
}
