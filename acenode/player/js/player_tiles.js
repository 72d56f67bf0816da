// Many maps side by side, one for each channel.
import { fill, scratch } from "./colours.js";
import { BAR } from "./player_draw.js";

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
export function multiples(g, w, h, view, state, theme, { array, table, changed, gain, slot }) {
  const { data, shape: [, P, C, H, W] } = array, nearest = view.run.frame(state.t).nearest, size = H * W;
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
  view[slot] = { tiles, C, H, W };
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
