// What the player shows, as text: for screen readers, and for everybody who cannot see the canvases.
import { shownLevels, shownMap } from "./player_attention.js";
import { number } from "./player_draw.js";
import { MEASURE } from "./player_measure.js";
import { valueOf } from "./colours.js";

// Where the chosen sample is in the plane of the first two principal components.
function place(view, state) {
  const { data, shape: [, P] } = view.block.arrays.pca, at = (view.run.frame(state.t).nearest * P + state.probe) * 2;
  return `state at (${number(data[at])}, ${number(data[at + 1])}) in the plane`;
}

// The largest weight or influence of the map at t, and where it is.
function strongest(view, state) {
  const attention = shownMap(view, state), what = attention?.kind === "influence" ? "influence" : "weight";
  if (!attention) return "no influence in these snapshots";
  const { data, shape: [, P, rows, columns] } = shownLevels(view, state), other = (i) => what === "weight" || Math.floor(i / columns) !== i % columns;
  const start = (view.run.frame(state.t).nearest * P + state.probe) * rows * columns;
  let best = what === "weight" ? 0 : 1;
  for (let i = best + 1; i < rows * columns; i++) if (other(i) && data[start + i] > data[start + best]) best = i;
  const weight = number(valueOf(attention, data[start + best])), [i, j] = [Math.floor(best / columns), best % columns];
  const name = (k) => attention.names?.[k] ?? String(k + 1);
  if (attention.names || attention.kind === "pairwise") return `largest ${what} ${weight}, from ${name(j)} into ${name(i)}`;
  return attention.kind === "coordinates" ? `largest weight ${weight}, at coordinate ${j + 1}` : `largest weight ${weight}, at row ${i + 1}, column ${j + 1}`;
}

// One sentence about a run: epoch, time, sample, and what the panels show of it.
export function words(view, state) {
  const { run, block, epoch } = view;
  if (!block) return "";
  const when = epoch === 0 ? "Before training" : `After epoch ${epoch}`, prediction = run.prediction(state.probe, epoch);
  const parts = [`${when}, ${run.timeText(state.t)}, ${run.whole(state.probe)}`, ...(prediction ? [prediction] : []), place(view, state),
    ...(run.meta.attention || run.meta.influence ? [strongest(view, state)] : []), ...(run.meta.measure ? [MEASURE.words(view, state)] : [])];
  return `${parts.join("; ")}.`;
}
