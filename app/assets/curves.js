// The training curves of one or several runs, live: records are polled, kept in columns and drawn thinned.
import { adoptStyles, plotly } from "./load_plotly.js";

const BUSY = new Set(["queued", "running"]);
const REMEMBERED = "acenode.curves";
const PALETTE = ["#2b62d9", "#c2541b", "#1f7a4d", "#8b4fc4", "#b0781c", "#1b8a9a", "#c23b6b", "#5b6b7a"];
const AXES = { step: { title: "step", hover: "step %{x:.0f}" }, epoch: { title: "epoch", hover: "epoch %{x:.2~f}" },
  time: { title: "time (s)", hover: "%{x:.1f} s" } };
const TICK = 500, REST = 5000, MOST = 1500, SIDES = 200, AT_ONCE = 40;

// `dash` tells the quantities apart, the colour tells the runs apart; where there is one run, `tint` helps the dash.
const PANELS = [
  { name: "losses", title: () => "Losses", of: "steps", log: true,
    curves: () => [{ key: "L_h", name: "L_h" }, { key: "L_a", name: "L_a", dash: "dash", tint: "warm" }] },
  { name: "metric", title: (metric) => metric, of: "epochs",
    curves: (metric) => [{ key: `train_${metric}`, name: "training", dash: "dot", tint: "warm" },
      { key: `validation_${metric}`, name: "validation", best: true }] },
  { name: "nfe", title: () => "Function evaluations", of: "steps", ode: true, zero: true,
    curves: () => [{ key: "nfe_forward", name: "forward" },
      { key: "nfe_backward", name: "backward", dash: "dash", tint: "warm" },
      { key: "nfe_forward_a", name: "forward (2)", two: true, tint: "cool" },
      { key: "nfe_backward_a", name: "backward (2)", two: true, dash: "dash", tint: "grape" }] },
  { name: "dt", title: () => "Step sizes", of: "steps", ode: true, zero: true,
    curves: () => [{ key: "dt_mean", name: "mean", range: ["dt_min", "dt_max"] }] },
  { name: "gradients", title: () => "Gradient norms", of: "steps", zero: true,
    curves: () => [{ key: "grad_h", name: "∇L_h" }, { key: "grad_a", name: "∇L_a", dash: "dash", tint: "warm" }] },
  { name: "seconds", title: () => "Seconds per iteration", of: "steps", zero: true,
    curves: () => [{ key: "seconds", name: "seconds" }] },
  { name: "lr", title: () => "Learning rate", of: "steps", zero: true, exact: true,
    curves: () => [{ key: "lr", name: "learning rate" }] },
];
const STEP_KEYS = new Set(PANELS.filter((p) => p.of === "steps").flatMap((p) => p.curves()
  .flatMap((c) => [c.key, ...(c.range ?? [])])).concat("step", "epoch"));

// Columns ------------------------------------------------------------------------------------------------------

// Records as growing columns; what a record lacks is NaN. `version` changes whenever the content does.
class Table {
  constructor(wanted) {
    [this.wanted, this.length, this.capacity, this.version, this.columns] = [wanted, 0, 256, 0, new Map()];
  }

  column(key) {
    if (!this.columns.has(key)) this.columns.set(key, new Float64Array(this.capacity).fill(NaN));
    return this.columns.get(key);
  }

  push(record) {
    if (this.length === this.capacity) {
      this.capacity *= 2;
      for (const [key, old] of this.columns) {
        const column = new Float64Array(this.capacity).fill(NaN, old.length);
        column.set(old);
        this.columns.set(key, column);
      }
    }
    for (const key in record) {
      const value = typeof record[key] === "boolean" ? Number(record[key]) : record[key];
      if (typeof value === "number" && (!this.wanted || this.wanted.has(key))) this.column(key)[this.length] = value;
    }
    this.length++;
    this.version++;
  }

  // Keep the rows before the first whose step is `step` or later.
  cut(step) {
    const length = below(this.column("step"), step, this.length);
    if (length === this.length) return;
    for (const column of this.columns.values()) column.fill(NaN, length, this.length);
    this.length = length;
    this.version++;
  }

  get(key) { return this.columns.get(key)?.subarray(0, this.length) ?? null; }
  has(key) { return this.get(key)?.some((v) => !Number.isNaN(v)) ?? false; }
}

// How many of the first `length` ascending values are smaller than `value`.
function below(values, value, length) {
  let lo = 0, hi = length;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (values[mid] < value) lo = mid + 1; else hi = mid;
  }
  return lo;
}

// Runs ---------------------------------------------------------------------------------------------------------

class Run {
  constructor(given) {
    Object.assign(this, { given, offset: 0, due: 0, status: null, began: undefined, gone: false, answered: false });
    this.clear();
  }

  clear() {
    const version = (this.steps?.version ?? 0) + 1, later = (this.epochs?.version ?? 0) + 1;
    this.steps = new Table(STEP_KEYS);
    this.epochs = new Table(null);
    [this.steps.version, this.epochs.version] = [version, later];
  }

  get busy() { return this.status !== null && BUSY.has(this.status.state); }

  // An answer to a question from byte `asked` on; whether there is something to draw.
  take(answer, asked) {
    this.answered = true;
    if (answer.gone) {
      const news = !this.gone;
      if (this.steps.length) this.clear();
      Object.assign(this, { gone: true, status: null, offset: 0, began: undefined });
      return news;
    }
    const status = answer.status ?? {}, first = this.status === null || this.gone;
    const again = (this.began !== undefined && status.began !== this.began) || answer.offset < asked;
    Object.assign(this, { status, began: status.began, gone: false });
    if (again && asked > 0) {
      this.offset = 0; // resumed: what is drawn stays until the file's beginning is here
      this.due = 0;
      return true;
    }
    if (asked === 0 && this.steps.length + this.epochs.length > 0) this.clear();
    this.offset = answer.offset;
    let records = 0;
    for (const line of (answer.lines ?? "").split("\n")) if (line) records += this.add(line);
    return records > 0 || first;
  }

  add(line) {
    let record;
    try { record = JSON.parse(line); } catch { return 0; } // a line that was torn
    if (!record || typeof record.step !== "number") return 0;
    if (record.kind === "step") this.addStep(record);
    else if (record.kind === "epoch") this.addEpoch(record);
    return 1;
  }

  addStep(record) {
    const { steps } = this;
    if (steps.length && record.step <= steps.column("step")[steps.length - 1]) {
      steps.cut(record.step);
      this.epochs.cut(record.step + 1);
    }
    const i = steps.length, epoch = typeof record.epoch === "number" ? record.epoch : 0;
    const same = i > 0 && steps.column("epoch")[i - 1] === epoch;
    const begun = same ? steps.column("step")[i - 1] - steps.column("within")[i - 1] : record.step;
    const before = i > 0 ? steps.column("time")[i - 1] : 0;
    steps.push(record);
    steps.column("epoch")[i] = epoch;
    steps.column("within")[i] = record.step - begun;
    steps.column("time")[i] = before + (Number.isFinite(record.seconds) ? record.seconds : 0);
  }

  addEpoch(record) {
    this.epochs.cut(record.step);
    const time = this.steps.get("time"), row = below(this.steps.column("step"), record.step, this.steps.length) - 1;
    this.epochs.push(record);
    this.epochs.column("time")[this.epochs.length - 1] = row >= 0 ? time[row] : record.elapsed ?? NaN;
  }

  // Iterations an epoch: known once one has ended, estimated from the progress before.
  iterations() {
    const { steps, epochs, status } = this;
    if (epochs.length) return epochs.column("step")[0] / Math.max(1, epochs.column("epoch")[0]);
    const seen = steps.length ? steps.column("within")[steps.length - 1] + 1 : 1;
    const guess = status?.progress > 0 && status.epochs > 0 ? Math.round(status.step / (status.progress * status.epochs)) : 0;
    return Math.max(seen, guess || 0);
  }

  x(of, kind) {
    const table = this[of];
    if (kind !== "epoch" || of === "epochs") return table.get(kind) ?? new Float64Array(0);
    const epoch = table.get("epoch"), within = table.get("within"), n = this.iterations();
    return epoch ? epoch.map((e, i) => e + Math.min(1, within[i] / n)) : new Float64Array(0);
  }

  latest(of, key) {
    const values = this[of].get(key);
    for (let i = (values?.length ?? 0) - 1; i >= 0; i--) if (!Number.isNaN(values[i])) return values[i];
    return null;
  }
}

// Curves -------------------------------------------------------------------------------------------------------

// Exponential moving average that is fair to its beginning; gaps are stepped over.
function smooth(values, weight) {
  let sum = 0, share = 0;
  return values.map((v) => {
    if (Number.isNaN(v)) return NaN;
    sum = weight * sum + (1 - weight) * v;
    share = weight * share + (1 - weight);
    return sum / share;
  });
}

// The steps that any of the runs has, and in which row each run has them (-1: it has not).
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

// Mean over runs with mean ± sample std, or the smallest and largest where there are two.
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
    low[i] = positive && mean - std <= 0 ? min : mean - std; // a logarithm has no room below zero
    high[i] = mean + std;
  }
  return { y, low, high };
}

// The runs' common x: their mean advance, so that it never goes back where a run ends before the others.
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

// Thinning: buckets of 2^k rows counted from row 0, so that points already drawn stay where they are.

// Calls each(from, to) for the visible rows in full detail, and for what lies beside them coarsely.
function buckets(x, window, each) {
  const n = x.length, from = window ? Math.max(0, below(x, window[0], n) - 1) : 0;
  const to = window ? Math.min(n, below(x, window[1], n) + 1) : n;
  for (const [a, b, most] of [[0, from, SIDES], [from, to, MOST], [to, n, SIDES]]) {
    const size = b - a <= most ? 1 : 2 ** Math.ceil(Math.log2(2 * (b - a) / most));
    for (let start = a - a % size; start < b; start += size) each(Math.max(a, start), Math.min(b, start + size));
  }
}

function thinLine(x, y, window) {
  const out = { x: [], y: [] }, n = x.length;
  const put = (i) => { out.x.push(x[i]); out.y.push(y[i]); };
  buckets(x, window, (from, to) => {
    let lo = -1, hi = -1;
    for (let i = from; i < to; i++) {
      if (Number.isNaN(y[i])) continue;
      if (lo < 0 || y[i] < y[lo]) lo = i;
      if (hi < 0 || y[i] > y[hi]) hi = i;
    }
    if (lo < 0) put(from);
    else if (lo === hi) put(lo);
    else { put(Math.min(lo, hi)); put(Math.max(lo, hi)); }
  });
  if (n && out.x.at(-1) !== x[n - 1]) put(n - 1);
  return out;
}

// The area between two curves as closed outlines, one for each stretch without a gap.
function thinBand(x, low, high, window) {
  const out = { x: [], y: [] };
  let edge = [];
  const close = () => {
    if (edge.length > 1) {
      out.x.push(...edge.map((p) => p[0]), ...edge.map((p) => p[0]).reverse(), NaN);
      out.y.push(...edge.map((p) => p[2]), ...edge.map((p) => p[1]).reverse(), NaN);
    }
    edge = [];
  };
  buckets(x, window, (from, to) => {
    let min = Infinity, max = -Infinity;
    for (let i = from; i < to; i++) if (low[i] <= high[i]) { min = Math.min(min, low[i]); max = Math.max(max, high[i]); }
    if (min > max) close(); else edge.push([x[from], min, max]);
  });
  close();
  return out;
}

// What is drawn of one quantity of one series: {x, y, raw, low, high}.
function curveOf(series, of, key, range, view) {
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

// Words --------------------------------------------------------------------------------------------------------

const escaped = (text) => brief(String(text), 40).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const brief = (text, most) => text.length > most ? `${text.slice(0, most - 1)}…` : text;
const number = (value) => Number.isFinite(value) ? String(Number(value.toPrecision(4))) : "–";

function timeLeft(seconds) {
  if (!Number.isFinite(seconds) || seconds <= 0) return "";
  if (seconds < 90) return `about ${seconds < 10 ? Math.ceil(seconds) : 5 * Math.round(seconds / 5)} s left`;
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? `about ${minutes} min left` : `about ${Math.floor(minutes / 60)} h ${minutes % 60} min left`;
}

function stage(status) {
  if (!status.epochs) return "";
  if (!BUSY.has(status.state)) return `${status.epoch} of ${status.epochs} epochs`;
  if (status.phase === "testing") return "testing";
  return `epoch ${Math.min((status.epoch ?? 0) + 1, status.epochs)} of ${status.epochs}`;
}

// Why a panel is empty.
function emptyBecause(panel, runs) {
  if (!runs.length) return "No run is chosen.";
  if (!runs.every((run) => run.answered)) return "Loading…";
  const busy = runs.some((run) => run.busy);
  if (runs.every((run) => run.gone)) return "The run was deleted.";
  if (!runs.some((run) => run.steps.length)) return busy ? "Waiting for the first iteration…" : "No iteration was recorded.";
  if (panel.of === "epochs") return runs.some((run) => run.epochs.length) ? "Not recorded by this run."
    : busy ? "No epoch has ended yet." : "No epoch has ended.";
  return panel.ode && !runs.some((run) => run.steps.has("nfe_forward") || run.steps.has("nfe_forward_a"))
    ? "This method solves no ODE." : "Not recorded by this run.";
}

// Elements -----------------------------------------------------------------------------------------------------

function make(tag, name, parent, text) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  parent?.append(element);
  return element;
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
  element.hidden = text === "";
}

// A piece of a curve, as a key to its dash.
function sample(parent, colour, dash, width, marker) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 10");
  const shape = document.createElementNS(svg.namespaceURI, marker ? "circle" : "path");
  for (const [k, v] of Object.entries(marker ? { cx: 12, cy: 5, r: 4 } : { d: "M1 5H23" })) shape.setAttribute(k, v);
  Object.assign(shape.style, { stroke: colour, strokeWidth: width, fill: "none",
    strokeDasharray: { dash: "6 4", dot: "2 3" }[dash] ?? "none" });
  svg.append(shape);
  parent.append(svg);
}

function recall() {
  try { return JSON.parse(localStorage.getItem(REMEMBERED)) ?? {}; } catch { return {}; }
}

// The component ------------------------------------------------------------------------------------------------

export function mount(element, data, send) {
  const root = make("div", "ace-curves", element);
  const strips = make("div", "strips", root), lost = make("p", "lost", root, "Connection lost, trying again…");
  lost.hidden = true;
  lost.setAttribute("role", "status");
  const bar = make("div", "bar", root), legend = make("div", "legend", root), grid = make("div", "grid", root);
  const runs = new Map(), panels = new Map(), shown = new Map(), hidden = new Set(), inView = new Set(), queue = new Set();
  const settings = { smoothing: 0, log: false, x: "step", two: false, ...data.settings, ...recall() };
  settings.smoothing = Math.min(0.99, Math.max(0, Number(settings.smoothing) || 0));
  if (!Object.hasOwn(AXES, settings.x)) settings.x = "step";
  let Plotly = null, theme = null, series = [], destroyed = false, frame = 0, timer = 0, failures = 0, flushed = -TICK;
  let drawn = 0, lag = 0, received = 0, request = null, said = "";

  // Controls and legend

  function remember() {
    try { localStorage.setItem(REMEMBERED, JSON.stringify(settings)); } catch { /* a private window keeps nothing */ }
  }

  function control(parent, text, input, read) {
    const label = make("label", "", parent, text);
    label.append(input);
    input.addEventListener("input", () => { read(); remember(); drawAll(); });
    return label;
  }

  const slider = make("input"), weight = make("output");
  Object.assign(slider, { type: "range", min: 0, max: 0.99, step: 0.01, value: settings.smoothing });
  weight.textContent = settings.smoothing.toFixed(2);
  control(bar, "Smoothing", slider, () => {
    settings.smoothing = Number(slider.value);
    weight.textContent = settings.smoothing.toFixed(2);
  }).append(weight);
  const select = make("select");
  for (const kind of Object.keys(AXES)) Object.assign(make("option", "", select, kind), { value: kind });
  select.value = settings.x;
  control(bar, "x axis", select, () => { settings.x = select.value; });
  const log = Object.assign(make("input"), { type: "checkbox", checked: Boolean(settings.log) });
  const logLabel = control(bar, "Log scale for losses", log, () => { settings.log = log.checked; });
  logLabel.prepend(log);

  function drawLegend() {
    legend.replaceChildren();
    legend.hidden = series.length < 2;
    for (const one of series) {
      const button = make("button", "", legend);
      Object.assign(button, { type: "button", title: "Click to hide or show, double-click to show it alone" });
      make("span", "swatch", button).style.backgroundColor = one.colour;
      make("span", "name", button, one.label);
      button.setAttribute("aria-pressed", String(!hidden.has(one.key)));
      const toggle = (change) => () => {
        change();
        series.forEach((s, i) => legend.children[i].setAttribute("aria-pressed", String(!hidden.has(s.key))));
        drawAll();
      };
      button.addEventListener("click", toggle(() => { if (!hidden.delete(one.key)) hidden.add(one.key); }));
      button.addEventListener("dblclick", toggle(() => {
        const alone = series.every((s) => (s.key === one.key) !== hidden.has(s.key));
        hidden.clear();
        if (!alone) for (const s of series) if (s.key !== one.key) hidden.add(s.key);
      }));
    }
  }

  // Runs that are one line: each alone, or all of a group.
  function arrange() {
    const groups = new Map();
    data.runs.forEach((given, i) => {
      const key = data.bands ? `group ${given.group ?? given.label}` : `run ${given.id}`;
      if (!groups.has(key)) groups.set(key, { key, label: String((data.bands ? given.group : null) ?? given.label ?? given.id),
        colour: given.colour || PALETTE[i % PALETTE.length], runs: [] });
      groups.get(key).runs.push(runs.get(given.id));
    });
    series = [...groups.values()];
    for (const one of series) if (one.runs.length > 1) one.label += ` · ${one.runs.length} seeds`;
    drawLegend();
  }

  // Strips

  function strip(run) {
    const box = make("section", "strip", strips), head = make("div", "head", box), track = make("div", "track", box);
    const parts = { box, track, label: make("strong", "label", head), state: make("span", "state", head),
      stage: make("span", "", head), left: make("span", "", head), values: make("span", "values", head),
      fill: make("div", "fill", track), error: make("p", "error", box) };
    track.setAttribute("role", "progressbar");
    track.setAttribute("aria-label", String(run.given.label));
    shown.set(run, parts);
    return parts;
  }

  function writeStrips() {
    for (const [run, { box }] of shown) if (runs.get(run.given.id) !== run) { box.remove(); shown.delete(run); }
    for (const run of runs.values()) {
      const error = run.status?.error ? String(run.status.error) : "";
      if (!run.given.live && !error && !shown.has(run)) continue;
      const part = shown.get(run) ?? strip(run), status = run.status ?? {};
      const state = run.gone ? "deleted" : status.state ?? "…";
      part.box.hidden = !run.given.live && !error;
      part.box.dataset.state = state;
      write(part.label, String(run.given.label ?? run.given.id));
      write(part.state, state);
      write(part.stage, stage(status));
      write(part.left, state === "running" ? timeLeft(status.seconds_left) : "");
      const latest = [["L_h", "steps", "L_h"], ["L_a", "steps", "L_a"], [`validation ${data.metric}`, "epochs", `validation_${data.metric}`]];
      write(part.values, latest.map(([name, of, key]) => [name, run.latest(of, key)]).filter(([, v]) => v !== null)
        .map(([name, v]) => `${name}\u00a0${number(v)}`).join("   "));
      const percent = Math.round(1000 * Math.min(1, Math.max(0, status.progress ?? 0))) / 10;
      part.track.hidden = !run.given.live;
      part.track.setAttribute("aria-valuenow", String(percent));
      part.fill.style.width = `${percent}%`;
      write(part.error, error);
    }
    strips.hidden = ![...shown.values()].some((part) => !part.box.hidden);
  }

  // Panels

  const observer = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) inView.add(target.dataset.panel); else inView.delete(target.dataset.panel);
    }
    soon();
  }, { rootMargin: "60px" });

  function card(definition) {
    const box = make("figure", "card", grid), head = make("figcaption", "", box), body = make("div", "body", box);
    const panel = { ...definition, box, title: make("span", "title", head), key: make("span", "key", head),
      plot: make("div", "plot", body), empty: make("p", "empty", body, "Loading…"), name: definition.name, titled: definition.title,
      dirty: true, held: false, pointer: null, kind: null, keyed: "", stamp: "" };
    if (panel.name === "nfe") {
      const two = Object.assign(make("input"), { type: "checkbox", checked: Boolean(settings.two) });
      panel.two = control(head, "phase two (2)", two, () => { settings.two = two.checked; });
      panel.two.prepend(two);
    }
    box.dataset.panel = panel.name;
    body.addEventListener("pointerdown", () => { panel.held = true; }, true); // a drag is not to be drawn over
    observer.observe(box);
    return panel;
  }
  const release = () => { for (const panel of panels.values()) panel.held = false; soon(); };
  for (const kind of ["pointerup", "pointercancel"]) window.addEventListener(kind, release, true);
  const resizer = new ResizeObserver(() => {
    for (const { plot } of panels.values()) {
      if (plot._fullLayout && plot.clientWidth > 0 && Math.abs(plot._fullLayout.width - plot.clientWidth) > 1) Plotly.Plots.resize(plot);
    }
  });
  resizer.observe(root);

  function arrangePanels() {
    const names = PANELS.map((p) => p.name).filter((name) => !data.panels || data.panels.includes(name));
    for (const [name, panel] of panels) {
      if (names.includes(name)) continue;
      observer.unobserve(panel.box);
      if (panel.plot._fullLayout) Plotly.purge(panel.plot);
      panel.box.remove();
      panels.delete(name);
      inView.delete(name);
    }
    for (const definition of PANELS) {
      if (names.includes(definition.name) && !panels.has(definition.name)) panels.set(definition.name, card(definition));
    }
    grid.append(...PANELS.filter((p) => panels.has(p.name)).map((p) => panels.get(p.name).box));
    logLabel.hidden = !panels.has("losses");
  }

  function readTheme() {
    const style = getComputedStyle(root), read = (name) => style.getPropertyValue(name).trim();
    const colours = { text: read("--ink"), panel: read("--panel"), line: read("--line"), font: style.fontFamily, warm: read("--warm"),
      cool: read("--cool"), grape: read("--grape") };
    colours.dark = (style.color.match(/[\d.]+/g) ?? []).slice(0, 3).reduce((sum, v) => sum + Number(v), 0) > 384; // light text
    const changed = JSON.stringify(colours) !== JSON.stringify(theme);
    theme = colours;
    if (changed) root.style.colorScheme = theme.dark ? "dark" : "light"; // boxes and lists of the browser's own
    return changed;
  }

  // The traces of a panel, with what stands in its key.
  function tracesOf(panel) {
    const traces = [], key = [], alone = series.length === 1, kind = settings.x, axis = panel.plot._fullLayout?.xaxis;
    const window = axis && !axis.autorange && panel.kind === kind ? axis.range.map(Number).sort((a, b) => a - b) : null;
    const view = { kind, weight: panel.of === "epochs" || panel.exact ? 0 : settings.smoothing, positive: panel.log && settings.log };
    const curves = panel.curves(data.metric).filter((curve) => !curve.two || settings.two);
    const base = { type: "scatter", connectgaps: false };
    series.forEach((one, s) => { // a uid becomes part of a selector: no label goes into it
      const visible = !hidden.has(one.key);
      for (const curve of curves) {
        const found = curveOf(one, panel.of, curve.key, alone ? curve.range : null, view);
        if (!found) continue;
        const colour = alone && curve.tint ? theme[curve.tint] : one.colour, own = { ...base, visible, legendgroup: String(s) };
        const uid = `s${s}c${curves.indexOf(curve)}`, width = curve.two ? 1.2 : 2, { x, y, raw, low, high } = found;
        const name = alone ? curve.name : curves.length > 1 ? `${escaped(one.label)} ${curve.name}` : escaped(one.label);
        if (!key.some((k) => k.curve === curve)) key.push({ curve, colour: alone ? colour : theme.text, width });
        if (low) {
          traces.push({ ...own, ...(visible ? thinBand(x, low, high, window) : {}), uid: `${uid}band`, mode: "lines", fill: "toself",
            fillcolor: colour, opacity: theme.dark ? 0.3 : 0.18, line: { width: 0, color: colour }, hoverinfo: "skip" });
        }
        if (raw) {
          traces.push({ ...own, ...(visible ? thinLine(x, raw, window) : {}), uid: `${uid}raw`, mode: "lines", opacity: theme.dark ? 0.4 : 0.25,
            line: { width: 1, color: colour }, hoverinfo: "skip" });
        }
        const few = x.length === 1 || (panel.of === "epochs" && x.length * series.length <= 80);
        traces.push({ ...own, ...(visible ? thinLine(x, y, window) : {}), uid, name, mode: few ? "lines+markers" : "lines",
          line: { width, color: colour, dash: curve.dash ?? "solid", shape: panel.exact ? "hv" : "linear" }, marker: { size: 5, color: colour }, hovertemplate: "%{y:.4~g}" });
        const best = curve.best && alone && one.runs.length === 1 ? one.runs[0].epochs.get("best")?.lastIndexOf(1) ?? -1 : -1;
        if (best >= 0) {
          key.push({ curve: { name: "best epoch" }, colour: theme.text, width: 1.5, marker: true });
          traces.push({ ...own, uid: `${uid}best`, x: [x[best]], y: [y[best]], mode: "markers", hoverinfo: "skip",
            marker: { symbol: "circle-open", size: 12, color: theme.text, line: { width: 1.5 } } });
        }
      }
    });
    return { traces, key };
  }

  function layoutOf(panel) {
    const logarithmic = panel.log && settings.log, whole = settings.x !== "time" && Math.max(1, ...[...runs.values()].map((run) =>
      run.x(panel.of, settings.x).at(-1) ?? 0)) <= 5 && (settings.x === "step" || panel.of === "epochs");
    const axis = { color: theme.text, gridcolor: theme.line, linecolor: theme.line, zeroline: false, tickfont: { size: 11 },
      ticks: "", ticklabeloverflow: "allow", nticks: 7 };
    return {
      autosize: true, uirevision: "kept", showlegend: false, dragmode: "zoom", hovermode: "x unified", hoverdistance: 40,
      margin: { l: 50, r: 22, t: 8, b: 36 }, paper_bgcolor: theme.panel, plot_bgcolor: theme.panel,
      font: { family: theme.font, size: 12, color: theme.text },
      modebar: { orientation: "h", bgcolor: "rgba(0,0,0,0)", color: theme.text, activecolor: theme.text },
      hoverlabel: { bgcolor: theme.panel, bordercolor: theme.line, font: { color: theme.text, size: 12 }, namelength: -1 },
      xaxis: { ...axis, uirevision: settings.x, title: { text: AXES[settings.x].title, font: { size: 11 }, standoff: 6 }, exponentformat: "none",
        unifiedhovertitle: { text: AXES[settings.x].hover }, spikethickness: 1, spikedash: "dot", spikecolor: theme.text, ...(whole ? { dtick: 1 } : {}) },
      yaxis: { ...axis, uirevision: logarithmic ? "log" : "linear", type: logarithmic ? "log" : "linear", nticks: logarithmic ? 4 : 6,
        exponentformat: "e", minorloglabels: "complete", rangemode: panel.zero ? "tozero" : "normal" },
    };
  }

  const CONFIG = { displaylogo: false, responsive: true, scrollZoom: false, doubleClick: "autosize", showTips: false, displayModeBar: "hover",
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "autoScale2d"]] };

  function draw(panel) {
    panel.dirty = false;
    panel.stamp = stampOf(panel);
    const { traces, key } = tracesOf(panel);
    write(panel.title, panel.titled(String(data.metric)).replace(/^./, (c) => c.toUpperCase()));
    const keyed = JSON.stringify(key);
    if (keyed !== panel.keyed) {
      panel.keyed = keyed;
      panel.key.replaceChildren();
      if (key.length > 1) for (const { curve, colour, width, marker } of key) {
        const item = make("span", "", panel.key);
        sample(item, colour, curve.dash, width, marker);
        make("span", "", item, curve.name);
      }
    }
    if (panel.two) panel.two.hidden = ![...runs.values()].some((run) => run.steps.has("nfe_forward_a"));
    const any = traces.some((trace) => trace.visible);
    panel.plot.classList.toggle("away", !any);
    write(panel.empty, any ? "" : traces.length ? "All of its curves are hidden." : emptyBecause(panel, [...runs.values()]));
    if (!traces.length) return;
    const begun = Boolean(panel.plot._fullLayout), pointer = panel.pointer;
    panel.kind = settings.x;
    Plotly.react(panel.plot, traces, layoutOf(panel), CONFIG);
    drawn++;
    if (!begun) {
      adoptStyles(root);
      panel.plot.on("plotly_relayout", () => { panel.dirty = true; queue.add(panel); soon(); });
      panel.plot.on("plotly_hover", (event) => { panel.pointer = event.event; });
      panel.plot.on("plotly_unhover", () => { panel.pointer = null; });
    } else if (pointer) {
      panel.pointer = pointer;
      Plotly.Fx.hover(panel.plot, pointer, "xy"); // the label follows the new data
    }
  }

  // When to draw: one panel a frame, those in view, what is new at most once a tick.

  function drawAll() {
    for (const panel of panels.values()) { panel.dirty = true; queue.add(panel); }
    soon();
  }

  function soon() {
    if (!frame && !destroyed) frame = requestAnimationFrame(step);
  }

  function step() {
    frame = 0;
    if (destroyed || !Plotly) return;
    for (const panel of panels.values()) if (panel.dirty && !panel.plot._fullLayout) queue.add(panel);
    const ready = [...queue].find((panel) => panel.dirty && !panel.held && inView.has(panel.name) && panels.has(panel.name));
    for (const panel of queue) if (!panel.dirty) queue.delete(panel);
    if (!ready) {
      if (received) [lag, received] = [performance.now() - received, 0];
      return;
    }
    queue.delete(ready);
    draw(ready);
    soon();
  }

  function tick() {
    if (readTheme()) drawAll();
    if (performance.now() - flushed >= TICK - 20) flush();
  }
  const clock = setInterval(tick, TICK);

  function flush() {
    const dirty = [...panels.values()].filter((panel) => panel.dirty);
    if (!dirty.length) return;
    flushed = performance.now();
    for (const panel of dirty) queue.add(panel);
    soon();
  }

  // All that a panel's picture of the data depends on.
  const stampOf = (panel) => [...runs.values()].map((run) =>
    [run[panel.of].version, run.steps.length > 0, run.answered, run.gone, run.status?.state].join(" ")).join(",");

  function news() {
    for (const panel of panels.values()) if (panel.stamp !== stampOf(panel)) panel.dirty = true;
    if ([...panels.values()].some((panel) => panel.dirty && inView.has(panel.name))) received ||= performance.now();
    tick();
  }

  // Asking

  async function ask() {
    const now = performance.now(), sooner = [...runs.values()].some((run) => run.due <= now + 50);
    if (!sooner) return;
    const due = [...runs.values()].filter((run) => run.due <= now + (run.busy ? 50 : 1500)).slice(0, AT_ONCE); // resting ones together
    const asked = due.map((run) => run.offset), query = due.map((run, i) => `${run.given.id}@${asked[i]}`).join(",");
    request = new AbortController();
    const patience = setTimeout(() => request?.abort(), 15000);
    try {
      const response = await fetch(new URL(`${data.base}live?runs=${query}`, document.baseURI), { signal: request.signal, cache: "no-store" });
      if (!response.ok) throw new Error(`status ${response.status}`);
      const answers = (await response.json()).runs;
      if (destroyed) return;
      failures = 0;
      let changed = false;
      due.forEach((run, i) => { if (runs.get(run.given.id) === run) changed = hear(run, answers[run.given.id], asked[i]) || changed; });
      if (changed) news();
      writeStrips();
    } catch {
      failures++; // the server is away, or is not itself: what is drawn stays
    } finally {
      clearTimeout(patience);
      request = null;
      lost.hidden = failures === 0;
    }
  }

  function hear(run, answer, asked) {
    const before = run.gone ? "gone" : run.status?.state, known = answer ?? { gone: true };
    run.due = performance.now() + REST;
    const changed = run.take(known, asked);
    const state = run.gone ? "gone" : run.status.state;
    if (known.more) run.due = 0;
    else if (run.busy && run.due) run.due = performance.now() + TICK;
    if (before !== undefined && state !== before) send?.("state", { id: run.given.id, state });
    return changed || state !== before;
  }

  async function poll() {
    clearTimeout(timer);
    if (request) return; // its end asks again
    await ask();
    if (destroyed) return;
    const next = Math.min(...[...runs.values()].map((run) => run.due)) - performance.now();
    const wait = failures ? Math.min(REST, TICK * 2 ** failures) : Math.max(0, next);
    if (wait < Infinity) timer = setTimeout(poll, wait);
  }

  // From the outside

  function update(given) {
    const text = JSON.stringify(given), same = text === said;
    [data, said] = [given, text];
    if (same) { // a page that ran again: perhaps a run was resumed, but there is nothing to draw yet
      for (const run of runs.values()) run.due = 0;
      poll();
      return;
    }
    const wanted = new Set(data.runs.map((run) => run.id));
    for (const id of runs.keys()) if (!wanted.has(id)) runs.delete(id);
    for (const run of data.runs) {
      if (runs.has(run.id)) Object.assign(runs.get(run.id), { given: run, due: 0 }); else runs.set(run.id, new Run(run));
    }
    arrange();
    arrangePanels();
    writeStrips();
    readTheme();
    drawAll();
    poll();
  }

  function destroy() {
    destroyed = true;
    request?.abort();
    clearTimeout(timer);
    clearInterval(clock);
    cancelAnimationFrame(frame);
    observer.disconnect();
    resizer.disconnect();
    for (const kind of ["pointerup", "pointercancel"]) window.removeEventListener(kind, release, true);
    for (const { plot } of panels.values()) if (plot._fullLayout) Plotly.purge(plot);
    root.remove();
    delete element.__curves;
  }

  element.__curves = {
    points: (id) => runs.get(id)?.steps.length ?? 0,
    drawn: () => drawn,
    lag: () => lag,
    ranges: (name) => {
      const layout = panels.get(name)?.plot._fullLayout;
      return layout ? { x: [...layout.xaxis.range], y: [...layout.yaxis.range] } : null;
    },
  };
  update(data);
  load();
  return { update, destroy };

  function load() {
    plotly(data.base).then((found) => { Plotly = found; soon(); }, () => { if (!destroyed) setTimeout(load, 2000); });
  }
}
