// The panels that show curves: the path of h(t) in the plane of the first two principal components, and how attention acts
// over time (acenode/player/attention.py says which measure and why).
import { axes, chosenLast, number, percent, rug, span, text } from "./player_draw.js";

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
    g.lineJoin = "round";
    for (const p of span(P)) {
      g.strokeStyle = run.colour(p);
      g.globalAlpha = p === state.probe ? 0.8 : 0.4;
      g.lineWidth = 1;
      g.beginPath();
      for (let f = 0; f < T; f++) g.lineTo(X(data[(f * P + p) * 2]), Y(data[(f * P + p) * 2 + 1]));
      g.stroke();
    }
    g.globalAlpha = 1;
    return { X, Y };
  },

  draw(g, w, h, view, state, theme, { X, Y }) {
    const { run, block } = view, { data, shape: [, P] } = block.arrays.pca;
    const { low, high, part } = run.frame(state.t), px = (f, p) => X(data[(f * P + p) * 2]), py = (f, p) => Y(data[(f * P + p) * 2 + 1]);
    const head = (p) => [px(low, p) + (px(high, p) - px(low, p)) * part, py(low, p) + (py(high, p) - py(low, p)) * part];
    const order = chosenLast(P, state.probe);
    view.heads = [];
    g.lineJoin = g.lineCap = "round";
    for (const p of order) {
      const chosen = p === state.probe, [hx, hy] = head(p);
      g.strokeStyle = run.colour(p);
      g.globalAlpha = chosen ? 1 : 0.75;
      g.lineWidth = chosen ? 4 : 2;
      g.beginPath();
      for (let f = 0; f <= low; f++) g.lineTo(px(f, p), py(f, p));
      g.lineTo(hx, hy);
      g.stroke();
      g.globalAlpha = 1;
      g.lineWidth = 1.5;  // h(0)
      g.fillStyle = theme.paper;
      g.beginPath();
      g.arc(px(0, p), py(0, p), 2.5, 0, 7);
      g.fill();
      g.stroke();
    }
    for (const p of order) {
      const chosen = p === state.probe, [x, y] = head(p);
      g.fillStyle = run.colour(p);
      g.strokeStyle = chosen ? theme.ink : theme.paper;
      g.lineWidth = chosen ? 2 : 1;
      g.beginPath();
      g.arc(x, y, chosen ? 7.5 : 5, 0, 7);
      g.fill();
      g.stroke();
      view.heads.push({ p, x, y });
    }
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

// How attention acts over time (acenode/player/attention_measure.py says which measure and why): one curve for each
// sample, and for the chosen one a band over its rows or cells.

const COLUMNS = 3;  // of the array: mean, lower and upper end of the band
const at = (data, P, f, p, column = 0) => data[(f * P + p) * COLUMNS + column];
const written = (about, value) => about.name === "passed" ? percent(value, 1) : number(value);

export const MEASURE = {
  name: "measure",
  tab: "Over time",
  shown: (meta) => meta.measure !== null,
  title: (view) => view.run.meta.measure.title,
  hint: (view) => view.run.meta.measure.hint,
  key: (view, state) => `${state.t.toFixed(4)}/${state.probe}`,

  baseKey: (view, state) => String(state.probe),
  base(g, w, h, view, state, theme) {
    const { run, block } = view, { data, shape: [T, P] } = block.arrays.measure, { t, measure } = run.meta;
    const box = { x: 58, y: 24, w: w - 70, h: h - 64 }, { low, high } = view.scale("measure"), room = (high - low || 1) * 0.06;
    const times = [run.real(t[0]), run.real(t.at(-1) > t[0] ? t.at(-1) : t[0] + 1)];
    const drawn = axes(g, box, times, [low - (measure.name === "distance" ? 0 : room), high + room], theme, [run.timeLabel(), measure.axis],
      measure.name === "passed" ? (v) => percent(v, high - low < 0.05 ? 1 : 0) : number);
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
    if (measure.reference !== null && measure.reference >= low && measure.reference <= high) this.reference(g, box, Y(measure.reference), theme);
    for (const p of chosenLast(P, probe)) {
      g.globalAlpha = p === probe ? 1 : 0.5;
      g.strokeStyle = run.colour(p);
      g.lineWidth = p === probe ? 3 : 1.25;
      g.beginPath();
      for (let f = 0; f < T; f++) g.lineTo(X(t[f]), Y(at(data, P, f, p)));
      g.stroke();
    }
    g.globalAlpha = 1;
    rug(g, box, X, run.jumps(probe), theme);
    return { box, X, Y };
  },

  legend(g, box, colour, words, theme) {
    g.strokeStyle = g.fillStyle = colour;
    g.lineWidth = 3;
    g.beginPath();
    g.moveTo(box.x, 10);
    g.lineTo(box.x + 16, 10);
    g.stroke();
    text(g, "mean", box.x + 20, 10, { colour: theme.ink, faint: true });
    g.globalAlpha = 0.25;
    g.fillRect(box.x + 60, 5, 16, 10);
    g.globalAlpha = 1;
    text(g, words, box.x + 80, 10, { colour: theme.ink, faint: true });
  },

  reference(g, box, y, theme) {
    g.strokeStyle = theme.ink;
    g.lineWidth = 1;
    g.globalAlpha = 0.55;
    g.setLineDash([2, 4]);
    g.beginPath();
    g.moveTo(box.x, y);
    g.lineTo(box.x + box.w, y);
    g.stroke();
    g.setLineDash([]);
    g.globalAlpha = 1;
  },

  value(view, state) {
    const { data, shape: [, P] } = view.block.arrays.measure, { low, high, part } = view.run.frame(state.t);
    const from = at(data, P, low, state.probe);
    return from + (at(data, P, high, state.probe) - from) * part;
  },

  draw(g, w, h, view, state, theme, { box, X, Y }) {
    g.strokeStyle = theme.ink;
    g.lineWidth = 1;
    g.globalAlpha = 0.5;
    g.setLineDash([3, 3]);
    g.beginPath();
    g.moveTo(X(state.t), box.y);
    g.lineTo(X(state.t), box.y + box.h);
    g.stroke();
    g.setLineDash([]);
    g.globalAlpha = 1;
    g.fillStyle = view.run.colour(state.probe);
    g.lineWidth = 2;
    g.beginPath();
    g.arc(X(state.t), Y(this.value(view, state)), 6, 0, 7);
    g.fill();
    g.stroke();
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
    const learnt = measure.mixed === "coordinates" ? " Each seed learns coordinates and attention of its own." : "";
    if (measure.name === "focus") return `Attention mixes ${first} of ${measure.reference} ${measure.mixed} into one at the start, and ${last} at ${end}.${learnt}`;
    if (measure.name === "passed") return `${first} of the state passes at the start, and ${last} at ${end}.`;
    return `At ${end}, attention has moved ${last} times its size.`;
  },

  // In words: what the curve of the chosen sample says at t.
  words(view, state) {
    const { measure } = view.run.meta, value = written(measure, this.value(view, state));
    if (measure.name === "focus") return `attention mixes ${value} of ${measure.reference} ${measure.mixed} into one`;
    return measure.name === "passed" ? `${value} of the state passes` : `attention has moved ${value} times its size`;
  },
};
