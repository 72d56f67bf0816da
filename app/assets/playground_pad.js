// A pad on which paths are drawn with the mouse, a finger or a pen; examples can be chosen without one.
import { classColour } from "./colours.js";
import { axes } from "./player_draw.js";
import { make } from "./theme.js";
import { dot, line } from "./tour_draw.js";

const REACH = 1.6, MOST_STROKES = 8, MOST_PLACES = 150;
const CLOSE = 4;  // pixels between two places of a path
const SHORTEST = 0.15;

export class Pad {
  // drawn(strokes) is called after every change, with at least one path; wake() asks for a new picture.
  constructor(examples, drawn, wake) {
    this.strokes = examples[0].strokes;
    this.current = null;
    this.drawn = drawn;
    this.wake = wake;
    this.canvas = make("canvas", { tabIndex: -1, role: "img", "aria-label": "Drawing area. Choose an example below it to use the keyboard." });
    this.canvas.addEventListener("pointerdown", (event) => this.begin(event));
    this.canvas.addEventListener("pointermove", (event) => this.go(event));
    for (const name of ["pointerup", "pointercancel"]) this.canvas.addEventListener(name, () => this.end());
    const button = (title, act) => make("button", { type: "button", on: { click: act } }, title);
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
    const round = (v) => Math.round(Math.min(Math.max(v, -REACH), REACH) * 1000) / 1000;
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
    const path = this.current ?? [];
    this.current = null;
    const length = path.slice(1).reduce((sum, [x, y], n) => sum + Math.hypot(x - path[n][0], y - path[n][1]), 0);
    if (length >= SHORTEST) this.set([...this.strokes, path]);
    this.wake();
  }

  draw(g, w, h, theme) {
    const side = Math.min(w - 70, h - 50);
    this.box = { x: 60, y: 8, w: side, h: side };
    const { X, Y } = axes(g, this.box, [-REACH, REACH], [-REACH, REACH], theme, ["First coordinate (h₁)", "Second coordinate (h₂)"]);
    for (const [k, stroke] of [...this.strokes, ...(this.current ? [this.current] : [])].entries()) {
      const places = stroke.map(([x, y]) => [X(x), Y(y)]);
      line(g, places, classColour(k), 2.5, 0.8);
      dot(g, ...places[0], 5, classColour(k), theme.paper);
      dot(g, ...places.at(-1), 8, null, classColour(k), 2);
    }
  }
}
