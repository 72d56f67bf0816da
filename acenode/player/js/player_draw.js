// Drawing on a canvas: text, numbers, axes, colour bars, names of variables, maps side by side, and vectors over time.
import { fill, scratch } from "./colours.js";
import { clamp } from "./theme.js";

const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
const RUG = 6;  // height in pixels of the ticks that mark jumps
export const BAR = 76;  // width in pixels of a colour bar on the right

export const span = (n) => [...Array(n).keys()];

// The indices of all probes, the chosen one last, so that it is drawn over the others.
export const chosenLast = (count, chosen) => [...span(count).filter((p) => p !== chosen), ...(chosen < count ? [chosen] : [])];

export const inside = (x, y, box) => x >= box.x && y >= box.y && x < box.x + box.w && y < box.y + box.h;

export function number(v) {
  if (!Number.isFinite(v)) return "–";
  const size = Math.abs(v);
  return (size !== 0 && (size >= 1e4 || size < 1e-3) ? v.toExponential(1) : String(Number(v.toPrecision(3)))).replaceAll("-", "−");
}

// A share as a percentage, written as everywhere: 97.3%.
export const percent = (share, digits = 0) => Number.isFinite(share) ? `${(100 * share).toFixed(digits)}%` : "–";

// A weight, or another value, and its difference from t = 0.
export const weightLines = (now, initial, name = "weight") => [`${name} ${now.toFixed(4)}`, `since the start (t = 0): ${now > initial ? "+" : ""}${number(now - initial)}`];

// The number of a row or column, from one; a range if the map was averaged to a smaller size.
export function cellName(i, shown, full) {
  if (shown === full) return String(i + 1);
  return `${Math.floor(i * full / shown) + 1}–${Math.floor((i + 1) * full / shown)}`;
}

export const onlySome = (shown, total) => shown < total ? ` (first ${shown} of ${total})` : "";

// About `count` round numbers between two ends, at least two.
export function ticks(low, high, count) {
  const tries = [1, 1.5, 2.25, 4].map((more) => more * Math.max(count, 1));
  const enough = tries.find((many) => roundNumbers(low, high, many).length > 1);
  return roundNumbers(low, high, enough ?? count);
}

function roundNumbers(low, high, count) {
  const rough = (high - low) / Math.max(count, 1) || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((m) => m * power >= rough) ?? 10);
  const found = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step) found.push(Math.abs(v) < step / 1e6 ? 0 : v);
  return found;
}

export function text(g, words, x, y, { align = "left", base = "middle", colour, faint = false, turn = false, size = 12 } = {}) {
  g.save();
  g.font = `${size}px ${FONT}`;
  g.fillStyle = colour;
  g.globalAlpha = faint ? 0.72 : 1;
  g.textAlign = align;
  g.textBaseline = base;
  g.translate(x, y);
  if (turn) g.rotate(-Math.PI / 2);
  g.fillText(words, 0, 0);
  g.restore();
}

// Write numbers below a box, and the name of its horizontal axis.
function numbersBelow(g, box, X, values, label, theme) {
  for (const v of values) text(g, number(v), X(v), box.y + box.h + 8, { align: "center", base: "top", colour: theme.ink, faint: true });
  text(g, label, box.x + box.w / 2, box.y + box.h + 36, { align: "center", base: "bottom", colour: theme.ink });
}

// Draw axes with a grid; returns X and Y, which map data to pixels. `written` writes the numbers of the vertical axis, whose label
// is `left` pixels from the edge; `columns` and `rows` are the places of the numbers, and columns have lines if `grid` is true.
export function axes(g, box, xs, ys, theme, labels, { written = number, left = 8, columns = ticks(...xs, Math.max(box.w / 70, 3)),
  rows = ticks(...ys, box.h / 45), grid = true } = {}) {
  const X = (v) => box.x + (v - xs[0]) / (xs[1] - xs[0]) * box.w, Y = (v) => box.y + box.h - (v - ys[0]) / (ys[1] - ys[0]) * box.h;
  const lines = [...(grid ? columns.map((v) => [X(v), box.y, X(v), box.y + box.h]) : []), ...rows.map((v) => [box.x, Y(v), box.x + box.w, Y(v)])];
  Object.assign(g, { strokeStyle: theme.line, lineWidth: 1 });
  g.beginPath();
  for (const [x, y, right, below] of lines) {
    g.moveTo(x, y);
    g.lineTo(right, below);
  }
  g.stroke();
  for (const v of rows) text(g, written(v), box.x - 6, Y(v), { align: "right", colour: theme.ink, faint: true });
  numbersBelow(g, box, X, columns, labels[0], theme);
  text(g, labels[1], left, box.y + box.h / 2, { align: "center", colour: theme.ink, turn: true });
  return { X, Y };
}

// Draw a line through points [x, y].
export function path(g, points, colour, width = 1, alpha = 1, dash = []) {
  Object.assign(g, { strokeStyle: colour, lineWidth: width, globalAlpha: alpha, lineJoin: "round", lineCap: "round" });
  g.setLineDash(dash);
  g.beginPath();
  for (const [x, y] of points) g.lineTo(x, y);
  g.stroke();
  g.setLineDash([]);
  g.globalAlpha = 1;
}

export function dot(g, x, y, radius, fill, stroke, width = 1.5) {
  Object.assign(g, { fillStyle: fill ?? "transparent", strokeStyle: stroke, lineWidth: width });
  g.beginPath();
  g.arc(x, y, radius, 0, 7);
  g.fill();
  g.stroke();
}

// Ticks below a box whose horizontal axis is time, at the times of jumps.
export function rug(g, { y, h }, X, jumps, theme) {
  for (const x of jumps.map((t) => Math.round(X(t)) + 0.5)) path(g, [[x, y + h + 1], [x, y + h + 1 + RUG]], theme.ink, 1, 0.7);
}

// Draw the colours of a table from bottom to top.
export function colours(g, { x, y, w, h }, table, theme) {
  const { cells, put } = scratch(1, 256);
  for (let i = 0; i < 256; i++) cells[255 - i] = table[Math.round(i / 255 * (table.length - 1))];
  g.imageSmoothingEnabled = false;
  g.drawImage(put(), x, y, w, h);
  Object.assign(g, { strokeStyle: theme.line, lineWidth: 1 });
  g.strokeRect(x, y, w, h);
}

export function colourBar(g, w, h, table, low, high, theme) {
  const bar = { x: w - BAR + 8, y: 10, w: 12, h: h - 20 };
  colours(g, bar, table, theme);
  const digits = clamp(Math.ceil(-Math.log10((high - low) / 20 || 1)), 0, 4);
  const label = (v) => Math.max(Math.abs(low), Math.abs(high)) >= 1e4 || high - low < 1e-3 ? v.toExponential(0) : v.toFixed(digits);
  for (const part of [0, 0.25, 0.5, 0.75, 1]) {
    const y = clamp(bar.y + bar.h * (1 - part), bar.y + 5, bar.y + bar.h - 5);
    text(g, label(low + part * (high - low)).replaceAll("-", "−"), bar.x + bar.w + 4, y, { colour: theme.ink, faint: true });
  }
}

// Number the rows or columns of a map, as densely as there is room.
export function countTicks(g, box, count, across, theme, full = count) {
  const room = (across ? box.w : box.h) / count, every = Math.ceil(count / Math.max(1, Math.floor(count * room / (across ? 30 : 18))));
  for (let i = 0; i < count; i += every) tick(g, box, (i + 0.5) * room, String(Math.floor(i * full / count) + 1), across, false, theme);
}

// Names of variables beside and below a map: all of them as long as there is room for small letters.

const LETTER = 0.56, CAPITAL = 0.7;  // widths of average letters, as shares of the font's size
const LARGEST = 12, SMALLEST = 8, BETWEEN = 2;  // sizes of letters and the gap between lines, in pixels
const LONGEST = 76;  // pixels of a name

const widthOf = (name, size) => size * [...name].reduce((sum, letter) => sum + (letter === letter.toLowerCase() ? LETTER : CAPITAL), 0);

// A name that is too long loses letters in the middle, since the ends of names tell them apart.
export function shortened(name, pixels, size) {
  const letters = [...name], most = Math.max(3, Math.floor(letters.length * pixels / widthOf(name, size)));
  if (letters.length <= most) return name;
  const head = Math.ceil((most - 1) / 2);
  return `${letters.slice(0, head).join("")}…${letters.slice(letters.length - (most - 1 - head)).join("")}`;
}

// The pixels that names take up beside a map, or below it if they are turned.
export const nameRoom = (names) => clamp(Math.max(...names.map((name) => widthOf(name, LARGEST))), 20, LONGEST);

// True if some name is too long for a column of that many pixels.
export const turned = (names, column) => names.some((name) => widthOf(name, LARGEST) > Math.max(column - 6, 0));

// Write the names beside the rows of a map, or below its columns.
export function nameTicks(g, box, names, across, turn, theme) {
  const room = (across ? box.w : box.h) / names.length, lines = !across || turn;
  const size = lines ? clamp(Math.floor(room - BETWEEN), SMALLEST, LARGEST) : LARGEST;
  const every = lines ? Math.ceil((size + BETWEEN / 2) / room) : 1;
  for (let i = 0; i < names.length; i += every) tick(g, box, (i + 0.5) * room, shortened(names[i], LONGEST, size), across, turn, theme, size);
}

function tick(g, box, at, words, across, turn, theme, size = 12) {
  const style = { colour: theme.ink, faint: true, size };
  if (!across) text(g, words, box.x - 6, box.y + at, { ...style, align: "right" });
  else if (turn) text(g, words, box.x + at, box.y + box.h + 6, { ...style, align: "right", turn: true });
  else text(g, words, box.x + at, box.y + box.h + 5, { ...style, align: "center", base: "top" });
}

// Arrange `count` equal cells of one aspect ratio as large as they fit: returns their size and place(i).
export function tiling(count, aspect, w, h, gap, caption = 0) {
  let best = { columns: 1, width: 0 };
  for (let columns = 1; columns <= count; columns++) {
    const rows = Math.ceil(count / columns);
    const width = Math.min((w - gap * (columns - 1)) / columns, ((h - gap * (rows - 1)) / rows - caption) * aspect);
    if (width > best.width) best = { columns, width };
  }
  const width = Math.max(Math.floor(best.width), 1), height = Math.max(Math.floor(width / aspect), 1);
  const rows = Math.ceil(count / best.columns);
  const x = Math.max(0, (w - best.columns * (width + gap) + gap) / 2), y = Math.max(0, (h - rows * (height + gap + caption) + gap) / 2);
  return { width, height,
    place: (i) => ({ x: Math.round(x + i % best.columns * (width + gap)), y: Math.round(y + Math.floor(i / best.columns) * (height + gap + caption)) }) };
}

// Draw the channels of a frame side by side, each as a small map.
export function multiples(g, w, h, view, state, theme, name, { table, changed, gain }) {
  const { data, shape: [, P, C, H, W] } = view.block.arrays[name], nearest = view.run.frame(state.t).nearest, size = H * W;
  const tiles = tiling(C, W / H, w - 12 - BAR, h - 16, C > 36 ? 2 : 4), { cells, put } = scratch(W, H * C);
  const start = (nearest * P + state.probe) * C * size;
  fill(cells, data, start, changed ? state.probe * C * size : null, C * size, table, gain);
  const picture = put();
  g.imageSmoothingEnabled = false;
  g.strokeStyle = theme.line;
  g.lineWidth = 1;
  for (let c = 0; c < C; c++) {
    const { x, y } = tiles.place(c);
    g.drawImage(picture, 0, c * H, W, H, 8 + x, 8 + y, tiles.width, tiles.height);
    if (C <= 36) g.strokeRect(8 + x - 0.5, 8 + y - 0.5, tiles.width + 1, tiles.height + 1);
  }
  view[name] = { tiles, C, H, W };
}

// The channel, row and column under the pointer.
export function multiplesCell(x, y, drawn) {
  if (!drawn) return null;
  const { tiles, C, H, W } = drawn;
  for (let c = 0; c < C; c++) {
    const at = tiles.place(c), u = (x - 8 - at.x) / tiles.width, v = (y - 8 - at.y) / tiles.height;
    if (u >= 0 && u < 1 && v >= 0 && v < 1) return { c, i: Math.floor(v * H), j: Math.floor(u * W) };
  }
  return null;
}

// Draw a vector over time as one picture: coordinates down, t across. Each frame extends halfway to its neighbours.
export function overTime(g, w, h, view, theme, level, { table, bar, ends: [low, high] }, size, probe) {
  const { run } = view, { t } = run.meta, T = t.length, names = run.variables(), left = names ? 30 + nameRoom(names) : 44;
  const box = { x: left, y: 8, w: w - left - BAR - 6, h: h - 48 }, { cells, put } = scratch(T, size);
  for (let i = 0; i < size; i++) for (let f = 0; f < T; f++) cells[i * T + f] = table[level(f, i)];
  const ends = [t[0], t.at(-1)], X = (v) => box.x + (v - ends[0]) / (ends[1] - ends[0] || 1) * box.w;
  const edge = (f) => f === 0 ? box.x : f === T ? box.x + box.w : Math.round(X((t[f - 1] + t[f]) / 2)), picture = put();
  g.imageSmoothingEnabled = false;
  for (let f = 0; f < T; f++) if (edge(f + 1) > edge(f)) g.drawImage(picture, f, 0, 1, size, edge(f), box.y, edge(f + 1) - edge(f), box.h);
  rug(g, box, X, run.jumps(probe), theme);
  numbersBelow(g, box, (v) => X(v / run.real(1)), ticks(run.real(ends[0]), run.real(ends[1]), box.w / 60), run.timeLabel(), theme);
  if (names) nameTicks(g, box, names, false, false, theme);
  else countTicks(g, box, size, false, theme);
  text(g, names ? "Variable" : "Coordinate", 10, box.y + box.h / 2, { align: "center", colour: theme.ink, turn: true });
  colourBar(g, w, h - 30, bar, low, high, theme);
  return { ...box, size, X, frameAt: (x) => run.frame(ends[0] + (x - box.x) / box.w * (ends[1] - ends[0])).nearest };
}

// Draw the line at the current t.
export function drawNow(g, x, { y, h }, theme) {
  path(g, [[x, y], [x, y + h]], theme.panel, 4);
  path(g, [[x, y], [x, y + h]], theme.ink, 1.5);
}

export function overTimeCell(x, y, box) {
  if (!box || !inside(x, y, box)) return null;
  return { f: box.frameAt(x), i: Math.floor((y - box.y) / box.h * box.size) };
}
