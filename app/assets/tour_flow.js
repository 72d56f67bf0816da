// Step 1: points of two classes that a vector field carries apart.
// data = { flow: { h: (T, B, 2), label: (B), boundary: [w1, w2, b], places: (N, 2), rates: (N, 2) } }
import { classColour } from "./colours.js";
import { axes } from "./player_draw.js";
import { arrow, at, dot, line, path } from "./tour_draw.js";

const ARROW = 22;  // pixels of the longest arrow

// The smallest and largest value of a coordinate at any time, with some room.
function ends(h, i) {
  const values = h.flatMap((frame) => frame.map((point) => point[i])), low = Math.min(...values), high = Math.max(...values);
  return [low - 0.07 * (high - low), high + 0.07 * (high - low)];
}

export const FLOW = {
  choices: () => null,
  height: (width) => Math.min(540, Math.max(320, 0.72 * width)),

  draw(g, w, h, { flow }, { t }, theme) {
    const box = { x: 58, y: 8, w: w - 68, h: h - 52 }, [xs, ys] = [ends(flow.h, 0), ends(flow.h, 1)];
    const { X, Y } = axes(g, box, xs, ys, theme, ["First coordinate of the state (h₁)", "Second coordinate (h₂)"]);
    g.save();
    g.beginPath();
    g.rect(box.x, box.y, box.w, box.h);
    g.clip();
    const fastest = Math.max(...flow.rates.map(([a, b]) => Math.hypot(a, b)));
    for (const [n, [x, y]] of flow.places.entries()) {
      const [dx, dy] = flow.rates[n].map((v) => v / fastest * ARROW);
      arrow(g, X(x), Y(y), dx, -dy, theme.ink);
    }
    const [a, b, c] = flow.boundary, cut = Math.abs(b) > Math.abs(a) ? xs.map((x) => [X(x), Y(-(a * x + c) / b)]) : ys.map((y) => [X(-(b * y + c) / a), Y(y)]);
    line(g, cut, theme.ink, 1.5, 0.9, [6, 5]);
    const now = at(flow.h, t);
    for (const [p, k] of flow.label.entries()) line(g, path(flow.h, t, p).map(([, v]) => [X(v[0]), Y(v[1])]), classColour(k), 1.2, 0.35);
    for (const [p, k] of flow.label.entries()) dot(g, X(now(p, 0)), Y(now(p, 1)), 4.5, classColour(k), theme.paper, 1);
    g.restore();
  },

  words({ flow }, { t }) {
    const now = at(flow.h, t), [a, b, c] = flow.boundary;
    const right = flow.label.filter((k, p) => (a * now(p, 0) + b * now(p, 1) + c > 0) === (k === 1)).length;
    return `At t = ${t.toFixed(2)}, ${right} of ${flow.label.length} points are on their class's side of the dashed line. Arrows: the direction and speed f at that place.`;
  },
};
