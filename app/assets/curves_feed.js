// Asking the server for what is new of every run: those that train at the pace of drawing, the others now and then.
import { at } from "./theme.js";

const REST = 5000, AGAIN = 500, PATIENCE = 15000;  // milliseconds
const AT_ONCE = 40;  // runs in one question

export class Feed {
  // tell: { next() in milliseconds, heard(changed), state(run, state), lost(whether) }
  constructor(runs, tell) {
    Object.assign(this, { runs, tell, base: "", failures: 0, timer: 0, request: null, ended: false });
  }

  // Everything at once: something about the runs has changed.
  refresh(base) {
    this.base = base;
    for (const run of this.runs.values()) run.due = 0;
    this.poll();
  }

  async poll() {
    clearTimeout(this.timer);
    if (this.request) return;  // its end asks again
    await this.ask();
    if (this.ended) return;
    const next = Math.min(...[...this.runs.values()].map((run) => run.due)) - performance.now();
    const wait = this.failures ? Math.min(REST, AGAIN * 2 ** this.failures) : Math.max(0, next);
    if (wait < Infinity) this.timer = setTimeout(() => this.poll(), wait);
  }

  async ask() {
    const now = performance.now(), all = [...this.runs.values()];
    if (!all.some((run) => run.due <= now + 50)) return;
    const due = all.filter((run) => run.due <= now + (run.busy ? 50 : 1500)).slice(0, AT_ONCE);  // resting ones together
    const asked = due.map((run) => run.offset), query = due.map((run, i) => `${run.given.id}@${asked[i]}`).join(",");
    this.request = new AbortController();
    const patience = setTimeout(() => this.request?.abort(), PATIENCE);
    try {
      const response = await fetch(at(`${this.base}live?runs=${query}`), { signal: this.request.signal, cache: "no-store" });
      if (!response.ok) throw new Error(`status ${response.status}`);
      const answers = (await response.json()).runs;
      if (this.ended) return;
      this.failures = 0;
      let changed = false;
      due.forEach((run, i) => {
        if (this.runs.get(run.given.id) === run) changed = this.hear(run, answers[run.given.id], asked[i]) || changed;
      });
      this.tell.heard(changed);
    } catch {
      this.failures++;  // the server is away, or is not itself: what is drawn stays
    } finally {
      clearTimeout(patience);
      this.request = null;
      this.tell.lost(this.failures > 0);
    }
  }

  // Whether there is something to draw.
  hear(run, answer, asked) {
    const before = run.gone ? "gone" : run.status?.state, known = answer ?? { gone: true };
    run.due = performance.now() + REST;
    const changed = run.take(known, asked);
    const state = run.gone ? "gone" : run.status.state;
    if (known.more) run.due = 0;
    else if (run.busy && run.due) run.due = performance.now() + this.tell.next();
    if (before !== undefined && state !== before) this.tell.state(run, state);
    return changed || state !== before;
  }

  end() {
    this.ended = true;
    this.request?.abort();
    clearTimeout(this.timer);
  }
}
