// The test set: who is taken for whom, and where the features lie.
const CLASSES = DATA.classes.map((_, i) => i);
const ticks = { tickmode: "array", tickvals: CLASSES, ticktext: DATA.classes.map((name) => brief(name)), showgrid: false, zeroline: false };
const percent = (share) => share === null ? "no sample" : (100 * share).toFixed(1) + " %";

chart("confusion", (c) => {
  const counts = DATA.confusion.counts, sums = counts.map((row) => row.reduce((a, b) => a + b, 0));
  const shares = counts.map((row, i) => row.map((n) => sums[i] ? n / sums[i] : 0));
  const hover = counts.map((row, i) => row.map((n, j) => `true ${plain(className(i))}<br>taken for ${plain(className(j))}<br>${n} of ${sums[i]}`));
  const data = [{ type: "heatmap", x: CLASSES, y: CLASSES, z: shares, zmin: 0, zmax: 1, colorscale: [[0, c.panel], [1e-4, c.tint], [1, c.accent]],
    xgap: 1, ygap: 1, text: hover, hoverinfo: "text", colorbar: { title: { text: "share of the true class", side: "right" }, thickness: 12, outlinewidth: 0 } }];
  const annotations = CLASSES.length > 20 ? [] : counts.flatMap((row, i) => row.map((n, j) => ({ x: j, y: i, text: String(n), showarrow: false,
    font: { size: CLASSES.length > 12 ? 10 : 12, color: shares[i][j] > 0.55 ? c.panel : n ? c.ink : c.muted } })));
  return { data, layout: layout(c, axis(c, "predicted class", ticks), axis(c, "true class", { ...ticks, autorange: "reversed" }), { annotations }) };
});

chart("recall", (c) => ({
  data: [{ type: "bar", orientation: "h", y: CLASSES, x: DATA.confusion.accuracy.map((share) => share ?? 0), marker: { color: CLASSES.map(classColour) },
    text: DATA.confusion.accuracy.map(percent), textposition: CLASSES.length > 20 ? "none" : "outside", cliponaxis: false,
    customdata: CLASSES.map((i) => `${plain(className(i))}: ${percent(DATA.confusion.accuracy[i])}`), hovertemplate: "%{customdata}<extra></extra>" }],
  layout: layout(c, axis(c, "accuracy", { range: [0, 1.17], tickformat: ".0%", tickvals: [0, 0.25, 0.5, 0.75, 1] }), axis(c, "class", { ...ticks, autorange: "reversed" })),
}));

chart("tsne", (c) => {
  const points = DATA.tsne, groups = new Map();
  points.label.forEach((label, i) => groups.set(label, [...(groups.get(label) || []), i]));
  const data = [...groups.keys()].sort((a, b) => a - b).map((label) => {
    const own = groups.get(label);
    return { type: "scatter", mode: "markers", name: brief(className(label)), x: own.map((i) => points.x[i]), y: own.map((i) => points.y[i]),
      marker: { size: 7, color: classColour(label), opacity: 0.8, line: { width: 0.5, color: c.panel } },
      customdata: own.map((i) => `${plain(className(label))}, test sample ${points.index[i]}`), hovertemplate: "%{customdata}<extra></extra>" };
  });
  return { data, layout: layout(c, axis(c, "t-SNE 1", { zeroline: false }), axis(c, "t-SNE 2", { zeroline: false, scaleanchor: "x" }),
    { legend: { title: { text: "class" }, itemsizing: "constant", orientation: "v", x: 1.01, y: 1, yanchor: "top" } }) };
});
