// The losses of the networks over training, on a logarithmic scale.
import { number, text, ticks } from "./player_draw.js";
import { line } from "./tour_draw.js";

export const COLOURS = { node: "#8a8f98", augmented: "#3fa7a0", ace: "#b07aa1" };
const DASHES = { node: [], augmented: [7, 4], ace: [2, 3] };  // they differ without colour, too
const DECADES = 12, LABELS = 6;  // at most

// The powers of ten between which all losses lie.
export function lossRange(losses) {
  const all = losses.filter((v) => v > 0), high = Math.ceil(Math.log10(Math.max(1, ...all)));
  return [Math.max(high - DECADES, Math.min(-1, Math.floor(Math.log10(Math.min(1, ...all))))), high];
}

export function drawLosses(g, w, h, networks, theme) {
  const box = { x: 54, y: 22, w: w - 64, h: h - 64 };
  const last = Math.max(10, ...networks.map(({ steps }) => steps.at(-1) ?? 0));
  const [low, high] = lossRange(networks.flatMap(({ losses }) => losses)), every = Math.ceil((high - low) / LABELS);
  const X = (step) => box.x + step / last * box.w, Y = (v) => box.y + (high - Math.log10(Math.max(v, 10 ** low))) / (high - low) * box.h;
  g.strokeStyle = theme.line;
  g.lineWidth = 1;
  g.beginPath();
  for (let p = high; p >= low; p -= every) {
    g.moveTo(box.x, Y(10 ** p));
    g.lineTo(box.x + box.w, Y(10 ** p));
    text(g, String(10 ** p), box.x - 6, Y(10 ** p), { align: "right", colour: theme.ink, faint: true });
  }
  for (const step of ticks(0, last, Math.min(6, box.w / 70))) text(g, number(step), X(step), box.y + box.h + 8, { align: "center", base: "top", colour: theme.ink, faint: true });
  g.stroke();
  text(g, "Step", box.x + box.w / 2, box.y + box.h + 36, { align: "center", base: "bottom", colour: theme.ink });
  text(g, "Loss", 12, box.y + box.h / 2, { align: "center", colour: theme.ink, turn: true });
  let x = box.x;
  for (const { name, title, steps, losses } of networks) {
    line(g, losses.map((v, n) => [X(steps[n]), Y(v)]), COLOURS[name], 2, 1, DASHES[name]);
    line(g, [[x, 9], [x + 26, 9]], COLOURS[name], 2.5, 1, DASHES[name]);
    text(g, title, x + 32, 9, { colour: theme.ink });
    x += 64 + 7 * title.length;
  }
}
