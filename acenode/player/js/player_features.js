// The state h(t) itself: feature maps, or a vector over time.
import { valueOf } from "./colours.js";
import { cellName, colourBar, number, onlySome } from "./player_draw.js";
import { drawNow, overTime, overTimeCell } from "./player_over_time.js";
import { onScale } from "./player_scales.js";
import { multiples, multiplesCell } from "./player_tiles.js";
import { clamp } from "./theme.js";

export const FEATURES = {
  name: "features",
  tab: "State",
  shown: (meta) => meta.features !== null || meta.state !== null,
  title(view) {
    const { features } = view.run.meta;
    return features ? "State, each channel (feature maps h)" + onlySome(features.channels, features.total) : `State, each ${view.run.variables() ? "variable" : "coordinate"} over time (h)`;
  },
  key: (view, state) => `${view.run.meta.features ? view.run.frame(state.t).nearest : state.t.toFixed(4)}/${state.probe}`,
  baseKey: (view, state) => view.run.meta.features ? "" : String(state.probe),
  base(g, w, h, view, state, theme) {
    const { low, high } = view.scale(view.run.meta.features ? "features" : "state"), bar = theme.signed;
    if (view.run.meta.features) return colourBar(g, w, h, bar, low, high, theme);
    const { data, shape: [, P, d] } = view.block.arrays.state;
    const level = (f, i) => clamp(Math.round(255 + 255 * data[(f * P + state.probe) * d + i] / high), 0, 510);
    return overTime(g, w, h, view, theme, level, { table: bar, bar, ends: [low, high] }, d, state.probe);
  },
  draw(g, w, h, view, state, theme, still) {
    const { features } = view.run.meta;
    if (features) {
      const table = onScale(theme.features, features, view.scale("features"));
      multiples(g, w, h, view, state, theme, { array: view.block.arrays.features, table, changed: false, gain: 1, slot: "featureTiles" });
    } else {
      view.states = still;
      drawNow(g, still.X(state.t), still, theme);
    }
  },
  hover(x, y, view, state) {
    const { run } = view, { features } = run.meta;
    if (!features) {
      const cell = overTimeCell(x, y, view.states), { data, shape: [, P, d] } = view.block.arrays.state;
      return cell && [`${run.variables()?.[cell.i] ?? `coordinate ${cell.i + 1}`}, ${run.timeText(run.meta.t[cell.f])}`,
        `state h = ${number(data[(cell.f * P + state.probe) * d + cell.i])}`, run.title(state.probe)];
    }
    const cell = multiplesCell(x, y, view.featureTiles);
    if (!cell) return null;
    const { data, shape: [, P, C, H, W] } = view.block.arrays.features;
    const level = data[(((run.frame(state.t).nearest * P + state.probe) * C + cell.c) * H + cell.i) * W + cell.j];
    const beyond = level === 0 ? "≤ " : level === 255 ? "≥ " : "≈ ";
    return [`channel ${cell.c + 1}, row ${cellName(cell.i, H, features.full[0])}, column ${cellName(cell.j, W, features.full[1])}`,
      `state h ${beyond}${number(valueOf(features, level))}`, run.title(state.probe)];
  },
};
