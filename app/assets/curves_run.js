// One run: its status, and its metrics as two tables, of iterations and of epochs.
import { STEP_KEYS } from "./curves_panels.js";
import { below, Table } from "./curves_table.js";

const BUSY = new Set(["queued", "running"]);

export class Run {
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
