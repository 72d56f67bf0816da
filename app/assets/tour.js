// A picture of the tour that follows a time t: play, drag t, choose what is shown.
//
//   mount(element, data) → { update(data), destroy() }
//   data = { kind: "flow" | "swap" | "attend", startAt, row: the row that is marked first, …what the picture draws }
//
// A picture has decoded(data), if it has arrays in base64; choices(data) → { label, names, colours } or null; rows(data) → { label, count } or null; height(width);
// draw(g, w, h, data, state, theme), which may return areas that can be pointed at; words(data, state) → a sentence; and, where
// time has a unit, timeText(data, t).
import { onCanvas, Stage } from "./stage.js";
import { button, clamp, make, setText, slider } from "./theme.js";
import { ATTEND, FLOW, SWAP } from "./tour_pictures.js";

const PICTURES = { flow: FLOW, swap: SWAP, attend: ATTEND };
const PASS_SECONDS = 4;  // to play all of t

class Picture {
  constructor(element, data) {
    this.state = { t: data.startAt ?? 0, choice: 0, row: data.row ?? 0 };
    this.build(element);
    this.stage = new Stage(this.node, (seconds) => this.advance(seconds), () => this.paint(), true);
    this.update(data);
  }

  build(element) {
    this.button = button("", () => this.play(!this.stage.playing), { className: "play" });
    this.time = slider("Time (t)", 0, 1, 0.005, (t) => { this.play(false); this.set({ t }); });
    this.timeText = make("output");
    this.row = slider("Coordinate (i)", 1, 1, 1, (i) => this.set({ row: i - 1 }));
    this.rowText = make("output");
    this.rowLine = make("label", { className: "slider row", hidden: true }, "Coordinate (i)", this.row, this.rowText);
    this.choices = make("div", { className: "choices", role: "group", hidden: true });
    const pointed = (event) => { if (event.type === "pointerdown" || event.buttons || event.pointerType === "mouse") this.point(event); };
    this.canvas = make("canvas", { role: "img", on: { pointerdown: pointed, pointermove: pointed } });
    this.words = make("p", "words");
    this.node = make("div", "ace ace-tour", this.choices,
      make("div", "line", this.button, make("label", "slider", "Time (t)", this.time, this.timeText)), this.rowLine,
      make("div", "frame", this.canvas), this.words);
    element.append(this.node);
  }

  set(values) {
    Object.assign(this.state, values);
    this.stage.wake();
  }

  update(data) {
    this.picture = PICTURES[data.kind];
    this.data = this.picture.decoded?.(data) ?? data;
    const choices = this.picture.choices(data), rows = this.picture.rows?.(data);
    this.choices.hidden = !choices;
    if (choices) {
      this.state.choice = clamp(this.state.choice, 0, choices.names.length - 1);
      this.choices.setAttribute("aria-label", choices.label);
      this.choices.replaceChildren(make("span", "", choices.label), ...choices.names.map((name, i) => {
        const node = button(name, () => this.set({ choice: i }));
        if (choices.colours) node.style.setProperty("--class", choices.colours[i]);
        return node;
      }));
    }
    this.rowLine.hidden = !rows;
    if (rows) {
      this.row.max = String(rows.count);
      this.state.row = clamp(this.state.row, 0, rows.count - 1);
    }
    this.stage.wake();
  }

  point(event) {
    const row = this.picture.point?.(event.offsetX, event.offsetY, this.areas) ?? this.state.row;
    if (row !== this.state.row) this.set({ row });
  }

  play(on) {
    if (on && this.state.t >= 1) this.state.t = 0;
    this.stage.play(on);
  }

  advance(seconds) {
    this.state.t = Math.min(1, this.state.t + seconds / PASS_SECONDS);
    if (this.state.t >= 1) this.play(false);
  }

  paint() {
    const { state, data, picture } = this;
    setText(this.button, this.stage.playing ? "❚❚ Pause" : "▶ Play");
    setText(this.timeText, picture.timeText?.(data, state.t) ?? state.t.toFixed(2));
    setText(this.rowText, String(state.row + 1));
    this.time.value = String(state.t);
    this.row.value = String(state.row + 1);
    for (const [i, button] of [...this.choices.querySelectorAll("button")].entries()) button.setAttribute("aria-pressed", String(i === state.choice));
    this.areas = onCanvas(this.canvas, (width) => picture.height(width), (g, w, h) => picture.draw(g, w, h, data, state, this.stage.theme));
    const words = picture.words(data, state);
    setText(this.words, words);
    for (const [node, name] of [[this.canvas, "aria-label"], [this.time, "aria-valuetext"], [this.row, "aria-valuetext"]]) {
      if (node.getAttribute(name) !== words) node.setAttribute(name, words);  // what is shown at t, for screen readers
    }
  }

  destroy() {
    this.stage.end();
    this.node.remove();
  }
}

export function mount(element, data) {
  const picture = new Picture(element, data);
  element.__tour = { state: () => ({ ...picture.state }), words: () => picture.words.textContent, kind: () => picture.data.kind };
  return { update: (next) => picture.update(next), destroy: () => { picture.destroy(); delete element.__tour; } };
}
