// The panels that show curves: the path of h(t) in the plane of the first two principal components, and how attention acts
// over time (acenode/player/attention.py says which measure and why).
import { axes, chosenLast, dot, number, path, percent, rug, span, text } from "./player_draw.js";

export const PLANE = {
  name: "plane",
  tab: "Path",
  shown: () => true,
  title: () => "State in the plane (PCA of h)",
  hint: () => "The path of the state h(t) of every sample in the plane of the first two principal components (PCA)",
  key: (view, state) => `${state.t.toFixed(4)}/${state.probe}/${state.fitEpoch}`,

  range(view, state) {
    const { data } = view.block.arrays.pca, { pca } = view.run.meta, ends = [[Infinity, -Infinity], [Infinity, -Infinity]];
    if (!state.fitEpoch) for (const [i, own] of [pca.x, pca.y].entries()) ends[i] = [...own];
    for (let i = 0; i < data.length; i++) {
      const end = ends[i % 2];
      if (data[i] < end[0]) end[0] = data[i];
      if (data[i] > end[1]) end[1] = data[i];
    }
    return ends.map(([low, high]) => { const room = (high - low || 1) * 0.06; return [low - room, high + room]; });
  },

  baseKey: (view, state) => `${state.probe}/${state.fitEpoch}`,
  base(g, w, h, view, state, theme) {
    const { run, block } = view, { data, shape: [T, P] } = block.arrays.pca, box = { x: 58, y: 8, w: w - 68, h: h - 48 };
    const [xs, ys] = this.range(view, state), share = (i) => `Component ${i + 1} (${percent(run.meta.pca.shares[i])} of variance)`;
    const { X, Y } = axes(g, box, xs, ys, theme, [share(0), share(1)]);
    const points = (p) => span(T).map((f) => [X(data[(f * P + p) * 2]), Y(data[(f * P + p) * 2 + 1])]);
    for (const p of span(P)) path(g, points(p), run.colour(p), 1, p === state.probe ? 0.8 : 0.4);
    return { points };
  },

  draw(g, w, h, view, state, theme, { points }) {
    const { run, block } = view, { low, high, part } = run.frame(state.t);
    view.heads = chosenLast(block.arrays.pca.shape[1], state.probe).map((p) => {
      const own = points(p), [x, y] = [0, 1].map((i) => own[low][i] + (own[high][i] - own[low][i]) * part), chosen = p === state.probe;
      path(g, [...own.slice(0, low + 1), [x, y]], run.colour(p), chosen ? 4 : 2, chosen ? 1 : 0.75);
      dot(g, ...own[0], 2.5, theme.panel, run.colour(p), 1.5);  // h(0)
      return { p, x, y, chosen };
    });
    for (const { p, x, y, chosen } of view.heads) dot(g, x, y, chosen ? 7.5 : 5, run.colour(p), chosen ? theme.ink : theme.panel, chosen ? 2 : 1);
  },

  nearest(x, y, view) {
    let best = null, least = 16 ** 2;
    for (const head of view.heads ?? []) {
      const d = (head.x - x) ** 2 + (head.y - y) ** 2;
      if (d <= least) [best, least] = [head.p, d];
    }
    return best;
  },
  hover(x, y, view, state) {
    const p = this.nearest(x, y, view), { run } = view;
    if (p === null) return null;
    const prediction = run.prediction(p, view.epoch);
    return [run.whole(p), run.timeText(state.t), ...(prediction ? [prediction] : [])];
  },
  click(x, y, view) { return this.nearest(x, y, view); },
};

const COLUMNS = 3;  // of the array: mean, lower and upper end of the band
const at = (data, P, f, p, column = 0) => data[(f * P + p) * COLUMNS + column];
const written = (about, value) => about.name === "passed" ? percent(value, 1) : number(value);

function said({ name, reference, mixed }, value) {
  if (name === "focus") return `attention mixes ${value} of ${reference} ${mixed} into one`;
  return name === "passed" ? `${value} of the state passes` : `attention has moved ${value} times its size`;
}

// One curve for each sample, and for the chosen one a band over its rows or cells.
export const MEASURE = {
  name: "measure",
  tab: "Over time",
  shown: (meta) => Boolean(meta.measure),
  title: (view) => view.run.meta.measure.title,
  hint: (view) => view.run.meta.measure.hint,
  key: (view, state) => `${state.t.toFixed(4)}/${state.probe}`,

  baseKey: (view, state) => String(state.probe),
  base(g, w, h, view, state, theme) {
    const { run, block } = view, { data, shape: [T, P] } = block.arrays.measure, { t, measure } = run.meta;
    const box = { x: 58, y: 24, w: w - 70, h: h - 64 }, { low, high } = view.scale("measure"), room = (high - low || 1) * 0.06;
    const times = [run.real(t[0]), run.real(t.at(-1) > t[0] ? t.at(-1) : t[0] + 1)];
    const drawn = axes(g, box, times, [low - (measure.name === "distance" ? 0 : room), high + room], theme, [run.timeLabel(), measure.axis],
      measure.name === "passed" ? { written: (v) => percent(v, high - low < 0.05 ? 1 : 0) } : {});
    const { Y } = drawn, X = (v) => drawn.X(run.real(v)), { probe } = state;
    if (measure.band) {
      g.fillStyle = run.colour(probe);
      g.globalAlpha = 0.16;
      g.beginPath();
      for (let f = 0; f < T; f++) g.lineTo(X(t[f]), Y(at(data, P, f, probe, 1)));
      for (let f = T - 1; f >= 0; f--) g.lineTo(X(t[f]), Y(at(data, P, f, probe, 2)));
      g.fill();
      g.globalAlpha = 1;
      this.legend(g, box, run.colour(probe), measure.band, theme);
    }
    if (measure.reference !== null && measure.reference >= low && measure.reference <= high)
      path(g, [[box.x, Y(measure.reference)], [box.x + box.w, Y(measure.reference)]], theme.ink, 1, 0.55, [1, 5]);
    for (const p of chosenLast(P, probe)) path(g, span(T).map((f) => [X(t[f]), Y(at(data, P, f, p))]), run.colour(p), p === probe ? 3 : 1.25, p === probe ? 1 : 0.5);
    rug(g, box, X, run.jumps(probe), theme);
    return { box, X, Y };
  },

  legend(g, box, colour, words, theme) {
    path(g, [[box.x, 10], [box.x + 16, 10]], colour, 3);
    g.fillStyle = colour;
    text(g, "mean", box.x + 20, 10, { colour: theme.ink, faint: true });
    g.globalAlpha = 0.25;
    g.fillRect(box.x + 60, 5, 16, 10);
    g.globalAlpha = 1;
    text(g, words, box.x + 80, 10, { colour: theme.ink, faint: true });
  },

  value(view, state) {
    const { data, shape: [, P] } = view.block.arrays.measure, { low, high, part } = view.run.frame(state.t);
    const from = at(data, P, low, state.probe);
    return from + (at(data, P, high, state.probe) - from) * part;
  },

  draw(g, w, h, view, state, theme, { box, X, Y }) {
    path(g, [[X(state.t), box.y], [X(state.t), box.y + box.h]], theme.ink, 1, 0.5, [2, 4]);
    dot(g, X(state.t), Y(this.value(view, state)), 6, view.run.colour(state.probe), theme.ink, 2);
    view.curve = { box, X, Y };
  },

  hover(x, y, view) {
    const { run, block, curve } = view, { measure, t } = run.meta;
    if (!curve || x < curve.box.x || x > curve.box.x + curve.box.w) return null;
    const { data, shape: [, P] } = block.arrays.measure;
    const f = run.frame(t[0] + (x - curve.box.x) / curve.box.w * (t.at(-1) - t[0])).nearest;
    const away = span(P).map((p) => Math.abs(curve.Y(at(data, P, f, p)) - y)), p = away.indexOf(Math.min(...away));
    return away[p] > 20 ? null : [run.whole(p), run.timeText(t[f]), `${measure.axis.toLowerCase()}: ${written(measure, at(data, P, f, p))}`];
  },

  // In words: how the curve of a sample begins and ends, which does not change while time passes.
  over({ run, block }, probe) {
    const { measure, t } = run.meta, { data, shape: [T, P] } = block.arrays.measure;
    const [first, last] = [0, T - 1].map((f) => written(measure, at(data, P, f, probe))), end = run.timeText(t.at(-1));
    if (measure.name === "distance") return `At ${end}, ${said(measure, last)}.`;
    const learnt = measure.mixed === "coordinates" ? " Each seed learns coordinates and attention of its own." : "";
    return `${said(measure, first).replace(/^a/, "A")} at the start, and ${last} at ${end}.${learnt}`;
  },

  // In words: what the curve of the chosen sample says at t.
  words(view, state) {
    const { measure } = view.run.meta;
    return said(measure, written(measure, this.value(view, state)));
  },
};
