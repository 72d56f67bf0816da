// When frames are drawn: once after a change, at most 30 times a second while playing, and never while it is hidden.

const PERIOD = 1000 / 30;  // milliseconds between frames, few enough to leave the processor to training
const LONGEST = 0.25;  // seconds that t may advance at once, after the page was hidden
const REMEMBERED = 120;  // frames that fps() and cost() look at

export class Clock {
  // advance(seconds) moves t while playing; paint() draws and returns the number of panels drawn. If `always` is set, hidden
  // players are drawn as well.
  constructor(node, advance, paint, always = false) {
    Object.assign(this, { advance, paint, playing: false, ended: false, seen: false, always, request: null, last: null, due: 0, painted: [] });
    this.look = () => this.wake();
    document.addEventListener("visibilitychange", this.look);
    this.observer = new IntersectionObserver((entries) => {
      this.seen = entries.at(-1).isIntersecting;
      this.wake();
    });
    this.observer.observe(node);
  }

  wake() {
    if (this.request === null && !this.ended) this.request = requestAnimationFrame((now) => this.tick(now));
  }

  play(on) {
    this.playing = on;
    this.last = null;
    if (on) this.painted = [];
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
    if (this.always || (this.seen && !document.hidden)) {
      const started = performance.now();
      if (this.paint()) this.painted.push({ now, took: performance.now() - started });
      if (this.painted.length > REMEMBERED) this.painted.shift();
    }
    if (this.playing) this.wake();
  }

  fps() {
    const own = this.painted;
    return own.length < 2 || performance.now() - own.at(-1).now > 1000 ? 0 : (own.length - 1) * 1000 / (own.at(-1).now - own[0].now);
  }

  // Mean and maximum milliseconds that drawing one of the last frames took.
  cost() {
    const took = this.painted.map((p) => p.took);
    return { mean: took.reduce((a, b) => a + b, 0) / (took.length || 1), most: Math.max(0, ...took) };
  }

  end() {
    this.ended = true;
    this.playing = false;
    cancelAnimationFrame(this.request);
    this.observer.disconnect();
    document.removeEventListener("visibilitychange", this.look);
  }
}
