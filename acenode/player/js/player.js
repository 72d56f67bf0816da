// The trajectory player: one time, one epoch and one probe drive every panel of every run.
//
//   mount(element, data) → { update(data), destroy() }
//   data = { runs: [{ id, label, colour, live }], base: "lab/", embedded: { id: { description, blocks } },
//            always: true to draw a player that is not visible, for a page that may be printed,
//            startAt: share of the time (0 to 1) to show first if the address has no position }
//
// The snapshots of a run come from `embedded`, or else from the server: `${base}film/${id}` describes them and
// `${base}film/${id}/${epoch}` has the arrays of one epoch (acenode/player/data.py makes both). The position
// (t, epoch, probe) is kept in the page's address.
import { Bar } from "./player_bar.js";
import { embeddedIn, RunData, Scales, servedBy } from "./player_run.js";
import { PANELS, Tip, View } from "./player_view.js";
import { Stage } from "./stage.js";
import { clamp, make, setText } from "./theme.js";

const PASS_SECONDS = 4;  // to play all of t at speed 1×
const POLL_MS = 3000, ADDRESS_MS = 500, SAY_DELAY_MS = 700;

class Player {
  constructor(element, data) {
    const { t, epoch, probe } = readAddress();
    this.views = [];
    this.epochs = [];  // of all runs together
    this.ends = [0, 1];  // of t
    this.state = { t: t ?? 0, epoch: null, probe: 0, mode: "weight", map: "attention", fitEpoch: false, same: true, loop: true, speed: 1,
      panel: "attention" };  // `panel` is the one that a narrow page shows
    this.wanted = { epoch: epoch ?? null, probe: probe ?? 0 };  // which the runs read so far may not have; epoch null follows the newest
    this.startAt = t === undefined ? data.startAt ?? 0 : 0;
    this.settled = false;  // true once every run has been read
    this.ended = false;
    this.sayTimer = null;
    [this.page, this.written] = [location.pathname, ""];  // of the address
    this.scales = new Scales();
    this.build(element);
    this.update(data);
    this.poll = setInterval(() => { if (!document.hidden) for (const { run } of this.views) if (run.spec.live) run.read(); }, POLL_MS);
    this.address = setInterval(() => this.writeAddress(), ADDRESS_MS);
  }

  build(element) {
    this.bar = new Bar(this);
    this.tip = new Tip();
    this.runs = make("div", "runs");
    this.spoken = make("p", { className: "words", "aria-live": "polite" });
    this.node = make("div", { className: "ace ace-player loading", tabIndex: 0, role: "group", on: { keydown: (event) => this.bar.key(event) },
      "aria-label": "Trajectory player. Left and right: one frame; up and down: one epoch; Home and End: start and end; space: play or pause." }, this.bar.node, this.spoken, this.runs, this.tip.node);
    element.append(this.node);
    this.stage = new Stage(this.node, (seconds) => this.advance(seconds), () => this.paint());
    this.showPosition();
  }

  go({ t, epoch, probe }) {
    const s = this.state, before = `${s.t}/${s.epoch}/${s.probe}`;
    if (Number.isFinite(t)) [s.t, this.startAt] = [clamp(t, ...this.ends), 0];
    if (Number.isInteger(epoch)) {
      s.epoch = this.epochs.findLast((e) => e <= epoch) ?? this.epochs[0] ?? epoch;
      if (this.wanted.epoch !== null || s.epoch !== this.epochs.at(-1)) this.wanted.epoch = s.epoch;
    }
    if (Number.isInteger(probe)) s.probe = this.wanted.probe = clamp(probe, 0, Math.max(this.probes() - 1, 0));
    if (before === `${s.t}/${s.epoch}/${s.probe}`) return;
    for (const { run } of this.views) run.failed.clear();  // try again to read what could not be read before
    this.stage.wake();
  }

  // Write the position to the address after it changed, or where the page dropped it, while nothing plays.
  writeAddress() {
    const { t, epoch, probe } = this.state, url = new URL(location.href), position = `${t}/${epoch}/${probe}`;
    if (!this.settled || this.stage.playing || !this.epochs.length || !this.node.isConnected || url.pathname !== this.page) return;
    if (position === this.written && url.searchParams.has("t") && url.searchParams.has("probe")) return;
    this.written = position;
    for (const [name, value] of Object.entries({ t: Number(t.toFixed(3)), epoch, probe })) if (value !== null) url.searchParams.set(name, value);
    if (url.href === location.href) return;
    try {
      history.replaceState(history.state, "", url);
    } catch { /* some browsers forbid it for a page that was opened from disk */ }
  }

  // Settings of the controls.
  set(values) {
    Object.assign(this.state, values);
    this.scales.same = this.state.same;
    this.offerPanels();
    this.stage.wake();
  }

  follow(on) {
    this.wanted.epoch = on ? null : this.state.epoch;
    this.merge();
  }

  // Offer the panels that any run has, for a narrow page.
  offerPanels() {
    const known = PANELS.filter(({ shown }) => this.views.some(({ run }) => run.meta && shown(run.meta)));
    if (known.length && !known.some(({ name }) => name === this.state.panel)) this.state.panel = known[0].name;
    const { panel, map } = this.state;
    this.bar.offerPanels(known.map(({ name, tab }) => [name, name === "attention" && map === "influence" ? "Influence" : tab]), panel);
    for (const view of this.views) view.choosePanel(panel);
  }

  // Tell a screen reader what is shown, once it stands still.
  sayLater() {
    clearTimeout(this.sayTimer);
    if (!this.stage.playing) this.sayTimer = setTimeout(() => {
      const said = this.views.map((view) => view.say(this.state));
      if (!this.ended && document.activeElement && this.node.contains(document.activeElement)) setText(this.spoken, said[0] ?? "");
    }, SAY_DELAY_MS);
  }

  probes() { return Math.max(0, ...this.views.map(({ run }) => run.meta?.probes ?? 0)); }

  step(frames) {
    this.play(false);
    const t = this.views.map(({ run }) => run.meta?.t ?? []).reduce((a, b) => b.length > a.length ? b : a, []);
    if (!t.length) return;
    const away = t.map((v) => Math.abs(v - this.state.t)), i = away.indexOf(Math.min(...away));
    this.go({ t: t[clamp(i + frames, 0, t.length - 1)] });
  }

  stepEpoch(by) {
    const i = this.epochs.indexOf(this.state.epoch);
    if (this.epochs.length) this.go({ epoch: this.epochs[clamp(i + by, 0, this.epochs.length - 1)] });
  }

  update(data) {
    this.stage.always = data.always ?? false;
    const sourceOf = (id) => data.embedded?.[id] ? embeddedIn(data.embedded[id]) : servedBy(data.base ?? "", id);
    const runs = data.runs ?? [], kept = new Map(this.views.map((view) => [view.run.spec.id, view]));
    this.views = runs.map((spec) => {
      const old = kept.get(spec.id);
      kept.delete(spec.id);
      if (old) {
        const again = old.run.spec.live !== spec.live || old.run.problem !== null;  // a run that has ended has one more snapshot
        Object.assign(old.run, { spec, source: sourceOf(spec.id) });
        old.describe();
        if (again) { old.run.failed.clear(); old.run.read(); }
        return old;
      }
      const view = new View(new RunData(spec, sourceOf(spec.id), () => this.merge()), this);
      view.arrange();
      view.run.read();
      return view;
    });
    for (const view of kept.values()) view.end();
    const nodes = this.views.map((view) => view.node);
    if (nodes.length !== this.runs.children.length || nodes.some((node, i) => node !== this.runs.children[i])) this.runs.replaceChildren(...nodes);
    this.runs.dataset.count = String(nodes.length);
    this.merge();
  }

  // Combine what has been read of all runs: epochs, the range of t, scales and controls.
  merge() {
    if (this.ended) return;
    const runs = this.views.map(({ run }) => run), metas = runs.map(({ meta }) => meta).filter((meta) => meta?.epochs.length), s = this.state;
    const answered = runs.every(({ meta, problem }) => meta || problem);
    this.epochs = [...new Set(metas.flatMap((meta) => meta.epochs))].sort((a, b) => a - b);
    if (metas.length) {
      const newest = this.epochs.at(-1), live = runs.some(({ spec }) => spec.live);
      this.ends = [Math.min(...metas.map((m) => m.t[0])), Math.max(...metas.map((m) => m.t.at(-1)))];
      if (!this.settled && answered && live && this.wanted.epoch >= newest) this.wanted.epoch = null;  // it followed the newest epoch when the address was written
      s.epoch = this.wanted.epoch === null ? newest : this.epochs.findLast((e) => e <= this.wanted.epoch) ?? this.epochs[0];
      if (this.startAt) s.t = this.ends[0] + this.startAt * (this.ends[1] - this.ends[0]);
      this.startAt = 0;
      s.t = clamp(s.t, ...this.ends);
      s.probe = clamp(this.wanted.probe, 0, this.probes() - 1);
    }
    this.scales.take(metas);
    this.bar.offer(runs, this.epochs, this.ends);
    for (const view of this.views) view.arrange();
    this.offerPanels();
    this.stage.wake();
    this.settled ||= answered;
    if (this.settled) this.node.classList.remove("loading");
  }

  play(on) {
    if (on === this.stage.playing || (on && !this.epochs.length)) return;
    if (on && this.state.t >= this.ends[1]) this.state.t = this.ends[0];
    this.stage.play(on);
    this.showPosition();
  }

  advance(seconds) {
    const s = this.state, [start, end] = this.ends;
    s.t += seconds * s.speed * (end - start) / PASS_SECONDS;
    if (s.t < end) return;
    if (s.loop && end > start) s.t = start + (s.t - start) % (end - start);
    else {
      s.t = end;
      this.play(false);
    }
  }

  paint() {
    const count = this.views.reduce((sum, view) => sum + view.draw(this.state, this.stage.theme), 0);
    this.showPosition();
    this.tip.show(this.views, this.state);
    if (count) this.sayLater();
  }

  showPosition() { this.bar.showPosition(this.state, this.epochs, this.stage.playing, this.wanted.epoch === null); }

  point(where) {
    this.tip.pointer = where;
    this.tip.show(this.views, this.state);
  }

  destroy() {
    this.ended = true;
    clearInterval(this.poll);
    clearInterval(this.address);
    clearTimeout(this.sayTimer);
    this.stage.end();
    for (const view of this.views) view.end();
    this.node.remove();
  }
}

export function mount(element, data) {
  const player = new Player(element, data);
  element.__player = {
    drawn: () => player.views.length > 0 && player.views.every(({ run }) => run.blocks.has(run.epochFor(player.state.epoch))),
    settled: () => player.settled,
    words: () => player.views.map((view) => view.say(player.state)),
    frame: () => ({ t: player.state.t, epoch: player.state.epoch, probe: player.state.probe }),
    seek: (frame) => player.go(frame),
  };
  return {
    update: (next) => player.update(next),
    destroy: () => { player.destroy(); delete element.__player; },
  };
}

// The player's position in the page's address, so that it survives a reload and can be shared as a link.
function readAddress() {
  const query = new URLSearchParams(location.search);
  const found = (name, pattern) => pattern.test(query.get(name) ?? "") ? Number(query.get(name)) : undefined;
  return { t: found("t", /^-?\d+(\.\d+)?$/), epoch: found("epoch", /^\d{1,9}$/), probe: found("probe", /^\d{1,4}$/) };
}
