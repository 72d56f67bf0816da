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

// Returns all steps that any run has, and the row of each step in each run (-1 if it lacks the step).
function align(tables) {
  const next = tables.map(() => 0), steps = tables.map((t) => t.get("step") ?? []);
  const most = steps.reduce((sum, s) => sum + s.length, 0), grid = [], rows = tables.map(() => new Int32Array(most).fill(-1));
  for (;;) {
    let step = Infinity;
    for (let r = 0; r < steps.length; r++) if (next[r] < steps[r].length) step = Math.min(step, steps[r][next[r]]);
    if (step === Infinity) return { grid, rows };
    for (let r = 0; r < steps.length; r++) if (steps[r][next[r]] === step) rows[r][grid.length] = next[r]++;
    grid.push(step);
  }
}

// Mean over runs, and a band of mean ± sample standard deviation, or of both values if there are only two.
function spread({ grid, rows }, columns, positive) {
  const n = grid.length, y = new Float64Array(n).fill(NaN), low = y.slice(), high = y.slice();
  for (let i = 0; i < n; i++) {
    let count = 0, sum = 0, min = Infinity, max = -Infinity, squares = 0;
    for (let r = 0; r < rows.length; r++) {
      const v = columns[r] && rows[r][i] >= 0 ? columns[r][rows[r][i]] : NaN;
      if (Number.isNaN(v)) continue;
      count++; sum += v; min = Math.min(min, v); max = Math.max(max, v);
    }
    if (!count) continue;
    const mean = y[i] = sum / count;
    if (count === 2) [low[i], high[i]] = [min, max];
    if (count < 3) continue;
    for (let r = 0; r < rows.length; r++) {
      const v = columns[r] && rows[r][i] >= 0 ? columns[r][rows[r][i]] : NaN;
      if (!Number.isNaN(v)) squares += (v - mean) ** 2;
    }
    const std = Math.sqrt(squares / (count - 1));
    low[i] = positive && mean - std <= 0 ? min : mean - std; // a log axis cannot show values below zero
    high[i] = mean + std;
  }
  return { y, low, high };
}

// The x values of a group: sums of the runs' mean increments, which never decrease when one run ends early.
function commonX({ grid, rows }, xs) {
  const x = new Float64Array(grid.length);
  for (let i = 0; i < grid.length; i++) {
    let sum = 0, count = 0;
    for (let r = 0; r < rows.length; r++) {
      const row = rows[r][i];
      if (row < 0 || (i > 0 && row === 0)) continue;
      sum += i > 0 ? xs[r][row] - xs[r][row - 1] : xs[r][row];
      count++;
    }
    x[i] = (i > 0 ? x[i - 1] : 0) + (count ? sum / count : 0);
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
