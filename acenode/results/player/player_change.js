// The relative distance of a(t) from a(0), one curve for each sample.
import { axes, chosenLast, number, rug, span } from "./player_draw.js";
import { hasChange } from "./player_run.js";

export const CHANGE = {
  name: "change",
  shown: hasChange,
  title: () => "Distance of attention from its start",
  hint: () => "How far attention a(t) is from a(0), relative to a(0): ‖a(t) − a(0)‖ / ‖a(0)‖. One curve for each sample.",
  key: (view, state) => `${state.t.toFixed(4)}/${state.probe}`,

  baseKey: (view, state) => String(state.probe),
  base(g, w, h, view, state, theme) {
    const { run, block } = view, { data, shape: [T, P] } = block.arrays.change, t = run.meta.t;
    const box = { x: 58, y: 8, w: w - 70, h: h - 48 }, most = view.scale("distance").high * 1.08 || 1;
    const { X, Y } = axes(g, box, [t[0], t.at(-1) > t[0] ? t.at(-1) : t[0] + 1], [0, most], theme, ["Time (t)", "Relative distance"]);
    for (const p of chosenLast(P, state.probe)) {
      g.globalAlpha = p === state.probe ? 1 : 0.5;
      g.strokeStyle = run.colour(p);
      g.lineWidth = p === state.probe ? 3 : 1.25;
      g.beginPath();
      for (let f = 0; f < T; f++) g.lineTo(X(t[f]), Y(data[f * P + p]));
      g.stroke();
    }
    g.globalAlpha = 1;
    rug(g, box, X, run.jumps(state.probe), theme);
    return { box, X, Y };
  },

  draw(g, w, h, view, state, theme, { box, X, Y }) {
    const { run, block } = view, { data, shape: [, P] } = block.arrays.change, { low, high, part } = run.frame(state.t);
    const from = data[low * P + state.probe], value = from + (data[high * P + state.probe] - from) * part;
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
    g.fillStyle = run.colour(state.probe);
    g.lineWidth = 2;
    g.beginPath();
    g.arc(X(state.t), Y(value), 6, 0, 7);
    g.fill();
    g.stroke();
    view.curve = { box, X, Y };
  },

  hover(x, y, view) {
    const { run, block, curve } = view;
    if (!curve || x < curve.box.x || x > curve.box.x + curve.box.w) return null;
    const { data, shape: [, P] } = block.arrays.change, t = run.meta.t;
    const f = run.frame(t[0] + (x - curve.box.x) / curve.box.w * (t.at(-1) - t[0])).nearest;
    const away = span(P).map((p) => Math.abs(curve.Y(data[f * P + p]) - y)), p = away.indexOf(Math.min(...away));
    return away[p] > 20 ? null : [run.whole(p), `time t = ${t[f].toFixed(2)}`, `relative change ${number(data[f * P + p])}`];
  },
};
