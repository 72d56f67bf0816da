// The playground: three networks that train on the server, their pictures, and the controls.
//
//   mount(element, data) → { update(data), destroy() }
//   data = { base, problems, networks, sliders, attentions, examples }: titles and words of words.toml and app/playground.py
import { classColour } from "./colours.js";
import { axes, dot, path } from "./player_draw.js";
import { floats } from "./player_run.js";
import { attended, drawLosses, nothing, points, rest } from "./playground_pictures.js";
import { poll } from "./poll.js";
import { onCanvas, Stage } from "./stage.js";
import { at, button, clamp, make, select, setText, setTextOrHide, slider } from "./theme.js";

const PASS_SECONDS = 3, HOLD_SECONDS = 1;  // to play all of t, and before it starts again
const SEND_MS = 60;  // between two messages of a slider that is dragged
const FPS_FRAMES = 20;

const PAUSE_MS = 55;  // at least, between two requests for frames
const RETRY_MS = 2000;
const SILENT = "The server does not respond.";

// This tab's name for its playground, which survives a reload of the page.
function ownName() {
  const key = "acenode-playground", name = [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, "0")).join("");
  try {
    const found = sessionStorage.getItem(key);
    if (/^[0-9a-f]{32}$/.test(found)) return found;
    sessionStorage.setItem(key, name);
  } catch { /* storage is blocked: a name for this visit */ }
  return name;
}

// An array of the server: { shape, data }; `data` becomes a Float32Array.
function decode(array) {
  if (typeof array?.data === "string") array.data = floats(array.data);
}

const STEPS = 120;  // places of a slider with a logarithmic scale

function scaleOf({ scale, low, high, least = low }) {
  if (scale === "whole") return { max: high - low, read: (n) => low + n, place: (v) => v - low, words: String };
  const zero = scale === "log0", first = zero ? 1 : 0, ratio = Math.log(high / least);
  return {
    max: STEPS,
    read: (n) => zero && n === 0 ? 0 : Number((least * Math.exp(ratio * (n - first) / (STEPS - first))).toPrecision(2)),
    place: (v) => zero && v <= 0 ? 0 : Math.round(first + (STEPS - first) * Math.log(v / least) / ratio),
    words: (v) => v === 0 ? "0" : v < 0.001 ? v.toExponential(1) : String(v),
  };
}

// A labelled slider of a setting; changed(key, value) is called at every move.
function setting(about, changed) {
  const scale = scaleOf(about), output = make("span", "value");  // not <output>, which screen readers would read aloud at every change
  const input = slider(about.title, 0, scale.max, 1, (place) => { show(scale.read(place)); changed(about.key, scale.read(place)); });
  function show(value) {
    setText(output, scale.words(value));
    input.setAttribute("aria-valuetext", scale.words(value));
  }
  return { node: make("label", "slider", make("span", "", about.title), input, output),
    set(value) { input.value = String(scale.place(value)); show(value); } };
}

// A pad on which paths are drawn with the mouse, a finger or a pen; examples can be chosen without one.

const REACH = 1.6, MOST_STROKES = 8, MOST_PLACES = 150;
const CLOSE = 4;  // pixels between two places of a path
const SHORTEST = 0.15;

class Pad {
  // drawn(strokes) is called after every change, with at least one path; wake() asks for a new picture.
  constructor(examples, drawn, wake) {
    Object.assign(this, { strokes: examples[0].strokes, current: null, drawn, wake });
    const end = () => this.end();
    this.canvas = make("canvas", { tabIndex: -1, role: "img", "aria-label": "Drawing area. Choose an example below it to use the keyboard.",
      on: { pointerdown: (event) => this.begin(event), pointermove: (event) => this.go(event), pointerup: end, pointercancel: end } });
    this.node = make("div", "pad", this.canvas, make("div", "choices",
      button("Undo last path", () => this.set(this.strokes.slice(0, -1))), button("Clear", () => this.set([])),
      make("span", "", "Examples"), ...examples.map(({ title, strokes }) => button(title, () => this.set(strokes)))));
  }

  set(strokes) {
    this.strokes = strokes;
    this.wake();
    if (strokes.length) this.drawn(strokes);
  }

  place(event) {
    const { x, y, w, h } = this.box;
    const round = (v) => Math.round(clamp(v, -REACH, REACH) * 1000) / 1000;
    return [round((event.offsetX - x) / w * 2 * REACH - REACH), round(REACH - (event.offsetY - y) / h * 2 * REACH)];
  }

  begin(event) {
    if (!this.box || event.button > 0) return;
    if (this.strokes.length >= MOST_STROKES) this.strokes = this.strokes.slice(1);
    this.canvas.setPointerCapture(event.pointerId);
    this.current = [this.place(event)];
    this.wake();
  }

  go(event) {
    if (!this.current) return;
    const next = this.place(event), [x, y] = this.current.at(-1);
    if (Math.hypot(next[0] - x, next[1] - y) < CLOSE * 2 * REACH / this.box.w || this.current.length >= MOST_PLACES) return;
    this.current.push(next);
    this.wake();
  }

  end() {
    const drawn = this.current ?? [];
    this.current = null;
    const length = drawn.slice(1).reduce((sum, [x, y], n) => sum + Math.hypot(x - drawn[n][0], y - drawn[n][1]), 0);
    if (length >= SHORTEST) this.set([...this.strokes, drawn]);
    this.wake();
  }

  draw(g, w, h, theme) {
    const side = Math.min(w - 70, h - 50);
    this.box = { x: 60, y: 8, w: side, h: side };
    const { X, Y } = axes(g, this.box, [-REACH, REACH], [-REACH, REACH], theme, ["First coordinate (h₁)", "Second coordinate (h₂)"]);
    for (const [k, stroke] of [...this.strokes, ...(this.current ? [this.current] : [])].entries()) {
      const places = stroke.map(([x, y]) => [X(x), Y(y)]);
      path(g, places, classColour(k), 2.5, 0.8);
      dot(g, ...places[0], 5, classColour(k), theme.panel);
      dot(g, ...places.at(-1), 8, null, classColour(k), 2);
    }
  }
}

class Playground {
  constructor(element, data) {
    Object.assign(this, { data, frame: null, t: 1, pending: {}, arrivals: [], drawn: 0, canvases: [], after: 0 });
    this.address = at(`${data.base}playground/${ownName()}`);
    this.build(element);
    this.stage = new Stage(this.node, (seconds) => this.advance(seconds), () => this.paint(), true);
    this.polling = poll(() => this.refresh(), RETRY_MS);
    this.polling.now();
  }

  build(element) {
    const { problems, sliders, attentions, examples } = this.data;
    this.problems = problems.map(({ name, title, attention }) => button(title, () => { this.attention.value = attention; this.choose({ problem: name, attention }); }));
    this.about = make("p", "about");
    this.run = button("▶ Run", () => this.send(this.frame?.running ? "pause" : "run"), { className: "play" });
    this.counts = make("span", "counts", "Loading");
    this.sliders = sliders.map((about) => [about.key, setting(about, (key, value) => this.choose({ [key]: value }))]);
    this.attention = select("Attention of ACE-NODE", attentions.map(({ name, title }) => [name, title]), (attention) => this.choose({ attention }));
    this.play = button("▶ Play t", () => this.playTime(!this.stage.playing));
    this.time = slider("Time (t)", 0, 1, 0.01, (t) => { this.stage.play(false); this.t = t; this.stage.wake(); });
    this.timeText = make("span", "value", "1.00");
    this.note = make("p", { className: "note", role: "status", hidden: true });
    this.failure = make("p", { className: "note", role: "alert", hidden: true });
    this.pad = new Pad(examples, (strokes) => { this.choose({ strokes }); this.send("run"); }, () => this.stage.wake());
    this.canvases.push({ canvas: this.pad.canvas, height: (w) => Math.min(w, 380), draw: (g, w, h) => this.pad.draw(g, w, h, this.stage.theme), always: true });
    this.padBox = make("div", { className: "drawing", hidden: true }, this.pad.node);
    this.panels = this.data.networks.map((network, n) => this.panel(network, n));
    this.losses = this.canvas("Loss by training step", () => 220, (g, w, h) => drawLosses(g, w, h,
      this.frame.networks.map((network, n) => ({ ...network, title: this.data.networks[n].title })), this.stage.theme));
    this.node = make("div", "ace ace-playground",
      make("div", { className: "choices", role: "group", "aria-label": "Problem" }, make("span", "", "Problem"), ...this.problems), this.about,
      make("div", "bar",
        make("div", "line", this.run, button("One step", () => this.send("step")), button("Rewind", () => this.send("rewind")), this.counts),
        make("div", "line", this.play, make("label", "slider", make("span", "", "Time (t)"), this.time, this.timeText)),
        make("div", "settings", ...this.sliders.map(([, { node }]) => node), make("label", "slider", make("span", "", "Attention of ACE-NODE"), this.attention))),
      this.note, this.failure, this.padBox, make("div", "panels", ...this.panels.map(({ node }) => node)), this.losses);
    element.append(this.node);
  }

  panel(network, n) {
    const view = (label, height, draw) => this.canvas(`${network.title}: ${label}`, height, (g, w, h) => {
      const { problem, networks } = this.frame, { picture } = networks[n], { theme } = this.stage;
      if (picture) draw(g, w, h, { problem, picture, theme, t: this.t }); else nothing(g, w, h, "No solution", theme);
    });
    const words = make("p", "words"), size = make("span", "size"), why = make("p", "why"), main = view("points and field", (w) => Math.min(w, 420), points);
    const node = make("section", { "aria-label": network.title }, make("h2", "", network.title, size), make("code", "", network.formula), why, main,
      make("div", "small", view("the rest of the state", () => 200, rest), view("h′ against h", () => 200, attended)), words);
    return { node, words, size, why, canvas: main.firstChild };
  }

  canvas(label, height, draw) {
    const canvas = make("canvas", { role: "img", "aria-label": label });
    this.canvases.push({ canvas, height, draw });
    return make("div", "frame", canvas);
  }

  // Ask for a newer frame. A page that is hidden asks for nothing, so that its training stops.
  async refresh() {
    if (document.hidden) return RETRY_MS;
    const began = performance.now();
    let words = `${SILENT} Training continues when it is running again.`;
    try {
      const answer = await fetch(`${this.address}?after=${this.after}`);
      if (answer.status === 503) words = (await answer.json()).error ?? words;  // too many playgrounds
      if (!answer.ok) throw new Error(String(answer.status));
      const frame = await answer.json();
      if (this.broken) setTextOrHide(this.failure, "");
      this.broken = false;
      if (frame.serial !== undefined) this.accept(frame);
    } catch (error) {
      setTextOrHide(this.failure, words);
      [this.broken, this.after] = [true, 0];  // a new server counts from the beginning
      throw error;
    }
    return PAUSE_MS - (performance.now() - began);
  }

  async send(action, values) {
    try {
      const answer = await fetch(this.address, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ action, values }) });
      setTextOrHide(this.failure, answer.ok ? "" : (await answer.json()).error);
    } catch {
      setTextOrHide(this.failure, SILENT);
    }
  }

  // Collect changes of settings and send them together, at most every SEND_MS.
  choose(values) {
    Object.assign(this.pending, values);
    this.sending ??= setTimeout(() => {
      this.sending = null;
      this.send("set", this.pending);
      this.pending = {};
    }, SEND_MS);
  }

  accept(frame) {
    const first = this.frame === null;
    decode(frame.problem.targets);
    for (const { picture } of frame.networks) Object.values(picture ?? {}).forEach(decode);
    [this.frame, this.after] = [frame, frame.serial];
    this.arrivals = [...this.arrivals.slice(-FPS_FRAMES), performance.now()];
    if (first) {
      for (const [key, { set }] of this.sliders) set(frame.settings[key]);
      this.attention.value = frame.settings.attention;
      if (frame.settings.strokes.length) this.pad.strokes = frame.settings.strokes;
    }
    this.stage.wake();
  }

  framesASecond() {
    const since = this.arrivals[0], now = performance.now();
    return this.arrivals.length > 1 ? (this.arrivals.length - 1) / ((now - since) / 1000) : 0;
  }

  playTime(on) {
    this.played = this.t >= 1 ? 0 : this.t;
    this.stage.play(on);
  }

  advance(seconds) {
    this.played += seconds / PASS_SECONDS;
    if (this.played > 1 + HOLD_SECONDS / PASS_SECONDS) this.played = 0;
    this.t = Math.min(1, this.played);
  }

  paint() {
    const { frame, data } = this;
    if (frame && frame !== this.painted) { this.painted = frame; this.drawn += 1; }
    setText(this.play, this.stage.playing ? "❚❚ Pause t" : "▶ Play t");
    this.time.value = String(this.t);
    setText(this.timeText, this.t.toFixed(2));
    this.time.setAttribute("aria-valuetext", this.t.toFixed(2));
    if (frame) this.describe(frame, data);
    for (const { canvas, height, draw, always } of this.canvases) if (frame || always) onCanvas(canvas, height, draw);
  }

  describe(frame, data) {
    setText(this.run, frame.running ? "❚❚ Pause" : "▶ Run");
    setText(this.counts, `Step ${frame.step.toLocaleString("en")}${frame.running && frame.stepsASecond ? ` · ${Math.round(frame.stepsASecond)} steps/s · ${Math.round(this.framesASecond())} frames/s` : " · paused"}`);
    setTextOrHide(this.note, frame.note);
    const problem = data.problems.find(({ name }) => name === frame.problem.name);
    setText(this.about, problem.text);
    for (const [n, { name }] of data.problems.entries()) this.problems[n].setAttribute("aria-pressed", String(name === problem.name));
    this.padBox.hidden = problem.name !== "drawn";
    for (const [n, { words, size, why, canvas }] of this.panels.entries()) {
      const network = data.networks[n], own = frame.networks[n], loss = own.losses.at(-1);
      setText(words, `${own.words}${loss === undefined ? "" : ` Loss: ${loss < 0.001 ? loss.toExponential(1) : loss.toFixed(3)}.`}`);
      setText(size, ` · ${own.parameters} parameters`);
      setText(why, frame.problem.d === 1 ? network.one : network.two);
      canvas.setAttribute("aria-label", `${network.title}: points and field. ${own.words}`);
    }
  }

  destroy() {
    this.stage.end();
    clearTimeout(this.sending);
    this.polling.end();
    this.node.remove();
  }
}

export function mount(element, data) {
  const playground = new Playground(element, data);
  element.__playground = { frame: () => playground.frame, t: () => playground.t, drawn: () => playground.drawn,
    words: (name) => playground.frame?.networks.find((network) => network.name === name)?.words ?? "" };
  return { update() {}, destroy() { playground.destroy(); delete element.__playground; } };
}
