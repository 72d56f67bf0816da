// A vector over time as one picture, with a line at the current t.
import { scratch } from "./colours.js";
import { BAR, colourBar, countTicks, inside, number, rug, text, ticks } from "./player_draw.js";
import { nameRoom, nameTicks } from "./player_names.js";

// Draw the picture: coordinates down, t across. Each frame extends halfway to its neighbours.
export function overTime(g, w, h, view, theme, level, { table, bar, ends: [low, high] }, size, probe) {
  const { run } = view, { t } = run.meta, T = t.length, names = run.variables(), left = names ? 30 + nameRoom(names) : 44;
  const box = { x: left, y: 8, w: w - left - BAR - 6, h: h - 48 }, { cells, put } = scratch(T, size);
  for (let i = 0; i < size; i++) for (let f = 0; f < T; f++) cells[i * T + f] = table[level(f, i)];
  const ends = [t[0], t.at(-1)], X = (v) => box.x + (v - ends[0]) / (ends[1] - ends[0] || 1) * box.w;
  const edge = (f) => f === 0 ? box.x : f === T ? box.x + box.w : Math.round(X((t[f - 1] + t[f]) / 2)), picture = put();
  g.imageSmoothingEnabled = false;
  for (let f = 0; f < T; f++) if (edge(f + 1) > edge(f)) g.drawImage(picture, f, 0, 1, size, edge(f), box.y, edge(f + 1) - edge(f), box.h);
  rug(g, box, X, run.jumps(probe), theme);
  for (const v of ticks(run.real(ends[0]), run.real(ends[1]), box.w / 60)) text(g, number(v), X(v / run.real(1)), box.y + box.h + 8, { align: "center", base: "top", colour: theme.ink, faint: true });
  text(g, run.timeLabel(), box.x + box.w / 2, box.y + box.h + 36, { align: "center", base: "bottom", colour: theme.ink });
  if (names) nameTicks(g, box, names, false, false, theme);
  else countTicks(g, box, size, false, theme);
  text(g, names ? "Variable" : "Coordinate", 10, box.y + box.h / 2, { align: "center", colour: theme.ink, turn: true });
  colourBar(g, w, h - 30, bar, low, high, theme);
  return { ...box, size, X, frameAt: (x) => run.frame(ends[0] + (x - box.x) / box.w * (ends[1] - ends[0])).nearest };
}

// Draw the line at the current t.
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
  return { f: box.frameAt(x), i: Math.floor((y - box.y) / box.h * box.size) };
}
