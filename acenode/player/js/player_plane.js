// h(t) of every probe as a path in the plane of the first two principal components.
import { axes, chosenLast, percent, span } from "./player_draw.js";

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
