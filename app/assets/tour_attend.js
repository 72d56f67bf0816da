// Step 3: attention re-weighs the state: h above the columns of softmax(a), h′ beside its rows.
// data = { attend: { frames, samples, subject, size, h, attended, weights, top, reach, names, colours, time } }: h and attended are float32
// (frames, samples, size) in base64, weights uint8 (frames, samples, size, size) from 0 to `top`; h reaches ±reach.
import { scratch, viridis } from "./colours.js";
import { countTicks, inside, number, text } from "./player_draw.js";
import { bytes } from "./player_run.js";

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
