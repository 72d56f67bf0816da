// The series of a chart: single runs, or the mean and spread of a group's runs.

const PALETTE = ["#2b62d9", "#c2541b", "#1f7a4d", "#8b4fc4", "#b0781c", "#1b8a9a", "#c23b6b", "#5b6b7a"];

// One series for each run, or with `bands` one for each group.
export function seriesOf(data, runs) {
  const groups = new Map();
  data.runs.forEach((given, i) => {
    const key = data.bands ? `group ${given.group ?? given.label}` : `run ${given.id}`;
    if (!groups.has(key)) groups.set(key, { key, label: String((data.bands ? given.group : null) ?? given.label ?? given.id),
      colour: given.colour || PALETTE[i % PALETTE.length], runs: [] });
    groups.get(key).runs.push(runs.get(given.id));
  });
  const series = [...groups.values()];
  for (const one of series) if (one.runs.length > 1) one.label += ` · ${one.runs.length} runs`;
  return series;
}

// Exponential moving average with bias correction; NaN is skipped.
function smooth(values, weight) {
  let sum = 0, total = 0;
  return values.map((v) => {
    if (Number.isNaN(v)) return NaN;
    sum = weight * sum + (1 - weight) * v;
    total = weight * total + (1 - weight);
    return sum / total;
  });
}

// Returns all steps that any run has, and where each step is among the rows of each run: between two rows if the run
// lacks it, because recorded runs keep some of their steps only; NaN before its first step and after its last.
function align(tables) {
  const steps = tables.map((t) => t.get("step") ?? []);
  const grid = [...new Set(steps.flatMap((s) => [...s]))].sort((a, b) => a - b);
  const places = steps.map((own) => {
    const place = new Float64Array(grid.length).fill(NaN);
    for (let i = 0, row = 0; i < grid.length && own.length; i++) {
      while (row < own.length - 1 && own[row + 1] <= grid[i]) row++;
      if (own[row] === grid[i]) place[i] = row;
      else if (own[row] < grid[i] && row < own.length - 1) place[i] = row + (grid[i] - own[row]) / (own[row + 1] - own[row]);
    }
    return place;
  });
  return { grid, places };
}

// The value at a place among the rows, linear between two of them.
function valueAt(column, place) {
  if (!column || Number.isNaN(place)) return NaN;
  const row = Math.floor(place), share = place - row;
  return share > 0 ? column[row] + share * (column[row + 1] - column[row]) : column[row];
}

// Mean over runs, and a band of mean ± sample standard deviation, or of both values if there are only two.
function spread({ grid, places }, columns, positive) {
  const n = grid.length, y = new Float64Array(n).fill(NaN), low = y.slice(), high = y.slice();
  for (let i = 0; i < n; i++) {
    const values = columns.map((column, r) => valueAt(column, places[r][i])).filter((v) => !Number.isNaN(v));
    const count = values.length, min = Math.min(...values), max = Math.max(...values);
    if (!count) continue;
    const mean = y[i] = values.reduce((sum, v) => sum + v, 0) / count;
    if (count === 2) [low[i], high[i]] = [min, max];
    if (count < 3) continue;
    const std = Math.sqrt(values.reduce((sum, v) => sum + (v - mean) ** 2, 0) / (count - 1));
    low[i] = positive && mean - std <= 0 ? min : mean - std; // a log axis cannot show values below zero
    high[i] = mean + std;
  }
  return { y, low, high };
}

// The x values of a group: sums of the runs' mean increments, which never decrease when one run ends early.
function commonX({ grid, places }, xs) {
  const x = new Float64Array(grid.length);
  for (let i = 0; i < grid.length; i++) {
    const increments = xs.map((own, r) => valueAt(own, places[r][i]) - (i > 0 ? valueAt(own, places[r][i - 1]) : 0))
      .filter((v) => !Number.isNaN(v));
    x[i] = (i > 0 ? x[i - 1] : 0) + (increments.length ? increments.reduce((sum, v) => sum + v, 0) / increments.length : 0);
  }
  return x;
}

// Returns the values of one quantity of a series: { x, y, raw, low, high }.
export function curveOf(series, of, key, range, view) {
  const { kind, weight, positive } = view, { runs } = series;
  const columns = (name) => runs.map((run) => run[of].get(name));
  const smoothed = (name) => columns(name).map((c) => c && weight > 0 ? smooth(c, weight) : c);
  if (!runs.some((run) => run[of].has(key))) return null;
  if (runs.length === 1) {
    const [y] = smoothed(key), edges = range?.every((k) => runs[0][of].has(k)) ? range.map((k) => smoothed(k)[0]) : [];
    return { x: runs[0].x(of, kind), y, raw: weight > 0 ? columns(key)[0] : null, low: edges[0], high: edges[1] };
  }
  const rows = align(runs.map((run) => run[of]));
  return { x: commonX(rows, runs.map((run) => run.x(of, kind))), ...spread(rows, smoothed(key), positive),
    raw: weight > 0 ? spread(rows, columns(key), false).y : null };
}
