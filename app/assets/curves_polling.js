// Polls the server for new metrics: of running runs as often as the charts are drawn, of the others less often.
import { at } from "./theme.js";

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
