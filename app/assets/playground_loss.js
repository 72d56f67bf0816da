// The losses of the networks over training, on a logarithmic scale.
import { number, text, ticks } from "./player_draw.js";
import { line } from "./tour_draw.js";

export const COLOURS = { node: "#8a8f98", augmented: "#3fa7a0", ace: "#b07aa1" };
const DASHES = { node: [], augmented: [7, 4], ace: [2, 3] };  // they differ without colour, too
const DECADES = 12, LABELS = 6;  // at most
const SAMPLE = 32, LETTER = 7.5, GAP = 24, ROW = 18;  // pixels of the legend: line, letter, between entries, row

// The powers of ten between which all losses lie.
export function lossRange(losses) {
  const all = losses.filter((v) => v > 0), high = Math.ceil(Math.log10(Math.max(1, ...all)));
  return [Math.max(high - DECADES, Math.min(-1, Math.floor(Math.log10(Math.min(1, ...all))))), high];
}

// A power of ten, short enough for the margin.
export const powerOfTen = (p) => p >= -3 && p <= 4 ? String(10 ** p) : `1e${p}`.replace("-", "−");

// Where the entries of the legend start: in rows, from the left edge on.
export function legendPlaces(titles, width) {
  let x = 0, row = 0;
  return titles.map((title) => {
    const length = SAMPLE + LETTER * title.length;
    if (x > 0 && x + length > width) [x, row] = [0, row + 1];
    x += length + GAP;
    return { x: x - length - GAP, row };
  });
}

export function drawLosses(g, w, h, networks, theme) {
  const left = 62, places = legendPlaces(networks.map(({ title }) => title), w - left), top = 22 + ROW * (places.at(-1)?.row ?? 0);
  const box = { x: left, y: top, w: w - left - 10, h: h - top - 42 };
  const last = Math.max(10, ...networks.map(({ steps }) => steps.at(-1) ?? 0));
  const [low, high] = lossRange(networks.flatMap(({ losses }) => losses)), every = Math.ceil((high - low) / LABELS);
  const X = (step) => box.x + step / last * box.w, Y = (v) => box.y + (high - Math.log10(Math.max(v, 10 ** low))) / (high - low) * box.h;
  g.strokeStyle = theme.line;
  g.lineWidth = 1;
  g.beginPath();
  for (let p = high; p >= low; p -= every) {
    g.moveTo(box.x, Y(10 ** p));
    g.lineTo(box.x + box.w, Y(10 ** p));
    text(g, powerOfTen(p), box.x - 6, Y(10 ** p), { align: "right", colour: theme.ink, faint: true });
  }
  for (const step of ticks(0, last, Math.min(6, box.w / 70))) text(g, number(step), X(step), box.y + box.h + 8, { align: "center", base: "top", colour: theme.ink, faint: true });
  g.stroke();
  text(g, "Step", box.x + box.w / 2, box.y + box.h + 36, { align: "center", base: "bottom", colour: theme.ink });
  text(g, "Loss", 10, box.y + box.h / 2, { align: "center", colour: theme.ink, turn: true });
  for (const [n, { name, title, steps, losses }] of networks.entries()) {
    const x = left + places[n].x, y = 9 + ROW * places[n].row;
    line(g, losses.map((v, k) => [X(steps[k]), Y(v)]), COLOURS[name], 2, 1, DASHES[name]);
    line(g, [[x, y], [x + 26, y]], COLOURS[name], 2.5, 1, DASHES[name]);
    text(g, title, x + 32, y, { colour: theme.ink });
  }
}
