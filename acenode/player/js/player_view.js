// One run in the player: its name, its status line and its panels; what it shows as text, and the text beside the pointer.
import { valueOf } from "./colours.js";
import { MEASURE, PLANE } from "./player_curves.js";
import { number } from "./player_draw.js";
import { ATTENTION, CHANNELS, FEATURES, shownLevels, shownMap } from "./player_maps.js";
import { cleared } from "./stage.js";
import { clamp, make, setText, setTextOrHide } from "./theme.js";

// Each panel has title(view, state); key(view, state), which changes when it must be drawn again; draw(g, w, h, view, state,
// theme, still); and hover(x, y, view, state) → lines of text or null. `view` has the run and the arrays of the epoch shown.
// What does not move with t (axes, whole curves) is drawn by base(…) when baseKey(…) changes; `still` is what base returned.
// `tab` is its short name in the choice of a narrow page, which shows one panel at a time.
export const PANELS = [PLANE, ATTENTION, MEASURE, CHANNELS, FEATURES];
let views = 0;  // for ids

export class View {
  constructor(run, player) {
    this.run = run;
    this.player = player;
    this.block = this.epoch = null;
    this.dot = make("span", "dot");
    this.name = make("strong");
    this.status = make("span", "status");
    this.message = make("p", { className: "message", hidden: true });
    this.about = make("p", { className: "about-attention", hidden: true, role: "note" });
    this.words = make("p", { className: "words", id: `ace-player-words-${++views}` });
    this.missing = make("div", { className: "panel missing", hidden: true });
    this.notes = make("details", { className: "notes", hidden: true });
    this.panels = make("div", { className: "panels", hidden: true });
    this.node = make("section", "run", make("header", "", this.dot, this.name, this.status), this.message, this.words, this.panels, this.about, this.notes);
    this.drawn = PANELS.map((kind) => this.panel(kind));
    this.drawn[0].node.after(this.missing);
    this.describe();
  }

  panel(kind) {
    const canvas = make("canvas", { role: "img", "aria-label": kind.name, "aria-describedby": this.words.id }), caption = make("figcaption"), frame = make("div", "canvas", canvas);
    const node = make("figure", `panel ${kind.name}`, caption, frame);
    const panel = { kind, canvas, caption, node, frame, key: null, under: make("canvas") };
    canvas.addEventListener("pointermove", (event) => this.player.point({ panel, view: this, x: event.offsetX, y: event.offsetY, event }));
    canvas.addEventListener("pointerleave", () => this.player.point(null));
    if (kind.click) canvas.addEventListener("click", (event) => {
      const probe = this.block ? kind.click(event.offsetX, event.offsetY, this) : null;
      if (probe !== null) this.player.go({ probe });
    });
    this.player.stage.sizes.observe(frame);
    this.panels.append(node);
    return panel;
  }

  describe() {
    const { label, id, colour } = this.run.spec;
    this.name.textContent = label ?? id;
    this.dot.style.background = colour || "var(--accent)";
  }

  // Show the panels that the run has data for, and messages for what is missing.
  arrange() {
    const { meta, problem } = this.run, why = problem ?? (meta ? meta.why : "Loading snapshots…");
    setTextOrHide(this.message, why ?? "");
    this.panels.hidden = !meta || !meta.epochs.length;
    if (!meta) return;
    for (const panel of this.drawn) panel.node.hidden = !panel.kind.shown(meta);
    setTextOrHide(this.missing, meta.no_attention ?? "");
    this.panels.dataset.show = !meta.attention ? "states" : meta.attention_channels ? "all" : "vectors";
    this.notes.hidden = !meta.notes.length;
    this.notes.replaceChildren(make("summary", "", meta.notes.length === 1 ? "1 note on the snapshots" : `${meta.notes.length} notes on the snapshots`),
      ...meta.notes.map((note) => make("p", "", note)));
  }

  // Choose the arrays of the player's epoch; the previous ones stay until these have been read.
  choose(state) {
    const { run } = this, wanted = run.meta ? run.epochFor(state.epoch) : null;
    if (wanted === null) return;
    const found = run.block(wanted), block = found && run.fits(found) ? found : null;
    if (block) [this.block, this.epoch] = [block, wanted];
    else if (this.block && !run.fits(this.block)) this.block = this.epoch = null;
    const shown = block ? wanted : this.epoch, when = shown === null ? "Loading…" : shown === 0 ? "Before training" : `After epoch ${shown}`;
    const away = shown !== null && shown !== state.epoch ? block ? " (nearest snapshot)" : ` (loading epoch ${wanted}…)` : "";
    const probe = Math.min(state.probe, run.meta.probes - 1), prediction = shown === null ? null : run.prediction(probe, shown);
    setText(this.status, `${when}${away}${prediction ? ` · ${run.title(probe)}: ${prediction}` : ""}`);
    const at = run.meta.epochs.indexOf(shown), { steady, equal_rows: equalRows } = run.meta;
    const over = this.block && run.meta.measure ? MEASURE.over(this, Math.min(probe, this.block.arrays.pca.shape[1] - 1)) : "";
    setTextOrHide(this.about, shown === null ? "" : [over, steady?.[at], equalRows?.[at]].filter(Boolean).join(" "));
  }

  // The range of values that a panel's colours, or its vertical axis, cover.
  scale(name) { return this.player.scales.of(name, this.run.meta); }

  // The player's state for this run, which may have fewer probes.
  own(state) { return { ...state, probe: Math.min(state.probe, this.block.arrays.pca.shape[1] - 1) }; }

  // Draw the panels that changed and return their number.
  draw(state, theme) {
    this.choose(state);
    if (!this.block || this.panels.hidden) return 0;
    const { t } = this.run.meta, own = { ...this.own(state), t: clamp(state.t, t[0], t.at(-1)) };
    const seen = this.drawn.filter(({ node, frame: { size } }) => !node.hidden && size?.width >= 8 && size.height >= 8);
    return seen.filter((panel) => this.drawPanel(panel, own, theme)).length;
  }

  drawPanel(panel, own, theme) {
    const { kind, frame: { size: { width, height } } } = panel, always = `${this.epoch}/${this.block.version}/${width}x${height}/${window.devicePixelRatio}/${theme.key}/${this.player.scales.key}/`;
    const key = always + kind.key(this, own), baseKey = always + kind.baseKey(this, own);
    if (key === panel.key) return false;
    panel.key = key;
    if (panel.baseKey !== baseKey) {
      panel.baseKey = baseKey;
      panel.still = kind.base(cleared(panel.under, width, height), width, height, this, own, theme);
    }
    kind.draw(cleared(panel.canvas, width, height, panel.under), width, height, this, own, theme, panel.still);
    const title = kind.title(this, own);
    if (panel.caption.textContent !== title) {
      Object.assign(panel.caption, { textContent: title, title: kind.hint?.(this, own) ?? title });
      panel.canvas.setAttribute("aria-label", title);
    }
    return true;
  }

  // The lines of text for the position under the pointer.
  lines(panel, x, y, state) { return this.block ? panel.kind.hover(x, y, this, this.own(state)) : null; }

  // On a narrow page one panel is shown at a time: the chosen one, or the first if this run has no such panel.
  choosePanel(name) {
    const shown = this.drawn.filter(({ node }) => !node.hidden), chosen = shown.find(({ kind }) => kind.name === name) ?? shown[0];
    for (const panel of this.drawn) panel.node.classList.toggle("chosen", panel === chosen);
  }

  // Write what is shown as text, and return it.
  say(state) {
    if (this.block && !this.panels.hidden) setText(this.words, words(this, this.own(state)));
    return this.words.textContent;
  }

  end() {
    for (const { frame } of this.drawn) this.player.stage.sizes.unobserve(frame);
    this.node.remove();
    this.run.end();
  }
}

// The largest weight or influence of the map at t, and where it is.
function strongest(view, state) {
  const attention = shownMap(view, state), what = attention?.kind === "influence" ? "influence" : "weight";
  if (!attention) return "no influence in these snapshots";
  const { data, shape: [, P, rows, columns] } = shownLevels(view, state), other = (i) => what === "weight" || Math.floor(i / columns) !== i % columns;
  const start = (view.run.frame(state.t).nearest * P + state.probe) * rows * columns;
  let best = what === "weight" ? 0 : 1;
  for (let i = best + 1; i < rows * columns; i++) if (other(i) && data[start + i] > data[start + best]) best = i;
  const weight = number(valueOf(attention, data[start + best])), [i, j] = [Math.floor(best / columns), best % columns];
  const name = (k) => attention.names?.[k] ?? String(k + 1);
  if (attention.names || attention.kind === "pairwise") return `largest ${what} ${weight}, from ${name(j)} into ${name(i)}`;
  return attention.kind === "coordinates" ? `largest weight ${weight}, at coordinate ${j + 1}` : `largest weight ${weight}, at row ${i + 1}, column ${j + 1}`;
}

// One sentence about a run: epoch, time, sample, its place in the plane, and what the panels show of it.
function words(view, state) {
  const { run, block, epoch } = view, { data, shape: [, P] } = block.arrays.pca, at = (run.frame(state.t).nearest * P + state.probe) * 2;
  const when = epoch === 0 ? "Before training" : `After epoch ${epoch}`;
  const parts = [`${when}, ${run.timeText(state.t)}, ${run.whole(state.probe)}`, run.prediction(state.probe, epoch),
    `state at (${number(data[at])}, ${number(data[at + 1])}) in the plane`,
    (run.meta.attention || run.meta.influence) && strongest(view, state), run.meta.measure && MEASURE.words(view, state)];
  return `${parts.filter(Boolean).join("; ")}.`;
}

// The text beside the pointer.
export class Tip {
  constructor() {
    this.node = make("div", { className: "tip", hidden: true });
    this.pointer = null;  // { view, panel, x, y, event }
  }

  show(views, state) {
    const { pointer, node } = this;
    const lines = pointer && views.includes(pointer.view) ? pointer.view.lines(pointer.panel, pointer.x, pointer.y, state) : null;
    node.hidden = !lines;
    if (!lines) return;
    setText(node, lines.join("\n"));
    const own = node.parentElement.getBoundingClientRect(), x = pointer.event.clientX - own.left, y = pointer.event.clientY - own.top;
    const left = x + 16 + node.offsetWidth > own.width ? x - 16 - node.offsetWidth : x + 16;
    node.style.transform = `translate(${Math.max(left, 0)}px, ${Math.max(y - node.offsetHeight - 10, 0)}px)`;
  }
}
