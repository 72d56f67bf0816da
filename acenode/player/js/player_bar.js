// The player's controls: play, time, epoch, what the maps show, and the samples (probes).
import { paintInput } from "./colours.js";
import { span } from "./player_draw.js";
import { button, checkbox, make, select, setText, slider } from "./theme.js";

const SPEEDS = [0.25, 0.5, 1, 2, 4];
// Ticks below the time slider, at the times when the chosen probe's state jumped.
const RUG = '<svg class="rug" viewBox="0 0 1000 1" preserveAspectRatio="none" aria-hidden="true"><path></path></svg>';

export class Bar {
  constructor(player) {
    this.player = player;
    this.picked = this.run = null;
    this.ends = [0, 1];
    this.play = button("", () => player.play(!player.stage.playing), { className: "play" });
    this.time = slider("Time (t)", 0, 1, 0.001, (t) => { player.play(false); player.go({ t }); });
    this.epoch = slider("Training epoch", 0, 1, 1, (index) => player.go({ epoch: player.epochs[index] }));
    this.rug = document.createRange().createContextualFragment(RUG).firstChild;
    this.timeText = make("output");
    this.epochText = make("output");
    const choice = (title, words, node) => make("label", { className: "choice", title }, words, node);
    const speed = select("Speed", SPEEDS.map((v) => [String(v), `${v}×`]), (value) => player.set({ speed: Number(value) }));
    speed.value = "1";
    this.follow = checkbox("Follow latest epoch", false, (on) => player.follow(on));
    this.same = checkbox("Shared scales", true, (same) => player.set({ same }));
    this.same.title = "Equal colours mean equal values in all runs. The axes of the principal components (PCA) differ between runs.";
    this.map = choice("Attention: what a variable reads. Influence: how strongly another variable changes its derivative.", "Map",
      select("Map", [["attention", "Attention (softmax(a))"], ["influence", "Influence (|∂ḣ/∂h|)"]], (map) => player.set({ map })));
    this.mode = choice("", "Values", select("Values", [["weight", "At time t"], ["change", "Change since start"]], (mode) => player.set({ mode })));
    const axes = choice("Axes of the principal components (PCA): the same for all epochs, or fitted to the one shown", "Axes (PCA)",
      select("Axes (PCA)", [["all", "All epochs"], ["one", "This epoch"]], (value) => player.set({ fitEpoch: value === "one" })));
    this.panels = make("div", { className: "tabs", role: "group", "aria-label": "Panel" });
    this.options = button("Options", () => this.unfold(), { className: "options", "aria-expanded": "false" });
    this.probes = make("div", { className: "probes", role: "group", "aria-label": "Sample" });
    this.subject = make("span", "subject");
    this.node = make("div", { className: "bar", role: "group", "aria-label": "Controls" },
      make("div", "line", this.play, make("label", { className: "slider", title: "Time of the ODE, not of training" }, "Time (t)", make("span", "timeline", this.time, this.rug)),
        this.timeText, make("span", "extra", speed, checkbox("Loop", true, (loop) => player.set({ loop })))),
      make("div", "line", make("label", "slider", "Epoch", this.epoch), this.epochText, this.follow),
      make("div", "line", make("span", "extra", this.map, this.mode, axes, this.same), make("div", "samples", this.subject, this.probes), this.options, this.panels));
  }

  // Handle a key pressed anywhere in the player.
  key(event) {
    const { player } = this, { target } = event, kind = target.tagName === "INPUT" ? target.type : target.tagName;
    if (event.altKey || event.ctrlKey || event.metaKey || kind === "SELECT" || kind === "TEXTAREA" || target.isContentEditable) return;
    const button = kind === "BUTTON" || kind === "checkbox" || kind === "SUMMARY";
    if (!button && target !== this.time && kind !== "DIV") return;
    const end = (i) => { player.play(false); player.go({ t: player.ends[i] }); };
    const wanted = { ArrowLeft: () => player.step(-1), ArrowRight: () => player.step(1), ArrowUp: () => player.stepEpoch(1),
      ArrowDown: () => player.stepEpoch(-1), Home: () => end(0), End: () => end(1), " ": () => player.play(!player.stage.playing) }[event.key];
    if (!wanted || (event.key === " " && button)) return;
    event.preventDefault();
    event.stopPropagation();
    wanted();
  }

  // On a narrow page: show or hide the controls that are not needed all the time.
  unfold() {
    const open = this.node.classList.toggle("unfolded");
    this.options.setAttribute("aria-expanded", String(open));
  }

  // On a narrow page: offer the panels [name, title], of which one is shown.
  offerPanels(panels, chosen) {
    const key = JSON.stringify([panels, chosen]);
    if (key === this.panelsKey) return;
    this.panelsKey = key;
    this.panels.replaceChildren(...panels.map(([name, title]) =>
      button(title, () => this.player.set({ panel: name }), { "aria-pressed": String(name === chosen) })));
  }

  // Offer the epochs, times and probes of these runs.
  offer(runs, epochs, [start, end]) {
    const known = runs.filter(({ meta }) => meta?.epochs.length);
    if (known.length) {
      Object.assign(this.time, { min: String(start), max: String(end), step: String((end - start) / 1000 || 0.001) });
      Object.assign(this.epoch, { max: String(epochs.length - 1), disabled: epochs.length < 2 });
      this.ends = [start, end];
      this.pick(known.reduce((a, b) => a.meta.probes >= b.meta.probes ? a : b));
    }
    this.node.hidden = runs.every(({ meta, spec }) => meta && !meta.epochs.length && !spec.live);
    this.play.disabled = this.time.disabled = !known.length;
    this.follow.hidden = !runs.some(({ spec }) => spec.live);
    this.map.hidden = !known.some(({ meta }) => meta.named && meta.attention);
    this.mode.hidden = !known.some(({ meta }) => meta.attention || meta.influence);
    this.same.hidden = known.length < 2;
  }

  // Offer the probes of the run that has the most.
  pick(run) {
    const { meta } = run, key = `${run.spec.id}/${meta.probes}/${meta.image?.pixels.length}/${meta.labels}/${meta.classes}/${meta.names}/${meta.subject}`;
    this.run = run;
    // as wide as its longest text, so that the slider keeps its width
    this.timeText.style.minWidth = meta.time ? `${Math.max(...meta.t.map((t) => run.timeText(t).length))}ch` : "";
    if (key === this.picked) return;
    this.picked = key;
    setText(this.subject, meta.subject[0].toUpperCase() + meta.subject.slice(1));
    this.probes.setAttribute("aria-label", this.subject.textContent);
    this.probes.replaceChildren(...span(meta.probes).map((probe) => {
      const node = button("", () => this.player.go({ probe }), { title: run.whole(probe) });
      node.style.setProperty("--class", run.colour(probe));
      if (run.pixels) {
        const [, height, width] = meta.image.shape, canvas = make("canvas", { width, height });
        canvas.getContext("2d").drawImage(paintInput(run, probe), 0, 0);
        node.append(canvas);
      }
      node.append(make("span", "", run.short(probe)));
      return node;
    }));
  }

  showJumps(jumps, ends) {
    if (jumps === this.jumps && ends === this.jumpEnds) return;
    Object.assign(this, { jumps, jumpEnds: ends });
    const [start, end] = ends, x = (t) => ((t - start) / (end - start || 1) * 1000).toFixed(1);
    this.rug.firstChild.setAttribute("d", jumps.map((t) => `M${x(t)},0V1`).join(""));
  }

  // Show the player's position.
  showPosition({ t, epoch, probe }, epochs, playing, following) {
    setText(this.play, playing ? "❚❚ Pause" : "▶ Play");
    const when = this.run?.meta.time ? this.run.timeText(t) : t.toFixed(2), which = epoch === null ? "–" : String(epoch);
    setText(this.timeText, when);
    setText(this.epochText, epochs.length === 1 && this.follow.hidden ? `only epoch ${which} was kept` : which);
    if (this.spoken !== `${when}/${which}`) {
      this.spoken = `${when}/${which}`;
      this.time.setAttribute("aria-valuetext", when);
      this.epoch.setAttribute("aria-valuetext", `epoch ${which}`);
    }
    this.time.value = String(t);
    if (this.run) this.showJumps(this.run.jumps(probe), this.ends);
    this.epoch.value = String(Math.max(epochs.indexOf(epoch), 0));
    this.follow.firstChild.checked = following;
    for (const [i, button] of [...this.probes.children].entries()) {
      const pressed = String(i === probe);
      if (button.getAttribute("aria-pressed") !== pressed) button.setAttribute("aria-pressed", pressed);
    }
  }
}
