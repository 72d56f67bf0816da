// The test set: confusion matrix, accuracy by class, and t-SNE of the features.
const CLASSES = DATA.classes.map((_, i) => i);
const TICKS = { tickmode: "array", tickvals: CLASSES, ticktext: DATA.classes.map((name) => brief(name)), showgrid: false, zeroline: false };
const percent = (share) => share === null ? "no samples" : `${(100 * share).toFixed(1)}%`;

chart("confusion", (c) => {
  const counts = DATA.confusion.counts, sums = counts.map((row) => row.reduce((a, b) => a + b, 0));
  const shares = counts.map((row, i) => row.map((n) => sums[i] ? n / sums[i] : 0));
  const hover = (n, i, j) => `True: ${plain(className(i))}<br>Predicted: ${plain(className(j))}<br>${n} of ${sums[i]}`;
  const ink = (i, j) => shares[i][j] > 0.55 ? c.panel : counts[i][j] ? c.ink : c.muted;
  const annotations = CLASSES.length > 20 ? [] : counts.flatMap((row, i) => row.map((n, j) => (
    { x: j, y: i, text: String(n), showarrow: false, font: { size: CLASSES.length > 12 ? 10 : 12, color: ink(i, j) } })));
  const bar = { title: { text: "Share of the true class", side: "right" }, thickness: 12, outlinewidth: 0 };
  const data = [{ type: "heatmap", x: CLASSES, y: CLASSES, z: shares, zmin: 0, zmax: 1, xgap: 1, ygap: 1, colorbar: bar,
    colorscale: [[0, c.panel], [1e-4, c.tint], [1, c.accent]],  // a single error stays visible
    text: counts.map((row, i) => row.map((n, j) => hover(n, i, j))), hoverinfo: "text" }];
  return { data, layout: layout(c, axis(c, "Predicted class", TICKS),
    axis(c, "True class", { ...TICKS, autorange: "reversed" }), { annotations }) };
});

chart("recall", (c) => {
  const shares = DATA.confusion.accuracy;
  const data = [{ type: "bar", orientation: "h", y: CLASSES, x: shares.map((share) => share ?? 0),
    marker: { color: CLASSES.map(classColour) }, cliponaxis: false,
    text: shares.map(percent), textposition: CLASSES.length > 20 ? "none" : "outside",
    customdata: CLASSES.map((i) => `${plain(className(i))}: ${percent(shares[i])}`), hovertemplate: "%{customdata}<extra></extra>" }];
  const across = axis(c, "Accuracy", { range: [0, 1.17], tickformat: ".0%", tickvals: [0, 0.25, 0.5, 0.75, 1] });
  return { data, layout: layout(c, across, axis(c, "Class", { ...TICKS, autorange: "reversed" })) };
});

chart("tsne", (c) => {
  const points = DATA.tsne, places = points.label.map((_, i) => i);
  const data = [...new Set(points.label)].sort((a, b) => a - b).map((label) => {
    const own = places.filter((i) => points.label[i] === label);
    return { type: "scatter", mode: "markers", name: brief(className(label)),
      x: own.map((i) => points.x[i]), y: own.map((i) => points.y[i]),
      marker: { size: 7, color: classColour(label), opacity: 0.8, line: { width: 0.5, color: c.panel } },
      customdata: own.map((i) => `${plain(className(label))}, test sample ${points.index[i]}`),
      hovertemplate: "%{customdata}<extra></extra>" };
  });
  const legend = { title: { text: "Class" }, itemsizing: "constant", orientation: "v", x: 1.01, y: 1, yanchor: "top" };
  return { data, layout: layout(c, axis(c, "t-SNE 1", { zeroline: false }),
    axis(c, "t-SNE 2", { zeroline: false, scaleanchor: "x" }), { legend }) };
});
