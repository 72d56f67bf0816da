// The status strips above the charts: progress, latest values and error of each run.
import { clamp, make, setTextOrHide } from "./theme.js";

const number = (value) => Number.isFinite(value) ? String(Number(value.toPrecision(4))) : "–";

// Coarser than duration(), because it is read while it counts down.
function timeLeft(seconds) {
  if (!Number.isFinite(seconds) || seconds <= 0) return "";
  if (seconds < 90) return `about ${seconds < 10 ? Math.ceil(seconds) : 5 * Math.round(seconds / 5)} s left`;
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? `about ${minutes} min left` : `about ${Math.floor(minutes / 60)} h ${minutes % 60} min left`;
}

function stage(run) {
  const { epoch, epochs, phase } = run.status ?? {};
  if (!epochs) return "";
  if (!run.busy) return `${epoch} of ${epochs} epochs`;
  return phase === "testing" ? "testing" : `epoch ${Math.min((epoch ?? 0) + 1, epochs)} of ${epochs}`;
}

// A value of the metric in its unit, as the pages write it; `format` is a MetricFormat.
export function metricText(value, format) {
  if (!Number.isFinite(value) || !format) return number(value);
  const { scale, digits, unit } = format, scaled = scale * value;
  return `${digits === null ? number(scaled) : scaled.toFixed(digits)}${unit}`;
}

function values(run, { metric, title, number: format }) {
  const latest = [["loss of the state (L_h)", "steps", "L_h", number], ["of attention (L_a)", "steps", "L_a", number],
    [`validation ${title}`, "epochs", `validation_${metric}`, (value) => metricText(value, format)]];
  return latest.map(([name, of, key, written]) => [name, run.latest(of, key), written]).filter(([, value]) => value !== null)
    .map(([name, value, written]) => `${name}\u00a0${written(value)}`).join("   ");
}

export class StatusStrips {
  constructor() {
    this.node = make("div", "strips");
    this.shown = new Map();  // run → the parts of its strip
  }

  // Updates the strips. A run has one while it is queued or running, or if it has an error.
  write(runs, view) {
    for (const [run, { box }] of this.shown) if (runs.get(run.given.id) !== run) { box.remove(); this.shown.delete(run); }
    for (const run of runs.values()) {
      if (run.given.live || run.status?.error || this.shown.has(run)) this.writeOne(this.shown.get(run) ?? this.add(run), run, view);
    }
    this.node.hidden = ![...this.shown.values()].some((part) => !part.box.hidden);
  }

  add(run) {
    const part = { label: make("strong", "label"), state: make("span", "state"), stage: make("span"), left: make("span"),
      values: make("span", "values"), fill: make("div", "fill"), error: make("p", "error") };
    part.track = make("div", { className: "track", role: "progressbar", "aria-label": String(run.given.label) }, part.fill);
    part.box = make("section", "strip", make("div", "head", part.label, part.state, part.stage, part.left, part.values), part.track, part.error);
    this.node.append(part.box);
    this.shown.set(run, part);
    return part;
  }

  writeOne(part, run, view) {
    const status = run.status ?? {}, error = String(status.error || ""), state = run.gone ? "deleted" : status.state ?? "…";
    part.box.hidden = !run.given.live && !error;
    part.box.dataset.state = state;
    setTextOrHide(part.label, String(run.given.label ?? run.given.id));
    setTextOrHide(part.state, state);
    setTextOrHide(part.stage, stage(run));
    setTextOrHide(part.left, state === "running" ? timeLeft(status.seconds_left) : "");
    setTextOrHide(part.values, values(run, view));
    setTextOrHide(part.error, error);
    const percent = Math.round(1000 * clamp(status.progress ?? 0, 0, 1)) / 10;
    part.track.hidden = !run.given.live;
    part.track.setAttribute("aria-valuenow", String(percent));
    part.fill.style.width = `${percent}%`;
  }
}
