// The pictures of the tour's steps, and drawing that they share with the playground.
import { classColour, scratch } from "./colours.js";
import { axes, colours, countTicks, dot, inside, number, path, text } from "./player_draw.js";
import { bytes, floats } from "./player_run.js";

// Arrays are { shape, data }: element [i, j, …].
export function value({ shape, data }, ...index) {
  let at = 0;
  for (const [n, size] of shape.entries()) at = at * size + (index[n] ?? 0);
  return data[at];
}

// The value at a time between two frames; the first index of the array is time.
export function atTime(array, t, ...rest) {
  const place = t * (array.shape[0] - 1), low = Math.min(Math.floor(place), array.shape[0] - 2), part = place - low;
  return value(array, low, ...rest) * (1 - part) + value(array, low + 1, ...rest) * part;
}

// Places (x, y) from t = 0 to t, one for each frame of `array` and one at t.
export function course({ shape: [count] }, t, place) {
  const last = Math.floor(t * (count - 1) + 1e-9);
  return [...Array.from({ length: last + 1 }, (_, k) => place(k / (count - 1))), place(t)];
}

export function stroke(g, drawn, colour, width, alpha) {
  Object.assign(g, { strokeStyle: colour, lineWidth: width, globalAlpha: alpha });
  g.stroke(drawn);
  g.globalAlpha = 1;
}

// Arrows at places { x, y, moves: [[dx, dy], …] }, a colour for each move; those of a colour are one path, which draws fast.
export function arrows(g, places, colours, alpha) {
  for (const [s, colour] of colours.entries()) {
    const drawn = new Path2D();
    for (const { x, y, moves } of places) {
      const [dx, dy] = moves[s], length = Math.max(Math.hypot(dx, dy), 1), head = Math.min(4.5, 0.5 * length);
      const [ux, uy, tx, ty] = [dx / length, dy / length, x + dx / 2, y + dy / 2];
      drawn.moveTo(x - dx / 2, y - dy / 2);
      drawn.lineTo(tx, ty);
      drawn.moveTo(tx - head * (ux + 0.6 * uy), ty - head * (uy - 0.6 * ux));
      drawn.lineTo(tx, ty);
      drawn.lineTo(tx - head * (ux - 0.6 * uy), ty - head * (uy + 0.6 * ux));
    }
    stroke(g, drawn, colour, 1.2, alpha);
  }
}

// Draw inside a box only.
export function clipped(g, box, draw) {
  g.save();
  g.beginPath();
  g.rect(box.x, box.y, box.w, box.h);
  g.clip();
  draw();
  g.restore();
}

// Step 1: points of two classes that a vector field carries apart.
// data = { flow: { h: (T, B, 2), label: (B), boundary: [w1, w2, b], places: (N, 2), rates: (N, 2) } }

const LONGEST_ARROW = 22;  // pixels of the longest arrow

const nested = (frames) => ({ shape: [frames.length, frames[0].length, frames[0][0].length], data: frames.flat(2) });

// The smallest and largest value of a coordinate at any time, with some room.
function ends({ data }, i) {
  const values = data.filter((_, n) => n % 2 === i), low = Math.min(...values), high = Math.max(...values);
  return [low - 0.07 * (high - low), high + 0.07 * (high - low)];
}

export const FLOW = {
  choices: () => null,
  height: (width) => Math.min(540, Math.max(320, 0.72 * width)),

  draw(g, w, h, { flow }, { t }, theme) {
    const box = { x: 58, y: 8, w: w - 68, h: h - 52 }, state = nested(flow.h), [xs, ys] = [ends(state, 0), ends(state, 1)];
    const { X, Y } = axes(g, box, xs, ys, theme, ["First coordinate of the state (h₁)", "Second coordinate (h₂)"]);
    clipped(g, box, () => {
      const fastest = Math.max(...flow.rates.map(([a, b]) => Math.hypot(a, b)));
      arrows(g, flow.places.map(([x, y], n) => {
        const [dx, dy] = flow.rates[n].map((v) => v / fastest * LONGEST_ARROW);
        return { x: X(x) + dx / 2, y: Y(y) - dy / 2, moves: [[dx, -dy]] };
      }), [theme.ink], 0.55);
      const [a, b, c] = flow.boundary, cut = Math.abs(b) > Math.abs(a) ? xs.map((x) => [X(x), Y(-(a * x + c) / b)]) : ys.map((y) => [X(-(b * y + c) / a), Y(y)]);
      path(g, cut, theme.ink, 1.5, 0.9, [6, 5]);
      const place = (p) => (s) => [X(atTime(state, s, p, 0)), Y(atTime(state, s, p, 1))];
      for (const [p, k] of flow.label.entries()) path(g, course(state, t, place(p)), classColour(k), 1.2, 0.35);
      for (const [p, k] of flow.label.entries()) dot(g, ...place(p)(t), 4.5, classColour(k), theme.panel, 1);
    });
  },

  words({ flow }, { t }) {
    const state = nested(flow.h), [a, b, c] = flow.boundary;
    const right = flow.label.filter((k, p) => (a * atTime(state, t, p, 0) + b * atTime(state, t, p, 1) + c > 0) === (k === 1)).length;
    return `At t = ${t.toFixed(2)}, ${right} of ${flow.label.length} points are on their class's side of the dashed line. Arrows: the direction and speed f at that place.`;
  },
};

// Step 2: two points that have to swap places, on a line and with one more dimension.
// data = { swaps: [{ name, h: (T, 2, d), error }] }

const NARROW = 560, ROOM = 1.35;  // the plots stand below each other in less than NARROW pixels; h₁ reaches ±ROOM

export const SWAP = {
  choices: ({ swaps }) => ({ label: "State", names: swaps.map(({ name }) => name) }),
  height: (width) => width < NARROW ? 600 : 360,

  draw(g, w, h, { swaps }, { t, choice }, theme) {
    const state = nested(swaps[choice].h), wide = w >= NARROW, plane = state.shape[2] > 1, first = (s, p) => atTime(state, s, p, 0);
    const second = (s, p) => plane ? atTime(state, s, p, 1) : 0;
    const left = { x: 52, y: 28, w: wide ? w * 0.5 - 70 : w - 64, h: wide ? h - 76 : h / 2 - 74 };
    const right = wide ? { ...left, x: w * 0.5 + 52, w: w * 0.5 - 66 } : { ...left, y: h / 2 + 28 };
    const most = Math.max(1, ...swaps.flatMap((s) => s.h.flatMap((f) => f.map((p) => Math.abs(p[1] ?? 0))))) * 1.1;
    text(g, "The first coordinate over time", left.x, 10, { colour: theme.ink });
    const over = axes(g, left, [0, 1], [-ROOM, ROOM], theme, ["Time (t)", "First coordinate (h₁)"]);
    text(g, plane ? "All of the state at time t: a plane" : "All of the state at time t: a line", right.x, right.y - 18, { colour: theme.ink });
    const space = axes(g, right, [-most, most], [-ROOM, ROOM], theme, [plane ? "Appended coordinate (h₂)" : "There is no second coordinate", "First coordinate (h₁)"],
      { left: right.x - 42 });
    if (!plane) path(g, [[space.X(0), right.y], [space.X(0), right.y + right.h]], theme.ink, 1.5, 0.6);
    for (const p of [0, 1]) {
      const colour = classColour(p);
      dot(g, over.X(1), over.Y(-first(0, p)), 8, null, colour, 2.5);
      path(g, course(state, t, (s) => [over.X(s), over.Y(first(s, p))]), colour, 2.5);
      path(g, course(state, t, (s) => [space.X(second(s, p)), space.Y(first(s, p))]), colour, 2.5, 0.6);
    }
    for (const p of [0, 1]) {
      dot(g, over.X(t), over.Y(first(t, p)), 5.5, classColour(p), theme.panel);
      dot(g, space.X(second(t, p)), space.Y(first(t, p)), 6.5, classColour(p), theme.panel);
    }
  },

  words({ swaps }, { t, choice }) {
    const { h, error } = swaps[choice], state = nested(h), gap = atTime(state, t, 1, 0) - atTime(state, t, 0, 0);
    const order = gap > 0.005 ? "orange is above blue" : gap < -0.005 ? "orange is below blue" : "orange is a little above blue, closer than the picture shows";
    return `At t = ${t.toFixed(2)}, ${order} in h₁. Rings: where each has to arrive. Mean squared error at t = 1 after training: ${error.toFixed(2)}.`;
  },
};

// Step 3: attention re-weighs the state: h above the columns of softmax(a), h′ beside its rows.
// data = { attend: { frames, samples, subject, size, h, attended, weights, top, reach, names, colours, time } }: h and attended are float32
// (frames, samples, size) in base64, weights uint8 (frames, samples, size, size) from 0 to `top`; h reaches ±reach.

const SIDE = { low: 84, high: 120 };  // pixels of the bars
const MARGIN = { left: 50, right: 12, top: 24, bottom: 40 };
const GAP = 10;

function frameOf({ frames }, t) { return Math.round(t * (frames - 1)); }

// A bar from zero along one axis.
function bar(g, from, to, across, thick, upright, colour, alpha) {
  g.fillStyle = colour;
  g.globalAlpha = alpha;
  const [start, length] = [Math.min(from, to), Math.abs(to - from)];
  if (upright) g.fillRect(across, start, thick, length); else g.fillRect(start, across, length, thick);
  g.globalAlpha = 1;
}

export const ATTEND = {
  decoded: ({ attend, ...more }) => ({ ...more, attend: { ...attend, h: floats(attend.h), attended: floats(attend.attended), weights: bytes(attend.weights) } }),
  choices: ({ attend }) => ({ label: attend.subject, names: attend.names, colours: attend.colours }),
  rows: ({ attend }) => ({ count: attend.size }),
  height(width) {
    const bars = this.bars(width);
    return MARGIN.top + bars + GAP + this.side(width) + MARGIN.bottom;
  },
  bars: (width) => Math.min(SIDE.high, Math.max(SIDE.low, width / 5)),
  side(width) { return Math.min(400, width - MARGIN.left - MARGIN.right - GAP - this.bars(width)); },

  draw(g, w, h, { attend }, { t, choice, row }, theme) {
    const { size, samples, top, reach } = attend, f = frameOf(attend, t), start = (f * samples + choice) * size;
    const bars = this.bars(w), side = this.side(w), cell = side / size;
    const map = { x: MARGIN.left, y: MARGIN.top + bars + GAP, w: side, h: side };
    const above = { x: map.x, y: MARGIN.top, w: side, h: bars }, beside = { x: map.x + side + GAP, y: map.y, w: bars, h: side };
    const weights = attend.weights.subarray(start * size, (start + size) * size), { cells, put } = scratch(size, size);
    for (let n = 0; n < size * size; n++) cells[n] = theme.levels[weights[n]];
    g.imageSmoothingEnabled = false;
    g.drawImage(put(), map.x, map.y, side, side);
    g.strokeStyle = theme.line;
    g.lineWidth = 1;
    for (const box of [map, above, beside]) g.strokeRect(box.x - 0.5, box.y - 0.5, box.w + 1, box.h + 1);
    const Y = (v) => above.y + above.h / 2 - v / reach * above.h / 2, X = (v) => beside.x + beside.w / 2 + v / reach * beside.w / 2;
    const accent = (v) => v > 0 ? "#e0681c" : "#2462d6";
    for (let j = 0; j < size; j++) {
      const v = attend.h[start + j], u = attend.attended[start + j], most = Math.max(...weights.subarray(row * size, (row + 1) * size));
      bar(g, Y(0), Y(v), above.x + j * cell + 1, Math.max(cell - 2, 1), true, accent(v), 0.3 + 0.7 * weights[row * size + j] / most);
      bar(g, X(0), X(u), beside.y + j * cell + 1, Math.max(cell - 2, 1), false, accent(u), j === row ? 1 : 0.4);
    }
    g.strokeStyle = theme.ink;
    g.globalAlpha = 0.4;
    g.beginPath();
    g.moveTo(above.x, Y(0)); g.lineTo(above.x + above.w, Y(0));
    g.moveTo(X(0), beside.y); g.lineTo(X(0), beside.y + beside.h);
    g.stroke();
    g.globalAlpha = 1;
    g.lineWidth = 2;
    g.strokeRect(map.x - 1, map.y + row * cell, beside.x + beside.w - map.x + 2, cell);
    this.label(g, { map, above, beside }, attend, theme);
    return { map, beside, cell };
  },

  label(g, { map, above, beside }, { size, top, reach }, theme) {
    const ink = { colour: theme.ink }, faint = { ...ink, faint: true };
    text(g, "State (h)", above.x, 10, ink);
    for (const v of [-1, 0, 1]) {
      const words = String(Number((v * reach).toPrecision(2))).replace("-", "−");
      text(g, words, above.x - 6, above.y + above.h / 2 * (1 - 0.9 * v), { ...faint, align: "right" });
      text(g, words, beside.x + beside.w / 2 * (1 + 0.8 * v), beside.y + beside.h + 6, { ...faint, align: "center", base: "top" });
    }
    text(g, "Attended (h′)", beside.x + beside.w, beside.y + beside.h + 24, { ...ink, align: "right", base: "top" });
    countTicks(g, map, size, true, theme);
    countTicks(g, map, size, false, theme);
    text(g, "From coordinate (j)", map.x, map.y + map.h + 24, { ...ink, base: "top" });
    text(g, "Into coordinate (i)", 10, map.y + map.h / 2, { ...ink, align: "center", turn: true });
    const scale = { x: beside.x + 8, y: above.y, w: 12, h: above.h }, { x, w } = scale;
    colours(g, scale, theme.levels, theme);
    for (const part of [0, 0.5, 1]) text(g, `${Math.round(100 * part * top)}%`, x + w + 5, above.y + 5 + (above.h - 10) * (1 - part), faint);
    text(g, "Weight", x, 10, ink);
  },

  point(x, y, areas) {
    const box = areas && [areas.map, areas.beside].find((b) => inside(x, y, b));
    return box ? Math.floor((y - box.y) / areas.cell) : null;
  },

  // The time t from 0 to 1 in the unit of the run, as in the player, or t itself.
  timeText({ attend: { time } }, t) { return time ? `${number(time.ends[0] + t * (time.ends[1] - time.ends[0]))} ${time.unit}` : t.toFixed(2); },

  words({ attend }, { t, choice, row }) {
    const { size, samples, top } = attend, start = (frameOf(attend, t) * samples + choice) * size;
    const weights = [...attend.weights.subarray((start + row) * size, (start + row + 1) * size)].map((v) => v / 255 * top);
    const most = weights.map((v, j) => [v, j]).sort((a, b) => b[0] - a[0]).slice(0, 3).map(([v, j]) => `${Math.round(100 * v)}% h${sub(j + 1)}`);
    const signed = (v) => (Math.abs(v) < 0.005 ? 0 : v).toFixed(2).replace("-", "−");
    return `At ${attend.time ? "" : "t = "}${this.timeText({ attend }, t)}, coordinate ${row + 1} is ${signed(attend.h[start + row])} in h and ${signed(attend.attended[start + row])} in h′, which is ${most.join(" + ")} + the rest.`;
  },
};

const sub = (n) => String(n).replace(/\d/g, (d) => "₀₁₂₃₄₅₆₇₈₉"[d]);
