// The range of values that colours cover: of each run alone, or one for all runs, so that equal colours are equal values.
import { tableOf, valueOf } from "./colours.js";
import { clamp } from "./theme.js";

const NAMES = { attention: (meta) => meta.attention, each: (meta) => meta.attention?.each, features: (meta) => meta.features,
  influence: (meta) => meta.influence, state: (meta) => meta.state, measure: (meta) => meta.measure };

// Softmax and sigmoid weights do not share a scale, nor do their measures.
const keyOf = (name, meta) => name === "attention" ? `attention/${meta.attention?.kind}` : name === "measure" ? `measure/${meta.measure?.name}` : name;

export class Scales {
  constructor() { Object.assign(this, { same: true, common: new Map(), key: "" }); }

  // Find the common scales of the runs with these descriptions.
  take(metas) {
    this.common.clear();
    for (const meta of metas) for (const [name, find] of Object.entries(NAMES)) {
      const own = find(meta), key = keyOf(name, meta), before = this.common.get(key) ?? own;
      if (own) this.common.set(key, { low: Math.min(own.low, before.low), high: Math.max(own.high, before.high),
        largest_change: Math.max(own.largest_change ?? 0, before.largest_change ?? 0) });
    }
    this.updateKey();
  }

  share(on) {
    this.same = on;
    this.updateKey();
  }

  // The key changes whenever pictures must be drawn again.
  updateKey() { this.key = this.same ? JSON.stringify([...this.common.values()]) : "own"; }

  of(name, meta) { return this.same ? this.common.get(keyOf(name, meta)) ?? NAMES[name](meta) : NAMES[name](meta); }
}

// The colours of a run's 256 levels, which cover its own range, on another scale.
export function onScale(table, about, { low, high }) {
  const most = table.length - 1, place = (level) => Math.round((valueOf(about, level) - low) / (high - low || 1) * most);
  return Uint32Array.from({ length: 256 }, (_, level) => table[clamp(place(level), 0, most)]);
}

// The colours of weights, or of their change, whose table is symmetric around zero.
export const weightTable = (theme, changed, about, scale) =>
  changed ? tableOf(theme, true) : onScale(tableOf(theme, false), about, scale);
