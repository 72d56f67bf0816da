// A vector over time as one picture, with a line at now.
import { scratch } from "./colours.js";
import { BAR, colourBar, countTicks, inside, number, text, ticks } from "./player_draw.js";

// The picture: coordinates down, t across.
export function overTime(g, w, h, view, theme, level, table, low, high, size) {
  const T = view.film.meta.t.length, box = { x: 44, y: 8, w: w - 44 - BAR - 6, h: h - 48 }, { cells, put } = scratch(T, size);
  for (let i = 0; i < size; i++) for (let f = 0; f < T; f++) cells[i * T + f] = table[level(f, i)];
  g.imageSmoothingEnabled = false;
  g.drawImage(put(), box.x, box.y, box.w, box.h);
  const t = view.film.meta.t, ends = [t[0], t.at(-1)], X = (v) => box.x + (v - ends[0]) / (ends[1] - ends[0] || 1) * box.w;
  for (const v of ticks(...ends, box.w / 60)) text(g, number(v), X(v), box.y + box.h + 6, { align: "center", base: "top", colour: theme.ink, faint: true });
  text(g, "t", box.x + box.w / 2, box.y + box.h + 34, { align: "center", base: "bottom", colour: theme.ink });
  countTicks(g, box, size, false, theme);
  text(g, "coordinate", 10, box.y + box.h / 2, { align: "center", colour: theme.ink, turn: true });
  colourBar(g, w, h - 30, table, low, high, theme);
  return { ...box, T, size, X };
}

// … and the line at now.
export function drawNow(g, x, box, theme) {
  g.beginPath();
  g.moveTo(x, box.y);
  g.lineTo(x, box.y + box.h);
  g.strokeStyle = theme.paper;
  g.lineWidth = 4;
  g.stroke();
  g.strokeStyle = theme.ink;
  g.lineWidth = 1.5;
  g.stroke();
}

export function overTimeCell(x, y, box) {
  if (!box || !inside(x, y, box)) return null;
  return { f: Math.floor((x - box.x) / box.w * box.T), i: Math.floor((y - box.y) / box.h * box.size) };
}
