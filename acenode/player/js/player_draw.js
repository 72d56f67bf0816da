// Drawing on a canvas: text, numbers, axes and colour bars.
import { scratch } from "./colours.js";
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

// Draw axes with a grid; returns X and Y, which map data to pixels. `written` writes the numbers of the vertical axis.
export function axes(g, box, xs, ys, theme, labels, written = number) {
  const X = (v) => box.x + (v - xs[0]) / (xs[1] - xs[0]) * box.w, Y = (v) => box.y + box.h - (v - ys[0]) / (ys[1] - ys[0]) * box.h;
  g.lineWidth = 1;
  g.strokeStyle = theme.line;
  g.beginPath();
  for (const v of ticks(...xs, Math.max(box.w / 70, 3))) {
    g.moveTo(X(v), box.y);
    g.lineTo(X(v), box.y + box.h);
    text(g, number(v), X(v), box.y + box.h + 8, { align: "center", base: "top", colour: theme.ink, faint: true });
  }
  for (const v of ticks(...ys, box.h / 45)) {
    g.moveTo(box.x, Y(v));
    g.lineTo(box.x + box.w, Y(v));
    text(g, written(v), box.x - 6, Y(v), { align: "right", colour: theme.ink, faint: true });
  }
  g.stroke();
  text(g, labels[0], box.x + box.w / 2, box.y + box.h + 36, { align: "center", base: "bottom", colour: theme.ink });
  if (labels[1]) text(g, labels[1], 8, box.y + box.h / 2, { align: "center", colour: theme.ink, turn: true });
  return { X, Y };
}

// Ticks below a box whose horizontal axis is time, at the times of jumps.
export function rug(g, box, X, jumps, theme) {
  g.strokeStyle = theme.ink;
  g.lineWidth = 1;
  g.globalAlpha = 0.7;
  g.beginPath();
  for (const t of jumps) {
    const x = Math.round(X(t)) + 0.5;
    g.moveTo(x, box.y + box.h + 1);
    g.lineTo(x, box.y + box.h + 1 + RUG);
  }
  g.stroke();
  g.globalAlpha = 1;
}

export function colourBar(g, w, h, table, low, high, theme) {
  const bar = { x: w - BAR + 8, y: 10, w: 12, h: h - 20 }, { cells, put } = scratch(1, 256);
  for (let i = 0; i < 256; i++) cells[255 - i] = table[Math.round(i / 255 * (table.length - 1))];
  g.imageSmoothingEnabled = false;
  g.drawImage(put(), bar.x, bar.y, bar.w, bar.h);
  g.strokeStyle = theme.line;
  g.strokeRect(bar.x, bar.y, bar.w, bar.h);
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
  for (let i = 0; i < count; i += every) {
    const at = (i + 0.5) * room, name = String(Math.floor(i * full / count) + 1), style = { colour: theme.ink, faint: true };
    if (across) text(g, name, box.x + at, box.y + box.h + 5, { ...style, align: "center", base: "top" });
    else text(g, name, box.x - 6, box.y + at, { ...style, align: "right" });
  }
}
