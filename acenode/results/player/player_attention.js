// The attention weights from a(t): a map over the input, a matrix between coordinates, or a vector over time.
import { fill, gainOf, paintInput, scaleOf, scratch, tableOf, valueOf } from "./colours.js";
import { BAR, cellName, colourBar, countTicks, inside, span, text, weightLines } from "./player_draw.js";
import { drawNow, overTime, overTimeCell } from "./player_over_time.js";
import { weightTable } from "./player_scales.js";
import { tiling } from "./player_tiles.js";
import { clamp } from "./theme.js";

const SHORT = {
  pairwise: "Attention from j into i (softmax(a))",
  elementwise: "Attention, mean over channels (sigmoid(a))",
  coordinates: "Attention over time (sigmoid(a))",
};

export const ATTENTION = {
  name: "attention",
  tab: "Attention",
  shown: (meta) => meta.attention !== null,
  title: (view, state) => (state.mode === "change" ? "Change since the start: " : "") + SHORT[view.run.meta.attention.kind],
  hint: (view) => view.run.meta.attention.title,
  key(view, state) {
    const vector = view.run.meta.attention.kind === "coordinates";
    return `${vector ? state.t.toFixed(4) : view.run.frame(state.t).nearest}/${state.probe}/${state.mode}`;
  },

  baseKey: (view, state) => view.run.meta.attention.kind === "coordinates" ? `${state.probe}/${state.mode}` : state.mode,
  base(g, w, h, view, state, theme) {
    const about = view.run.meta.attention, changed = state.mode === "change", scale = view.scale("attention"), gain = gainOf(about, scale);
    const bar = tableOf(theme, changed), table = weightTable(theme, changed, about, scale), ends = scaleOf(scale, changed);
    if (about.kind !== "coordinates") return colourBar(g, w, h, bar, ...ends, theme);
    const { data, shape: [, P, , columns] } = view.block.arrays.attention, at = (f, i) => data[(f * P + state.probe) * columns + i];
    const level = changed ? (f, i) => clamp(255 + Math.round((at(f, i) - at(0, i)) * gain), 0, 510) : at;
    return overTime(g, w, h, view, theme, level, { table, bar, ends }, columns, state.probe);
  },

  draw(g, w, h, view, state, theme, still) {
    const { run, block } = view, about = run.meta.attention, { data, shape: [, P, rows, columns] } = block.arrays.attention;
    if (about.kind === "coordinates") {
      view.coordinates = still;
      drawNow(g, still.X(state.t), still, theme);
      return;
    }
    const changed = state.mode === "change", nearest = run.frame(state.t).nearest, block0 = rows * columns, scale = view.scale("attention");
    const gain = gainOf(about, scale), table = weightTable(theme, changed, about, scale);
    const { cells, put } = scratch(columns, rows), start = (nearest * P + state.probe) * block0;
    fill(cells, data, start, changed ? state.probe * block0 : null, block0, table, gain);
    const picture = put(), pairwise = about.kind === "pairwise", over = !pairwise && run.pixels !== null;
    const left = about.names ? 70 : 44, room = pairwise ? { x: left, y: 8, w: w - left - BAR - 4, h: h - 46 } : { x: 8, y: 8, w: w - 12 - BAR, h: h - 16 };
    const tiles = tiling(over ? 2 : 1, columns / rows, room.w, room.h, 14, over ? 20 : 0);
    g.imageSmoothingEnabled = false;
    view.maps = [];
    for (const i of span(over ? 2 : 1)) {
      const { x, y } = tiles.place(i), box = { x: room.x + x, y: room.y + y, w: tiles.width, h: tiles.height };
      if (over && i === 0) {
        g.drawImage(paintInput(run, state.probe), box.x, box.y, box.w, box.h);
        fill(cells, data, start, changed ? state.probe * block0 : null, block0, table, gain);  // again: if the input has the map's size, paintInput has used the same scratch canvas
        g.globalAlpha = 0.55;
        g.drawImage(put(), box.x, box.y, box.w, box.h);
        g.globalAlpha = 1;
      } else g.drawImage(picture, box.x, box.y, box.w, box.h);
      g.strokeStyle = theme.line;
      g.lineWidth = 1;
      g.strokeRect(box.x - 0.5, box.y - 0.5, box.w + 1, box.h + 1);
      if (over) text(g, i === 0 ? "Overlaid on input" : "Attention only", box.x + box.w / 2, box.y + box.h + 5,
        { align: "center", base: "top", colour: theme.ink, faint: true });
      if (pairwise) {
        countTicks(g, box, columns, true, theme, about.full[1], about.names);
        countTicks(g, box, rows, false, theme, about.full[0], about.names);
        text(g, about.names ? "From" : `${about.columns} (from)`, box.x + box.w / 2, box.y + box.h + 22, { align: "center", base: "top", colour: theme.ink });
        text(g, about.names ? "Into" : `${about.rows} (into)`, box.x - left + 12, box.y + box.h / 2, { align: "center", colour: theme.ink, turn: true });
      }
      view.maps.push(box);
    }
  },

  hover(x, y, view, state) {
    const { run, block } = view, about = run.meta.attention, { data, shape: [, P, rows, columns] } = block.arrays.attention;
    let f = run.frame(state.t).nearest, i, j;
    if (about.kind === "coordinates") {
      const cell = overTimeCell(x, y, view.coordinates);
      if (!cell) return null;
      [f, i, j] = [cell.f, 0, cell.i];
    } else {
      const box = (view.maps ?? []).find((b) => inside(x, y, b));
      if (!box) return null;
      [i, j] = [Math.floor((y - box.y) / box.h * rows), Math.floor((x - box.x) / box.w * columns)];
    }
    const at = (frame) => valueOf(about, data[((frame * P + state.probe) * rows + i) * columns + j]);
    const place = about.kind === "coordinates" ? `coordinate ${cellName(j, columns, about.full[1])}, ${run.timeText(run.meta.t[f])}`
      : about.names ? `from ${about.names[j]} into ${about.names[i]}`
      : `${about.rows} ${cellName(i, rows, about.full[0])}, ${about.columns} ${cellName(j, columns, about.full[1])}`;
    return [place, ...weightLines(at(f), at(0)), run.title(state.probe)];
  },
};
