// When a component's canvases are drawn: after wake(), and when their size or the page's colours change; at most 30 times a
// second while its clock plays, and never while it is hidden.
import { readTheme } from "./colours.js";
import { Colours } from "./theme.js";

const PERIOD = 1000 / 30;  // milliseconds between frames, few enough to leave the processor to training
const LONGEST = 0.25;  // seconds that t may advance at once, after the page was hidden

export class Stage {
  // advance(seconds) moves t while playing; paint() draws. If `always` is set, it is called while the component is hidden as well.
  constructor(node, advance, paint, always = false) {
    Object.assign(this, { advance, paint, always, playing: false, ended: false, seen: false, request: null, last: null, due: 0 });
    this.look = () => this.wake();
    document.addEventListener("visibilitychange", this.look);
    this.observer = new IntersectionObserver((entries) => {
      this.seen = entries.at(-1).isIntersecting;
      this.wake();
    });
    this.observer.observe(node);
    this.sizes = new ResizeObserver((entries) => {
      for (const { target, contentRect } of entries) target.size = { width: Math.floor(contentRect.width), height: Math.floor(contentRect.height) };
      this.wake();
    });
    this.sizes.observe(node);
    this.colours = new Colours((old) => readTheme(node, old), this.look);
  }

  get theme() { return this.colours.now; }

  wake() {
    if (this.request === null && !this.ended) this.request = requestAnimationFrame((now) => this.tick(now));
  }

  play(on) {
    this.playing = on;
    this.last = null;
    this.wake();
  }

  tick(now) {
    this.request = null;
    if (this.playing) {
      if (now < this.due - 1) return this.wake();  // a millisecond early is close enough
      this.due = (this.due + PERIOD > now ? this.due : now) + PERIOD;
      const passed = this.last === null ? 0 : Math.min((now - this.last) / 1000, LONGEST);
      this.last = now;
      this.advance(passed);
    }
    if (this.always || (this.seen && !document.hidden)) this.paint();
    if (this.playing) this.wake();
  }

  end() {
    this.ended = true;
    this.playing = false;
    cancelAnimationFrame(this.request);
    this.observer.disconnect();
    this.sizes.disconnect();
    this.colours.end();
    document.removeEventListener("visibilitychange", this.look);
  }
}

// Clear a canvas of this size in CSS pixels, optionally copy a picture onto it, and return a context that draws in CSS pixels.
export function cleared(canvas, width, height, picture = null) {
  const ratio = window.devicePixelRatio || 1, [w, h] = [Math.round(width * ratio), Math.round(height * ratio)], g = canvas.getContext("2d");
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  g.setTransform(1, 0, 0, 1, 0, 0);
  g.clearRect(0, 0, w, h);
  if (picture) g.drawImage(picture, 0, 0);
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  return g;
}

// Draw on a canvas as wide as its parent and heightOf(width) high; return what draw(g, width, height) returns.
export function onCanvas(canvas, heightOf, draw) {
  const width = Math.floor(canvas.parentElement.clientWidth), height = heightOf(width);
  if (width < 40) return null;
  canvas.style.height = `${height}px`;
  return draw(cleared(canvas, width, height), width, height);
}
