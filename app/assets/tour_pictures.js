// The pictures of the tour's steps, and drawing that they share with the playground.
import { classColour, scratch, viridis } from "./colours.js";
import { axes, countTicks, inside, number, text } from "./player_draw.js";
import { bytes } from "./player_run.js";

// h at a time between frames: at(frames, t)(p, i) interpolates coordinate i of point p.
export function at(frames, t) {
  const place = Math.min(Math.max(t, 0), 1) * (frames.length - 1), low = Math.min(Math.floor(place), frames.length - 2), part = place - low;
  return (p, i) => frames[low][p][i] + (frames[low + 1][p][i] - frames[low][p][i]) * part;
}

// The path of a point from t = 0 to t, as [[t, h], …].
export function path(frames, t, p) {
  const last = Math.floor(t * (frames.length - 1) + 1e-9), now = at(frames, t);
  const found = frames.slice(0, last + 1).map((frame, f) => [f / (frames.length - 1), frame[p]]);
  return [...found, [t, frames[0][p].map((_, i) => now(p, i))]];
}

export function line(g, points, colour, width = 2, alpha = 1, dash = []) {
  g.strokeStyle = colour;
  g.lineWidth = width;
  g.globalAlpha = alpha;
  g.lineJoin = g.lineCap = "round";
  g.setLineDash(dash);
  g.beginPath();
  for (const [x, y] of points) g.lineTo(x, y);
  g.stroke();
  g.setLineDash([]);
  g.globalAlpha = 1;
}

export function dot(g, x, y, radius, fill, stroke, width = 1.5) {
  g.beginPath();
  g.arc(x, y, radius, 0, 7);
  if (fill) { g.fillStyle = fill; g.fill(); }
  g.strokeStyle = stroke;
  g.lineWidth = width;
  g.stroke();
}

// An arrow from (x, y) by (dx, dy).
export function arrow(g, x, y, dx, dy, colour) {
  const length = Math.hypot(dx, dy);
  if (length < 1) return;
  const [ux, uy] = [dx / length, dy / length], head = Math.min(5, length);
  line(g, [[x, y], [x + dx, y + dy]], colour, 1.2, 0.55);
  line(g, [[x + dx - head * (ux + 0.6 * uy), y + dy - head * (uy - 0.6 * ux)], [x + dx, y + dy],
    [x + dx - head * (ux - 0.6 * uy), y + dy - head * (uy + 0.6 * ux)]], colour, 1.2, 0.55);
}

// Draw on a canvas of a width and height in CSS pixels; return what draw(g, width, height) returns.
export function onCanvas(canvas, width, height, draw) {
  const ratio = window.devicePixelRatio || 1, [w, h] = [Math.round(width * ratio), Math.round(height * ratio)], g = canvas.getContext("2d");
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  canvas.style.height = `${height}px`;
  g.setTransform(1, 0, 0, 1, 0, 0);
  g.clearRect(0, 0, w, h);
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  return draw(g, width, height);
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
    clipped(g, box, () => {
      const fastest = Math.max(...flow.rates.map(([a, b]) => Math.hypot(a, b)));
      for (const [n, [x, y]] of flow.places.entries()) {
        const [dx, dy] = flow.rates[n].map((v) => v / fastest * LONGEST_ARROW);
        arrow(g, X(x), Y(y), dx, -dy, theme.ink);
      }
      const [a, b, c] = flow.boundary, cut = Math.abs(b) > Math.abs(a) ? xs.map((x) => [X(x), Y(-(a * x + c) / b)]) : ys.map((y) => [X(-(b * y + c) / a), Y(y)]);
      line(g, cut, theme.ink, 1.5, 0.9, [6, 5]);
      const now = at(flow.h, t);
      for (const [p, k] of flow.label.entries()) line(g, path(flow.h, t, p).map(([, v]) => [X(v[0]), Y(v[1])]), classColour(k), 1.2, 0.35);
      for (const [p, k] of flow.label.entries()) dot(g, X(now(p, 0)), Y(now(p, 1)), 4.5, classColour(k), theme.paper, 1);
    });
  },

  words({ flow }, { t }) {
    const now = at(flow.h, t), [a, b, c] = flow.boundary;
    const right = flow.label.filter((k, p) => (a * now(p, 0) + b * now(p, 1) + c > 0) === (k === 1)).length;
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
    const { h: frames } = swaps[choice], wide = w >= NARROW, plane = frames[0][0].length > 1, now = at(frames, t);
    const left = { x: 52, y: 28, w: wide ? w * 0.5 - 70 : w - 64, h: wide ? h - 76 : h / 2 - 74 };
    const right = wide ? { ...left, x: w * 0.5 + 52, w: w * 0.5 - 66 } : { ...left, y: h / 2 + 28 };
    const most = Math.max(1, ...swaps.flatMap((s) => s.h.flatMap((f) => f.map((p) => Math.abs(p[1] ?? 0))))) * 1.1;
    text(g, "The first coordinate over time", left.x, 10, { colour: theme.ink });
    const over = axes(g, left, [0, 1], [-ROOM, ROOM], theme, ["Time (t)", ""]);
    text(g, "First coordinate (h₁)", 10, left.y + left.h / 2, { align: "center", colour: theme.ink, turn: true });
    text(g, plane ? "All of the state at time t: a plane" : "All of the state at time t: a line", right.x, right.y - 18, { colour: theme.ink });
    const space = axes(g, right, [-most, most], [-ROOM, ROOM], theme, [plane ? "Appended coordinate (h₂)" : "There is no second coordinate", ""]);
    text(g, "First coordinate (h₁)", right.x - 42, right.y + right.h / 2, { align: "center", colour: theme.ink, turn: true });
    if (!plane) line(g, [[space.X(0), right.y], [space.X(0), right.y + right.h]], theme.ink, 1.5, 0.6);
    for (const p of [0, 1]) {
      const colour = classColour(p), goal = -frames[0][p][0], steps = path(frames, t, p);
      dot(g, over.X(1), over.Y(goal), 8, null, colour, 2.5);
      line(g, steps.map(([s, v]) => [over.X(s), over.Y(v[0])]), colour, 2.5);
      line(g, steps.map(([, v]) => [space.X(v[1] ?? 0), space.Y(v[0])]), colour, 2.5, 0.6);
    }
    for (const p of [0, 1]) {
      dot(g, over.X(t), over.Y(now(p, 0)), 5.5, classColour(p), theme.paper);
      dot(g, space.X(plane ? now(p, 1) : 0), space.Y(now(p, 0)), 6.5, classColour(p), theme.paper);
    }
  },

  words({ swaps }, { t, choice }) {
    const { h, error } = swaps[choice], now = at(h, t), gap = now(1, 0) - now(0, 0);
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

const decoded = new WeakMap();  // data → arrays
function arrays(attend) {
  let found = decoded.get(attend);
  if (!found) {
    found = { h: new Float32Array(bytes(attend.h).buffer), attended: new Float32Array(bytes(attend.attended).buffer), weights: bytes(attend.weights) };
    decoded.set(attend, found);
  }
  return found;
}

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
  choices: ({ attend }) => ({ label: attend.subject, names: attend.names, colours: attend.colours }),
  rows: ({ attend }) => ({ count: attend.size }),
  height(width) {
    const bars = this.bars(width);
    return MARGIN.top + bars + GAP + this.side(width) + MARGIN.bottom;
  },
  bars: (width) => Math.min(SIDE.high, Math.max(SIDE.low, width / 5)),
  side(width) { return Math.min(400, width - MARGIN.left - MARGIN.right - GAP - this.bars(width)); },

  draw(g, w, h, { attend }, { t, choice, row }, theme) {
    const { size, samples, top, reach } = attend, own = arrays(attend), f = frameOf(attend, t), start = (f * samples + choice) * size;
    const bars = this.bars(w), side = this.side(w), cell = side / size;
    const map = { x: MARGIN.left, y: MARGIN.top + bars + GAP, w: side, h: side };
    const above = { x: map.x, y: MARGIN.top, w: side, h: bars }, beside = { x: map.x + side + GAP, y: map.y, w: bars, h: side };
    const weights = own.weights.subarray(start * size, (start + size) * size), { cells, put } = scratch(size, size);
    for (let n = 0; n < size * size; n++) cells[n] = theme.levels[weights[n]];
    g.imageSmoothingEnabled = false;
    g.drawImage(put(), map.x, map.y, side, side);
    g.strokeStyle = theme.line;
    g.lineWidth = 1;
    for (const box of [map, above, beside]) g.strokeRect(box.x - 0.5, box.y - 0.5, box.w + 1, box.h + 1);
    const Y = (v) => above.y + above.h / 2 - v / reach * above.h / 2, X = (v) => beside.x + beside.w / 2 + v / reach * beside.w / 2;
    const accent = (v) => v > 0 ? "#e0681c" : "#2462d6";
    for (let j = 0; j < size; j++) {
      const v = own.h[start + j], u = own.attended[start + j], most = Math.max(...weights.subarray(row * size, (row + 1) * size));
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
    for (const v of [-1, 0, 1]) text(g, String(Number((v * reach).toPrecision(2))).replace("-", "−"), above.x - 6, above.y + above.h / 2 * (1 - 0.9 * v), { ...faint, align: "right" });
    for (const v of [-1, 0, 1]) text(g, String(Number((v * reach).toPrecision(2))).replace("-", "−"), beside.x + beside.w / 2 * (1 + 0.8 * v), beside.y + beside.h + 6, { ...faint, align: "center", base: "top" });
    text(g, "Attended (h′)", beside.x + beside.w, beside.y + beside.h + 24, { ...ink, align: "right", base: "top" });
    countTicks(g, map, size, true, theme);
    countTicks(g, map, size, false, theme);
    text(g, "From coordinate (j)", map.x, map.y + map.h + 24, { ...ink, base: "top" });
    text(g, "Into coordinate (i)", 10, map.y + map.h / 2, { ...ink, align: "center", turn: true });
    const [w, x] = [12, beside.x + 8];
    for (let n = 0; n < 64; n++) {
      g.fillStyle = `rgb(${viridis(n / 63).join(" ")})`;
      g.fillRect(x, above.y + above.h - (n + 1) * above.h / 64, w, above.h / 64 + 0.5);
    }
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
    const { size, samples, top } = attend, own = arrays(attend), start = (frameOf(attend, t) * samples + choice) * size;
    const weights = [...own.weights.subarray((start + row) * size, (start + row + 1) * size)].map((v) => v / 255 * top);
    const most = weights.map((v, j) => [v, j]).sort((a, b) => b[0] - a[0]).slice(0, 3).map(([v, j]) => `${Math.round(100 * v)}% h${sub(j + 1)}`);
    const signed = (v) => (Math.abs(v) < 0.005 ? 0 : v).toFixed(2).replace("-", "−");
    return `At ${attend.time ? "" : "t = "}${this.timeText({ attend }, t)}, coordinate ${row + 1} is ${signed(own.h[start + row])} in h and ${signed(own.attended[start + row])} in h′, which is ${most.join(" + ")} + the rest.`;
  },
};

const sub = (n) => String(n).replace(/\d/g, (d) => "₀₁₂₃₄₅₆₇₈₉"[d]);
