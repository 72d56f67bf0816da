// The playground: three networks that train on the server, their pictures, and the controls.
//
//   mount(element, data) → { update(data), destroy() }
//   data = { base, problems, networks, sliders, attentions, examples }: titles and words of app/playground/texts.py
import { readTheme } from "./colours.js";
import { drawLosses } from "./playground_loss.js";
import { Clock } from "./player.js";
import { Pad } from "./playground_pad.js";
import { slider } from "./playground_sliders.js";
import { connect } from "./playground_source.js";
import { attended, nothing, points, rest } from "./playground_views.js";
import { make, setText, setTextOrHide } from "./theme.js";

const PASS_SECONDS = 3, HOLD_SECONDS = 1;  // to play all of t, and before it starts again
const WATCH_MS = 500;
const SEND_MS = 60;  // between two messages of a slider that is dragged
const FPS_FRAMES = 20;

class Playground {
  constructor(element, data) {
    this.data = data;
    this.frame = null;
    this.t = 1;
    this.pending = {};
    this.arrivals = [];
    this.drawn = 0;  // frames
    this.canvases = [];
    this.build(element);
    this.clock = new Clock(this.node, (seconds) => this.advance(seconds), () => this.paint(), true);
    this.theme = readTheme(this.node);
    this.sizes = new ResizeObserver(() => this.wake());
    this.sizes.observe(this.node);
    this.watch = setInterval(() => {
      const theme = readTheme(this.node, this.theme);
      if (theme !== this.theme) { this.theme = theme; this.wake(); }
    }, WATCH_MS);
    this.source = connect(data.base, (frame) => this.accept(frame), (words) => setTextOrHide(this.failure, words));
  }

  // What there is --------------------------------------------------------------------------------------------------

  build(element) {
    const { problems, sliders, attentions, examples } = this.data;
    const button = (title, act, more = {}) => make("button", { type: "button", on: { click: act }, ...more }, title);
    this.problems = problems.map(({ name, title, attention }) => button(title, () => { this.attention.value = attention; this.choose({ problem: name, attention }); }, { "aria-pressed": "false" }));
    this.about = make("p", "about");
    this.run = button("▶ Run", () => this.source.send(this.frame?.running ? "pause" : "run"), { className: "play" });
    this.counts = make("span", "counts", "Loading");
    this.sliders = sliders.map((about) => [about.key, slider(about, (key, value) => this.choose({ [key]: value }))]);
    this.attention = make("select", { "aria-label": "Attention of ACE-NODE", on: { change: () => this.choose({ attention: this.attention.value }) } },
      ...attentions.map(({ name, title }) => make("option", { value: name }, title)));
    this.play = button("▶ Play t", () => this.playTime(!this.clock.playing));
    this.time = make("input", { type: "range", min: "0", max: "1", step: "0.01", value: "1", "aria-label": "Time (t)",
      on: { input: () => { this.clock.play(false); this.t = Number(this.time.value); this.wake(); } } });
    this.timeText = make("span", "value", "1.00");
    this.note = make("p", { className: "note", role: "status", hidden: true });
    this.failure = make("p", { className: "note", role: "alert", hidden: true });
    this.pad = new Pad(examples, (strokes) => { this.choose({ strokes }); this.source.send("run"); }, () => this.wake());
    this.canvases.push({ canvas: this.pad.canvas, height: (w) => Math.min(w, 380), draw: (g, w, h) => this.pad.draw(g, w, h, this.theme), always: true });
    this.padBox = make("div", { className: "drawing", hidden: true }, this.pad.node);
    this.panels = this.data.networks.map((network) => this.panel(network));
    this.losses = this.canvas("Loss by training step", () => 220, (g, w, h) => drawLosses(g, w, h,
      this.frame.networks.map((network, n) => ({ ...network, title: this.data.networks[n].title })), this.theme));
    this.node = make("div", "ace-playground",
      make("div", { className: "choices", role: "group", "aria-label": "Problem" }, make("span", "", "Problem"), ...this.problems), this.about,
      make("div", "bar",
        make("div", "line", this.run, button("One step", () => this.source.send("step")), button("Rewind", () => this.source.send("rewind")), this.counts),
        make("div", "line", this.play, make("label", "slider", make("span", "", "Time (t)"), this.time, this.timeText)),
        make("div", "settings", ...this.sliders.map(([, { node }]) => node), make("label", "slider", make("span", "", "Attention of ACE-NODE"), this.attention))),
      this.note, this.failure, this.padBox, make("div", "panels", ...this.panels.map(({ node }) => node)), this.losses.box);
    element.append(this.node);
  }

  panel(network) {
    const scene = () => ({ ...this.sceneOf(network.name), theme: this.theme, t: this.t });
    const view = (label, height, draw) => this.canvas(`${network.title}: ${label}`, height, (g, w, h) => {
      const now = scene();
      if (now.picture) draw(g, w, h, now); else nothing(g, w, h, "No solution", this.theme);
    });
    const words = make("p", "words"), size = make("span", "size"), why = make("p", "why");
    const main = view("points and field", (w) => Math.min(w, 420), points);
    const small = [view("the rest of the state", () => 200, rest), view("h′ against h", () => 200, attended)];
    const node = make("section", { "aria-label": network.title }, make("h2", "", network.title, size), make("code", "", network.formula), why, main.box,
      make("div", "small", ...small.map(({ box }) => box)), words);
    return { node, words, size, why, network, canvases: [main.canvas, ...small.map(({ canvas }) => canvas)] };
  }

  canvas(label, height, draw) {
    const canvas = make("canvas", { role: "img", "aria-label": label }), box = make("div", "frame", canvas);
    this.canvases.push({ canvas, height, draw });
    return { canvas, box };
  }

  sceneOf(name) {
    const network = this.frame.networks.find((one) => one.name === name);
    return { problem: this.frame.problem, picture: network.picture, name };
  }

  // What happens ---------------------------------------------------------------------------------------------------

  // Collect changes of settings and send them together, at most every SEND_MS.
  choose(values) {
    Object.assign(this.pending, values);
    this.sending ??= setTimeout(() => {
      this.sending = null;
      const changed = this.pending;
      this.pending = {};
      this.source.send("set", changed);
    }, SEND_MS);
  }

  accept(frame) {
    const first = this.frame === null;
    this.frame = frame;
    this.arrivals = [...this.arrivals.slice(-FPS_FRAMES), performance.now()];
    if (first) {
      for (const [key, { set }] of this.sliders) set(frame.settings[key]);
      this.attention.value = frame.settings.attention;
      if (frame.settings.strokes.length) this.pad.strokes = frame.settings.strokes;
    }
    this.wake();
  }

  framesASecond() {
    const since = this.arrivals[0], now = performance.now();
    return this.arrivals.length > 1 ? (this.arrivals.length - 1) / ((now - since) / 1000) : 0;
  }

  playTime(on) {
    this.played = this.t >= 1 ? 0 : this.t;
    this.clock.play(on);
  }

  wake() { this.clock.wake(); }

  advance(seconds) {
    this.played += seconds / PASS_SECONDS;
    if (this.played > 1 + HOLD_SECONDS / PASS_SECONDS) this.played = 0;
    this.t = Math.min(1, this.played);
  }

  // What is shown --------------------------------------------------------------------------------------------------

  paint() {
    const { frame, data } = this;
    if (frame && frame !== this.painted) { this.painted = frame; this.drawn += 1; }
    setText(this.play, this.clock.playing ? "❚❚ Pause t" : "▶ Play t");
    this.time.value = String(this.t);
    setText(this.timeText, this.t.toFixed(2));
    this.time.setAttribute("aria-valuetext", this.t.toFixed(2));
    if (frame) this.describe(frame, data);
    for (const { canvas, height, draw, always } of this.canvases) if (frame || always) this.paintCanvas(canvas, height, draw);
  }

  describe(frame, data) {
    setText(this.run, frame.running ? "❚❚ Pause" : "▶ Run");
    setText(this.counts, `Step ${frame.step.toLocaleString("en")}${frame.running && frame.stepsASecond ? ` · ${Math.round(frame.stepsASecond)} steps/s · ${Math.round(this.framesASecond())} frames/s` : " · paused"}`);
    setTextOrHide(this.note, frame.note);
    const problem = data.problems.find(({ name }) => name === frame.problem.name);
    setText(this.about, problem.text);
    for (const [n, { name }] of data.problems.entries()) this.problems[n].setAttribute("aria-pressed", String(name === problem.name));
    this.padBox.hidden = problem.name !== "drawn";
    for (const { words, size, why, network, canvases } of this.panels) {
      const own = frame.networks.find(({ name }) => name === network.name), loss = own.losses.at(-1);
      setText(words, `${own.words}${loss === undefined ? "" : ` Loss: ${loss < 0.001 ? loss.toExponential(1) : loss.toFixed(3)}.`}`);
      setText(size, ` · ${own.parameters} parameters`);
      setText(why, frame.problem.d === 1 ? network.one : network.two);
      canvases[0].setAttribute("aria-label", `${network.title}: points and field. ${own.words}`);
    }
  }

  paintCanvas(canvas, heightOf, draw) {
    const width = Math.floor(canvas.parentElement.clientWidth), height = heightOf(width), ratio = window.devicePixelRatio || 1;
    if (width < 40) return;
    const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)], g = canvas.getContext("2d");
    if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
    canvas.style.height = `${height}px`;
    g.setTransform(1, 0, 0, 1, 0, 0);
    g.clearRect(0, 0, w, h);
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    draw(g, width, height);
  }

  destroy() {
    this.clock.end();
    clearTimeout(this.sending);
    clearInterval(this.watch);
    this.source.stop();
    this.sizes.disconnect();
    this.node.remove();
  }
}

export function mount(element, data) {
  const playground = new Playground(element, data);
  element.__playground = { frame: () => playground.frame, t: () => playground.t, fps: () => playground.framesASecond(), drawn: () => playground.drawn,
    paintSeconds: () => { const began = performance.now(); playground.paint(); return (performance.now() - began) / 1000; },
    words: (name) => playground.frame?.networks.find((network) => network.name === name)?.words ?? "" };
  return { update() {}, destroy() { playground.destroy(); delete element.__playground; } };
}
