// The charts of the player. Their ranges hold for every frame, so that what moves is the state and not the axes.
function range(values, pad = 0.06) {
  const low = values.reduce((a, b) => Math.min(a, b), Infinity), high = values.reduce((a, b) => Math.max(a, b), -Infinity);
  const room = (high - low || 1) * pad;
  return [low - room, high + room];
}

// Whole paths and where they begin stay while time runs; then comes what has been travelled, and where h(t) is.
function planeChart(film) {
  const { T, N, now, probes } = film;
  const quiet = { type: "scatter", hoverinfo: "skip", showlegend: false };
  const first = probes.map((p) => probes.findIndex((q) => film.label(q) === film.label(p)) === p);
  chart("plane", (c) => {
    const near = at("near").checked, chosen = (yes, no) => probes.map((p) => p === now.probe ? yes : no);
    const line = (p, width) => ({ mode: "lines", legendgroup: "g" + film.label(p), line: { color: film.colour(p), width } });
    const wholes = probes.map((p) => ({ ...quiet, ...line(p, 1), ...film.path(p, T - 1), opacity: 0.4 }));
    const starts = { ...quiet, ...film.positions(0), mode: "markers",
      marker: { size: 6, color: c.panel, line: { color: probes.map(film.colour), width: 1.5 } } };
    const trails = probes.map((p) => ({ ...quiet, ...line(p, p === now.probe ? 4 : 2), ...film.path(p, now.frame),
      name: brief(film.title(p), 24), showlegend: first[p] }));
    const heads = { ...quiet, ...film.positions(now.frame), mode: "markers", hoverinfo: "text",
      customdata: probes.map((p) => plain(film.whole(p))), hovertemplate: "%{customdata}<extra></extra>",
      marker: { size: chosen(15, 10), color: probes.map(film.colour), opacity: 1,
        line: { color: chosen(c.ink, c.panel), width: chosen(2, 1) } } };
    const along = (i, values) => axis(c, `principal component ${i + 1} (${(100 * film.pca.shares[i]).toFixed(0)} % of the variance)`,
      { range: range(near ? film.ownEpoch(values) : values), zeroline: false });
    const legend = { orientation: "h", x: 0, y: 1.01, yanchor: "bottom", font: { size: 12 }, itemclick: false, itemdoubleclick: false };
    return { data: [...wholes, starts, ...trails, heads],
      layout: layout(c, along(0, film.pca.x), along(1, film.pca.y), { legend, uirevision: near ? now.epoch : "all" }) };
  });
  const traces = [...probes.map((p) => N + 1 + p), 2 * N + 1];
  return () => move("plane", [...probes.map((p) => film.path(p, now.frame)), film.positions(now.frame)], traces);
}

function attentionChart(film) {
  const { A, now } = film, [rows, columns] = A.shape;
  const gap = Math.max(rows, columns) < 12 ? 1 : 0, cells = { showgrid: false, zeroline: false, constrain: "domain" };
  chart("attention", (c) => {
    const changed = at("map-mode").value === "change", shown = film.weights(now.frame), start = film.weights(0);
    const values = changed
      ? { z: shown.map((row, i) => row.map((v, j) => v - start[i][j])), zmin: -film.swing, zmax: film.swing,
        colorscale: [[0, "#2b62d9"], [0.5, c.panel], [1, "#d9662b"]] }
      : { z: shown, zmin: A.low, zmax: A.high, colorscale: "Viridis" };
    const bar = { title: { text: changed ? "change of the weight" : "weight", side: "right" }, thickness: 12, outlinewidth: 0 };
    const down = rows === 1 ? { ...cells, showticklabels: false } : { ...cells, ...whole([0, rows]), scaleanchor: "x" };
    return {
      data: [{ type: "heatmap", ...values, xgap: gap, ygap: gap, colorbar: bar, hovertemplate: "%{z:.4f}<extra></extra>" }],
      layout: layout(c, axis(c, A.columns, { ...cells, ...whole([0, columns]) }), axis(c, A.rows, { ...down, autorange: "reversed" })),
    };
  });
  return () => draw("attention");
}

function changeChart(film) {
  const { A, N, now, probes } = film;
  const most = A.change.reduce((a, b) => Math.max(a, b ?? 0), 0) * 1.08 || 1;
  const head = () => ({ x: [film.t[now.frame]], y: [A.change[film.place(now.frame, now.probe)]] });
  chart("change", (c) => {
    const order = [...probes.filter((p) => p !== now.probe), now.probe];  // the chosen one in front
    const data = order.map((p) => ({ type: "scatter", mode: "lines", showlegend: false, opacity: p === now.probe ? 1 : 0.35,
      x: film.t, y: film.t.map((_, frame) => A.change[film.place(frame, p)]),
      line: { color: film.colour(p), width: p === now.probe ? 3 : 1.2 },
      text: plain(film.whole(p)), hovertemplate: "%{text}: %{y:.3g}<extra></extra>" }));
    data.push({ type: "scatter", mode: "markers", ...head(), showlegend: false, hoverinfo: "skip",
      marker: { size: 12, color: film.colour(now.probe), line: { color: c.ink, width: 2 } } });
    return { data, layout: layout(c, axis(c, "t", { range: range(film.t, 0.02) }),
      axis(c, "‖a(t) − a(0)‖ / ‖a(0)‖", { range: [0, most] }), { shapes: rug(c, film.jumps(), "") }) };
  });
  return () => move("change", [head()], [N]);
}

function stateChart(film) {
  const { now } = film, { size, most } = film.state;
  const line = (c) => ({ type: "line", x0: film.t[now.frame], x1: film.t[now.frame], y0: 0, y1: 1, yref: "y domain", line: { color: c.ink, width: 1.5 } });
  const shapes = (c) => [...rug(c, film.jumps(), ""), line(c)];
  chart("state", (c) => ({
    data: [{ type: "heatmap", x: film.t, y: [...Array(size).keys()].map((i) => i + 1), z: film.coordinates(), zmin: -most, zmax: most,
      colorscale: [[0, "#2b62d9"], [0.5, c.panel], [1, "#d9662b"]], colorbar: { thickness: 12, outlinewidth: 0 },
      hovertemplate: "coordinate %{y}, t = %{x:.2f}: %{z:.3g}<extra></extra>" }],
    layout: layout(c, axis(c, "t", { showgrid: false, zeroline: false }),
      axis(c, "coordinate", { showgrid: false, zeroline: false, autorange: "reversed", ...whole([0, size]) }), { shapes: shapes(c) }) }));
  return () => Plotly.relayout("state", { shapes: shapes(theme()) });
}

// Points move and nothing else is drawn again; a move that the next one overtakes is dropped.
const AT_ONCE = { transition: { duration: 0 }, frame: { duration: 0, redraw: false }, mode: "immediate" };
const move = (id, data, traces) => Plotly.animate(id, { data, traces }, AT_ONCE).catch(() => {});
