// The attention weights of each channel.
import { gainOf, scaleOf, tableOf, valueOf } from "./colours.js";
import { cellName, colourBar, onlySome, weightLines } from "./player_draw.js";
import { weightTable } from "./player_scales.js";
import { multiples, multiplesCell } from "./player_tiles.js";

export const CHANNELS = {
  name: "channels",
  tab: "Channels",
  shown: (meta) => Boolean(meta.attention?.channels),
  title(view, state) {
    const { channels, each } = view.run.meta.attention;
    return `${state.mode === "change" ? "Change since the start: " : ""}Attention, each channel (sigmoid(a))` + onlySome(channels, each.total);
  },
  key: (view, state) => `${view.run.frame(state.t).nearest}/${state.probe}/${state.mode}`,
  baseKey: (view, state) => state.mode,
  base(g, w, h, view, state, theme) {
    const changed = state.mode === "change";
    colourBar(g, w, h, tableOf(theme, changed), ...scaleOf(view.scale("each"), changed), theme);
  },
  draw(g, w, h, view, state, theme) {
    const changed = state.mode === "change", { each } = view.run.meta.attention, scale = view.scale("each");
    const table = weightTable(theme, changed, each, scale);
    multiples(g, w, h, view, state, theme, { array: view.block.arrays.attention_channels, changed, table, gain: gainOf(each, scale),
      slot: "channelTiles" });
  },
  hover(x, y, view, state) {
    const cell = multiplesCell(x, y, view.channelTiles);
    if (!cell) return null;
    const { run } = view, { full, each } = run.meta.attention, { data, shape: [, P, C, H, W] } = view.block.arrays.attention_channels;
    const at = (f) => valueOf(each, data[(((f * P + state.probe) * C + cell.c) * H + cell.i) * W + cell.j]), now = at(run.frame(state.t).nearest);
    return [`channel ${cell.c + 1}, row ${cellName(cell.i, H, full[0])}, column ${cellName(cell.j, W, full[1])}`,
      ...weightLines(now, at(0)), run.title(state.probe)];
  },
};
