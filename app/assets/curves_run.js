// One run: its status, and its metrics in two tables, one of steps and one of epochs.
import { STEP_KEYS } from "./curves_panels.js";
import { below, Table } from "./curves_table.js";

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
