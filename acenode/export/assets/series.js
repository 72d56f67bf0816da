// Time series: ROC, calibration, error over time, records, classes over time, coupling.
const FOUND = DATA.series;
const TIMES = { h: "Time (hours)", s: "Time (seconds)", min: "Time (minutes)", d: "Time (days)" };
const timeTitle = (unit) => TIMES[unit] ?? (unit ? `Time (${plain(unit)})` : "Time");
// As acenode/data/variables.py: "patient 132539"; an id that starts with a word is a name already.
const subjectName = (id) => !DATA.subject || /^\p{L}{3}/u.test(id) ? id : `${DATA.subject} ${id}`;
const shownCount = (n) => n === null ? "?" : String(n);
const nothing = { type: "scatter", hoverinfo: "skip", showlegend: false };

// A unit square with its diagonal.
function square(c, x, y, traces) {
  const line = { ...nothing, x: [0, 1], y: [0, 1], mode: "lines", line: { color: c.muted, width: 1.5, dash: "dot" } };
  const unit = { range: [-0.02, 1.02], constrain: "domain", zeroline: false };
  return { data: [line, ...traces], layout: layout(c, axis(c, x, unit), axis(c, y, { ...unit, scaleanchor: "x" })) };
}

chart("roc", (c) => square(c, "False positive rate", "True positive rate", [{ type: "scatter", mode: "lines", showlegend: FOUND.roc.auc !== null,
  x: FOUND.roc.fpr, y: FOUND.roc.tpr, name: FOUND.roc.auc === null ? "" : `AUC ${FOUND.roc.auc.toFixed(3)}`, line: { color: c.accent, width: 2 },
  hovertemplate: "True positive rate %{y:.1%}<br>False positive rate %{x:.1%}<extra></extra>" }]));

chart("calibration", (c) => {
  const { predicted, observed, count } = FOUND.calibration, most = Math.max(1, ...count.map((n) => n ?? 0));
  return square(c, "Predicted probability", "Observed frequency", [{ type: "scatter", mode: "lines+markers", showlegend: false,
    x: predicted, y: observed, line: { color: c.accent, width: 1.5 }, customdata: count.map(shownCount),
    marker: { color: c.accent, size: count.map((n) => 6 + 12 * Math.sqrt((n ?? 0) / most)) },
    hovertemplate: "predicted %{x:.2f}, observed %{y:.2f}<br>%{customdata} cases<extra></extra>" }]);
});

// A thin line where the forecast begins, and its label.
const cutLine = (c, cut, suffix) => ({ type: "line", x0: cut, x1: cut, y0: 0, y1: 1, xref: "x" + suffix, yref: `y${suffix} domain`,
  line: { color: c.muted, width: 1, dash: "dot" } });
const cutWords = (c, cut) => ({ text: "Forecast", x: cut, y: 1, yref: "y domain", xanchor: "left", yanchor: "bottom", showarrow: false,
  font: { color: c.muted, size: 11 } });

chart("over_time", (c) => {
  const { t, mse, count, unit, cut } = FOUND.over_time, scale = DATA.scale;
  const data = [{ type: "scatter", mode: "lines+markers", x: t, y: mse.map((v) => v === null ? null : v * scale), connectgaps: false,
    line: { color: c.accent, width: 2 }, marker: { size: 6 }, customdata: count.map(shownCount),
    hovertemplate: "%{y:.4g} at %{x:.3~g}, %{customdata} points<extra></extra>" }];
  return { data, layout: layout(c, axis(c, timeTitle(unit), { zeroline: false }),
    axis(c, DATA.error, { rangemode: "tozero", zeroline: false }),
    cut !== null && t[0] < cut ? { shapes: [cutLine(c, cut, "")], annotations: [cutWords(c, cut)], margin: { l: 58, r: 16, t: 24, b: 46 } } : {}) };
});

// One record at a time, with a small chart for each variable.
function fill(select, names) {
  names.forEach((name, i) => { const option = document.createElement("option"); option.value = i; option.textContent = name; select.append(option); });
}

function variable(c, v, suffix, first) {
  const place = { xaxis: "x" + suffix, yaxis: "y" + suffix, type: "scatter", showlegend: first };
  const drawn = v.grid.map((_, i) => i).filter((i) => v.low[i] !== null && v.high[i] !== null && i < v.low.length);
  const band = { ...place, ...nothing, mode: "lines", fill: "toself", fillcolor: c.accent, opacity: 0.22, line: { width: 0 }, legendgroup: "mean",
    x: [...drawn, ...[...drawn].reverse()].map((i) => v.grid[i]), y: [...drawn.map((i) => v.high[i]), ...[...drawn].reverse().map((i) => v.low[i])] };
  const hover = (name) => ({ name, legendgroup: name, hovertemplate: `%{y:.4g} at %{x:.3~f}<extra>${name}</extra>` });
  return [...(drawn.length ? [band] : []),
    { ...place, ...hover("Mean"), mode: "lines", x: v.grid, y: v.mean, line: { color: c.accent, width: 2 }, connectgaps: false },
    { ...place, ...hover("Observed"), mode: "markers", x: v.t, y: v.x, marker: { color: c.muted, size: 5 } },
    { ...place, ...hover("Held out"), mode: "markers", x: v.target_t, y: v.target_x, showlegend: first && v.target_t.length > 0,
      marker: { color: c.warm, size: 7, symbol: "diamond-open", line: { width: 1.5 } } }];
}

if (at("record")) {
  fill(at("record"), FOUND.records.map((r) => subjectName(r.id)));
  const show = (c) => {
    const record = FOUND.records[Number(at("record").value)], { variables, cut, jumps } = record, n = variables.length;
    const dense = jumps.length > 0 || variables.some((v) => v.grid.length > 200);  // dense charts need the full width
    const columns = dense || innerWidth <= 900 ? 1 : Math.min(n, 3), rows = Math.ceil(n / columns), gap = 0.05, rise = (dense ? 0.2 : 0.3) / rows;
    const wide = (1 - gap * (columns - 1)) / columns, high = (1 - rise * (rows - 1)) / rows, axes = {}, annotations = [], shapes = [];
    const data = variables.flatMap((v, i) => {
      const suffix = i ? String(i + 1) : "", column = i % columns, row = Math.floor(i / columns), last = row === rows - 1;
      const across = [column * (wide + gap), column * (wide + gap) + wide], top = 1 - row * (high + rise);
      axes["xaxis" + suffix] = { ...axis(c, last ? timeTitle(record.unit) : ""), domain: across, anchor: "y" + suffix, zeroline: false,
        showticklabels: last || columns > 1, ...(i ? { matches: "x" } : {}) };
      const unit = { title: { text: plain(v.unit || "Value"), font: { size: 11 } } };
      axes["yaxis" + suffix] = { ...axis(c, ""), ...unit, domain: [Math.max(0, top - high), top], anchor: "x" + suffix, zeroline: false, nticks: 5 };
      annotations.push({ text: brief(v.title, 40), x: across[0], y: top, xref: "paper", yref: "paper", xanchor: "left", yanchor: "bottom", showarrow: false });
      shapes.push(...rug(c, jumps, suffix));
      if (cut !== null) shapes.push(cutLine(c, cut, suffix));
      return variable(c, v, suffix, i === 0);
    });
    if (cut !== null) annotations.push(cutWords(c, cut));
    if (jumps.length) data.push({ ...nothing, x: [null], y: [null], mode: "markers", name: "State jumps", showlegend: true,
      marker: { symbol: "line-ns-open", color: c.muted, size: 9 } });
    const tall = 120 + (dense ? 190 : 220) * rows;
    at("records").style.height = `${tall}px`;
    return { data, layout: { ...layout(c, undefined, undefined, { annotations, shapes, margin: { l: 46, r: 16, t: 64, b: 46 } }), ...axes,
      legend: { orientation: "h", x: 0, y: 1 + 34 / tall, yanchor: "bottom" }, uirevision: record.id } };
  };
  chart("records", show);
  at("record").addEventListener("change", () => draw("records"));
}

// The true classes above the predicted ones, for all records.
chart("bands", (c) => {
  const records = FOUND.bands, n = records.length, height = 100 + 108 * n, data = [], axes = {}, annotations = [], named = new Set();
  at("bands").style.height = `${height}px`;
  const part = 1 / n, inner = part * 0.64;
  records.forEach((r, i) => {
    const suffix = i ? String(i + 1) : "", top = 1 - i * part, low = top - inner;
    axes["xaxis" + suffix] = { ...axis(c, i === n - 1 ? timeTitle(r.unit) : ""), domain: [0, 1], anchor: "y" + suffix, zeroline: false, showgrid: false };
    axes["yaxis" + suffix] = { ...axis(c, ""), domain: [Math.max(0, low), top], anchor: "x" + suffix, type: "category", showgrid: false,
      categoryorder: "array", categoryarray: ["Predicted", "True"], range: [-0.5, 1.5] };
    const accuracy = r.accuracy === null ? "" : `, ${(100 * r.accuracy).toFixed(0)}% correct`;
    annotations.push({ text: brief(subjectName(r.id), 60) + accuracy, x: 0, y: top, xref: "paper", yref: "paper", xanchor: "left", yanchor: "bottom", showarrow: false });
    const lanes = [["True", r.true], ["Predicted", r.predicted]].flatMap(([lane, list]) => list.map(([from, to, kind]) => ({ lane, from, to, kind })));
    for (const kind of [...new Set(lanes.map((s) => s.kind))].sort((a, b) => a - b)) {
      const own = lanes.filter((s) => s.kind === kind), name = plain(className(kind));
      data.push({ type: "bar", orientation: "h", xaxis: "x" + suffix, yaxis: "y" + suffix, name, legendgroup: String(kind), showlegend: !named.has(kind),
        legendrank: 1000 + kind % 100, base: own.map((s) => s.from), x: own.map((s) => s.to - s.from), y: own.map((s) => s.lane), width: 0.82,
        marker: { color: classColour(kind), line: { width: 0 } }, customdata: own.map((s) => [s.from, s.to, name]),
        hovertemplate: "%{customdata[2]}, %{customdata[0]:.3~f} to %{customdata[1]:.3~f}<extra>%{y}</extra>" });
      named.add(kind);
    }
  });
  return { data, layout: { ...layout(c, undefined, undefined, { annotations, barmode: "overlay", margin: { l: 70, r: 16, t: 64, b: 46 } }), ...axes,
    legend: { orientation: "h", x: 0, y: 1 + 30 / height, yanchor: "bottom" } } };
});

for (const side of ["known", "learned"]) chart(`coupling-${side}`, (c) => {
  const { names, titles, known, learned } = FOUND.coupling, z = FOUND.coupling[side], places = names.map((_, i) => i);
  const most = Math.max(...[...(known ?? []), ...(learned ?? [])].flat().map((v) => Math.abs(v ?? 0))) || 1;  // one scale for both
  const cells = (texts, most) => ({ tickmode: "array", tickvals: places, ticktext: texts.map((name) => brief(name, most)), showgrid: false,
    zeroline: false, constrain: "domain" });
  const data = [{ type: "heatmap", z, x: places, y: places, zmin: -most, zmax: most, xgap: 1, ygap: 1,
    colorscale: [[0, "#2b62d9"], [0.5, c.panel], [1, "#d9662b"]], colorbar: { thickness: 12, outlinewidth: 0, tickformat: "+.0%", title: { text: "vs uniform", side: "right" } },
    text: z.map((row, i) => row.map((v, j) => `${plain(titles[i])} ← ${plain(titles[j])}: ${v === null ? "none" : `${v > 0 ? "+" : ""}${(100 * v).toFixed(1)}%`}`)), hoverinfo: "text" }];
  return { data, layout: layout(c, axis(c, "Influencing variable", cells(names, 14)), axis(c, "Influenced variable", { ...cells(titles, 32), autorange: "reversed" })) };
});
