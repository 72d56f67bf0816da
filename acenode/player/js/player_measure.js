// How attention acts over time (acenode/player/attention_measure.py says which measure and why): one curve for each
// sample, and for the chosen one a band over its rows or cells.
import { axes, chosenLast, number, percent, rug, span, text } from "./player_draw.js";

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
