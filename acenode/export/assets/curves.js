// Curves over steps and epochs.
const STEPS = DATA.steps, SERIES = STEPS.series;
let smoothing = Number(at("smoothing").value);

// Exponential moving average, corrected for its start; gaps stay gaps and are skipped.
function smooth(values, weight) {
  let sum = 0, share = 0;
  return values.map((v) => {
    if (v === null) return null;
    sum = weight * sum + (1 - weight) * v;
    share = weight * share + (1 - weight);
    return sum / share;
  });
}

function lines(key, name, colour, more = {}) {
  if (!SERIES[key]) return [];
  const line = (width) => ({ color: colour, width }), mode = SERIES[key].length > 1 ? "lines" : "markers";
  const one = { x: STEPS.step, name, type: "scatter", mode, connectgaps: false, legendgroup: key };
  const raw = { ...one, y: SERIES[key], showlegend: false, hoverinfo: "skip", line: line(1), opacity: 0.3, ...more };
  const main = { ...one, y: smooth(SERIES[key], smoothing), line: line(2), hovertemplate: "%{y:.4g}", ...more };
  return smoothing > 0 ? [raw, main] : [main];
}

// If an axis covers few integers, put ticks on integers only.
const whole = (values) => Math.max(...values) - Math.min(...values) <= 10 ? { dtick: 1 } : {};
const overSteps = (colours, data, y, more = {}) => (
  { data, layout: layout(colours, axis(colours, "Step", whole(STEPS.step)), y, { hovermode: "x unified", ...more }) });

chart("losses", (c) => overSteps(c, [...lines("L_h", "L_h", c.accent), ...lines("L_a", "L_a = L_task + λ‖θ_g‖", c.warm)],
  axis(c, "Loss", { type: at("log").checked ? "log" : "linear" }), { uirevision: at("log").checked }));

chart("nfe", (c) => overSteps(c, [
  ...lines("nfe_forward", "Forward", c.accent), ...lines("nfe_backward", "Backward", c.ok),
  ...lines("nfe_forward_a", "Forward, phase two", c.warm, { visible: "legendonly" }),
  ...lines("nfe_backward_a", "Backward, phase two", c.muted, { visible: "legendonly" })],
  axis(c, "Evaluations", { rangemode: "tozero" })));

chart("dt", (c) => overSteps(c, [
  ...lines("dt_max", "Maximum", c.ok), ...lines("dt_mean", "Mean", c.accent), ...lines("dt_min", "Minimum", c.warm),
  ...lines("dt_mean_a", "Mean, phase two", c.muted, { visible: "legendonly" })],
  axis(c, "Δt", { rangemode: "tozero" })));

chart("gradients", (c) => overSteps(c, [...lines("grad_h", "‖∇L_h‖", c.accent), ...lines("grad_a", "‖∇L_a‖", c.warm)],
  axis(c, "Gradient norm", { rangemode: "tozero" })));

chart("seconds", (c) => overSteps(c, lines("seconds", "Time", c.accent).map((t) => ({ ...t, showlegend: false })),
  axis(c, "Seconds", { rangemode: "tozero" })));

chart("metric", (c) => {
  const e = DATA.epochs, mode = e.epoch.length > 40 ? "lines" : "lines+markers";
  const curves = [["train_" + e.metric, "Training (mean of the epoch)", c.accent], ["validation_" + e.metric, "Validation", c.warm]];
  const data = curves.filter(([key]) => e.series[key]).map(([key, name, colour]) => (
    { x: e.epoch, y: e.series[key], name, type: "scatter", mode, hovertemplate: "%{y:.4g}", line: { color: colour, width: 2 },
      marker: { size: 6 } }));
  const kept = e.best === null ? {} : {
    shapes: [{ type: "line", x0: e.best, x1: e.best, y0: 0, y1: 1, yref: "paper", line: { color: c.muted, width: 1, dash: "dot" } }],
    annotations: [{ x: e.best, y: 0, yref: "paper", yanchor: "bottom", xanchor: "right", text: "Best epoch ", showarrow: false,
      font: { size: 12, color: c.muted } }] };
  return { data, layout: layout(c, axis(c, "Epoch", whole(e.epoch)), axis(c, brief(e.title.charAt(0).toUpperCase() + e.title.slice(1), 40)), { hovermode: "x unified", ...kept }) };
});

const OVER_STEPS = ["losses", "nfe", "dt", "gradients", "seconds"];
at("log").addEventListener("change", () => { if (CHARTS.has("losses")) draw("losses"); });
function resmooth() {
  smoothing = Number(at("smoothing").value);
  at("smoothing-value").textContent = smoothing.toFixed(2);
  for (const id of OVER_STEPS) if (CHARTS.has(id)) draw(id);
}
at("smoothing").addEventListener("input", resmooth);
at("smoothing-value").textContent = smoothing.toFixed(2);
if (STEPS.every > 1) at("thinned").textContent = `Each point is the mean of ${STEPS.every} steps.`;
