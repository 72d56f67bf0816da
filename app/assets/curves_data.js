// The runs of live curves: status and metrics of each, how they are polled, and the charts that they are drawn in.
import { at } from "./theme.js";

const BUSY = new Set(["queued", "running"]);

export class Run {
  constructor(given) {
    Object.assign(this, { given, offset: 0, due: 0, status: null, began: undefined, gone: false, loaded: false });
    this.clear();
  }

  clear() {
    const stepsVersion = (this.steps?.version ?? 0) + 1, epochsVersion = (this.epochs?.version ?? 0) + 1;
    this.steps = new Table(STEP_KEYS);
    this.epochs = new Table(null);
    [this.steps.version, this.epochs.version] = [stepsVersion, epochsVersion];
  }

  get busy() { return this.status !== null && BUSY.has(this.status.state); }

  // Adds the response to a request from byte `offset` on; returns true if there is something new to draw.
  receive(answer, offset) {
    this.loaded = true;
    if (answer.gone) {
      const changed = !this.gone;
      if (this.steps.length) this.clear();
      Object.assign(this, { gone: true, status: null, offset: 0, began: undefined });
      return changed;
    }
    const status = answer.status ?? {}, first = this.status === null || this.gone;
    const restarted = (this.began !== undefined && status.began !== this.began) || answer.offset < offset;
    Object.assign(this, { status, began: status.began, gone: false });
    if (restarted && offset > 0) {
      this.offset = 0; // keep the curves until the file has been read again from its beginning
      this.due = 0;
      return true;
    }
    if (offset === 0 && this.steps.length + this.epochs.length > 0) this.clear();
    this.offset = answer.offset;
    let records = 0;
    for (const line of (answer.lines ?? "").split("\n")) if (line) records += this.add(line);
    return records > 0 || first;
  }

  add(line) {
    let record;
    try { record = JSON.parse(line); } catch { return 0; } // an incomplete line
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
    const sameEpoch = i > 0 && steps.column("epoch")[i - 1] === epoch;
    const firstStep = sameEpoch ? steps.column("step")[i - 1] - steps.column("within")[i - 1] : record.step;
    const before = i > 0 ? steps.column("time")[i - 1] : 0;
    steps.push(record);
    steps.column("epoch")[i] = epoch;
    steps.column("within")[i] = record.step - firstStep;
    // a recorded run has only some of its steps, each with the training time up to it
    steps.column("time")[i] = Number.isFinite(record.elapsed) ? record.elapsed
      : before + (Number.isFinite(record.seconds) ? record.seconds : 0);
  }

  addEpoch(record) {
    this.epochs.cut(record.step);
    const time = this.steps.get("time"), row = below(this.steps.column("step"), record.step, this.steps.length) - 1;
    this.epochs.push(record);
    this.epochs.column("time")[this.epochs.length - 1] = row >= 0 ? time[row] : record.elapsed ?? NaN;
  }

  // Steps in one epoch: known once an epoch has ended, estimated from the progress before that.
  stepsPerEpoch() {
    const { steps, epochs, status } = this;
    if (epochs.length) return epochs.column("step")[0] / Math.max(1, epochs.column("epoch")[0]);
    const seen = steps.length ? steps.column("within")[steps.length - 1] + 1 : 1;
    const guess = status?.progress > 0 && status.epochs > 0 ? Math.round(status.step / (status.progress * status.epochs)) : 0;
    return Math.max(seen, guess || 0);
  }

  // The x values of a table ("steps" or "epochs") for one of AXES; epochs of steps are fractional.
  x(of, kind) {
    const table = this[of];
    if (kind !== "epoch" || of === "epochs") return table.get(kind) ?? new Float64Array(0);
    const epoch = table.get("epoch"), within = table.get("within"), n = this.stepsPerEpoch();
    return epoch ? epoch.map((e, i) => e + Math.min(1, within[i] / n)) : new Float64Array(0);
  }

  // The last recorded value of a column.
  latest(of, key) {
    const values = this[of].get(key);
    for (let i = (values?.length ?? 0) - 1; i >= 0; i--) if (!Number.isNaN(values[i])) return values[i];
    return null;
  }
}

// Records in growing columns, with NaN for missing values. `version` changes whenever the content does.
export class Table {
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

  // Removes the rows from `step` on.
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

// Counts the values smaller than `value` among the first `length` ascending values, by bisection.
export function below(values, value, length) {
  let lo = 0, hi = length;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (values[mid] < value) lo = mid + 1; else hi = mid;
  }
  return lo;
}

// Polls the server for new metrics: of running runs as often as the charts are drawn, of the others less often.

const IDLE_INTERVAL = 5000, FIRST_RETRY = 500, TIMEOUT = 15000;  // milliseconds
const MAX_RUNS = 40;  // in one request

export class Poller {
  // callbacks: { nextIn() in milliseconds, received(changed), stateChanged(run, state), connection(lost) }
  constructor(runs, callbacks) {
    Object.assign(this, { runs, callbacks, base: "", failures: 0, timer: 0, request: null, destroyed: false });
  }

  // Polls all runs at once, because something about them has changed.
  refresh(base) {
    this.base = base;
    for (const run of this.runs.values()) run.due = 0;
    this.poll();
  }

  async poll() {
    clearTimeout(this.timer);
    if (this.request) return;  // the running request polls again when it ends
    await this.fetchDue();
    if (this.destroyed) return;
    const next = Math.min(...[...this.runs.values()].map((run) => run.due)) - performance.now();
    const wait = this.failures ? Math.min(IDLE_INTERVAL, FIRST_RETRY * 2 ** this.failures) : Math.max(0, next);
    if (wait < Infinity) this.timer = setTimeout(() => this.poll(), wait);
  }

  // Requests the runs that are due.
  async fetchDue() {
    const now = performance.now(), all = [...this.runs.values()];
    if (!all.some((run) => run.due <= now + 50)) return;
    const due = all.filter((run) => run.due <= now + (run.busy ? 50 : 1500)).slice(0, MAX_RUNS);  // idle runs that are due soon go along
    const offsets = due.map((run) => run.offset), query = due.map((run, i) => `${run.given.id}@${offsets[i]}`).join(",");
    this.request = new AbortController();
    const timeout = setTimeout(() => this.request?.abort(), TIMEOUT);
    try {
      const response = await fetch(at(`${this.base}live?runs=${query}`), { signal: this.request.signal, cache: "no-store" });
      if (!response.ok) throw new Error(`status ${response.status}`);
      const answers = (await response.json()).runs;
      if (this.destroyed) return;
      this.failures = 0;
      let changed = false;
      due.forEach((run, i) => {
        if (this.runs.get(run.given.id) === run) changed = this.receive(run, answers[run.given.id], offsets[i]) || changed;
      });
      this.callbacks.received(changed);
    } catch {
      this.failures++;  // the server does not respond: keep what is drawn
    } finally {
      clearTimeout(timeout);
      this.request = null;
      this.callbacks.connection(this.failures > 0);
    }
  }

  // Adds a response to a run; returns true if there is something new to draw.
  receive(run, answer, offset) {
    const before = run.gone ? "gone" : run.status?.state, known = answer ?? { gone: true };
    run.due = performance.now() + IDLE_INTERVAL;
    const changed = run.receive(known, offset);
    const state = run.gone ? "gone" : run.status.state;
    if (known.more) run.due = 0;
    else if (run.busy && run.due) run.due = performance.now() + this.callbacks.nextIn();
    const drawnOtherwise = run.given.live !== undefined && run.given.live !== run.busy;  // it ended before the first answer
    if (before === undefined ? drawnOtherwise : state !== before) this.callbacks.stateChanged(run, state);
    return changed || state !== before;
  }

  destroy() {
    this.destroyed = true;
    this.request?.abort();
    clearTimeout(this.timer);
  }
}

// The charts: what each one draws, and why it may be empty.

export const AXES = { step: { title: "Step", hover: "step %{x:.0f}" }, epoch: { title: "Epoch", hover: "epoch %{x:.2~f}" },
  time: { title: "Training time (s)", hover: "%{x:.1f} s" } };

// The dash distinguishes quantities, the colour runs. With a single run, `tint` gives a quantity its own colour.
// `axis` is the title of the vertical axis; without it, it is the panel's title. `hint` explains the symbols of a panel. Diagnostics are in a tab of their own.
export const PANELS = [
  { name: "metric", title: (title) => title, of: "epochs", hint: "After every epoch, on the training and the validation data",
    curves: (metric) => [{ key: `train_${metric}`, name: "training", dash: "dot", tint: "warm" },
      { key: `validation_${metric}`, name: "validation", best: true }] },
  { name: "losses", title: () => "Loss", of: "steps", log: true,
    hint: "Loss of the state (L_h): the task's loss, which trains everything but the derivative of attention (g). Loss of attention (L_a): the task's loss plus the penalty on the parameters of that derivative (θ_g), which it trains.",
    curves: () => [{ key: "L_h", name: "of the state (L_h)" }, { key: "L_a", name: "of attention (L_a)", dash: "dash", tint: "warm" }] },
  { name: "nfe", title: () => "Function evaluations (NFE)", axis: "Evaluations", of: "steps", ode: true, zero: true, diagnostic: true,
    hint: "How often the solver evaluates the derivative of the state (f) in one pass",
    curves: () => [{ key: "nfe_forward", name: "forward" },
      { key: "nfe_backward", name: "backward", dash: "dash", tint: "warm" },
      { key: "nfe_forward_a", name: "forward, while attention trains", two: true, tint: "cool" },
      { key: "nfe_backward_a", name: "backward, while attention trains", two: true, dash: "dash", tint: "grape" }] },
  { name: "dt", title: () => "Step size of the solver (Δt)", axis: "Step size (Δt)", of: "steps", ode: true, zero: true, diagnostic: true,
    hint: "Mean step in the time of the ODE; the band is from the smallest to the largest step",
    curves: () => [{ key: "dt_mean", name: "mean", range: ["dt_min", "dt_max"], band: "smallest to largest" }] },
  { name: "gradients", title: () => "Gradient norms", axis: "Norm", of: "steps", zero: true, diagnostic: true,
    hint: "Norm of the gradient of the loss of the state (∇L_h), and of the loss of attention (∇L_a)",
    curves: () => [{ key: "grad_h", name: "state (∇L_h)" }, { key: "grad_a", name: "attention (∇L_a)", dash: "dash", tint: "warm" }] },
  { name: "seconds", title: () => "Seconds per step", of: "steps", zero: true, diagnostic: true, hint: "Time of one mini-batch",
    curves: () => [{ key: "seconds", name: "seconds" }] },
  { name: "lr", title: () => "Learning rate", of: "steps", zero: true, exact: true, diagnostic: true, hint: "Learning rate of both optimisers",
    curves: () => [{ key: "lr", name: "learning rate" }] },
];

// The panels of a tab: results or diagnostics.
export const panelsOf = (diagnostics) => PANELS.filter((panel) => Boolean(panel.diagnostic) === diagnostics).map(({ name }) => name);
export const STEP_KEYS = new Set(PANELS.filter((p) => p.of === "steps").flatMap((p) => p.curves()
  .flatMap((c) => [c.key, ...(c.range ?? [])])).concat("step", "epoch"));

// Says why a panel is empty.
export function emptyReason(panel, runs) {
  if (!runs.length) return "No run chosen";
  if (!runs.every((run) => run.loaded)) return "Loading…";
  const busy = runs.some((run) => run.busy);
  if (runs.every((run) => run.gone)) return "The run was deleted";
  if (!runs.some((run) => run.steps.length)) return busy ? "Waiting for the first step…" : "No step was recorded";
  if (panel.of === "epochs") return runs.some((run) => run.epochs.length) ? "Not recorded in this run"
    : busy ? "Waiting for the end of the first epoch…" : "No epoch was completed";
  return panel.ode && !runs.some((run) => run.steps.has("nfe_forward") || run.steps.has("nfe_forward_a"))
    ? "This method solves no ODE" : "Not recorded in this run";
}
