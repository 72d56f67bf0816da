// The charts: what each one draws, and why it may be empty.

export const AXES = { step: { title: "Step", hover: "step %{x:.0f}" }, epoch: { title: "Epoch", hover: "epoch %{x:.2~f}" },
  time: { title: "Training time (s)", hover: "%{x:.1f} s" } };

// The dash distinguishes quantities, the colour runs. With a single run, `tint` gives a quantity its own colour.
export const PANELS = [
  { name: "losses", title: () => "Losses", of: "steps", log: true,
    curves: () => [{ key: "L_h", name: "L_h" }, { key: "L_a", name: "L_a", dash: "dash", tint: "warm" }] },
  { name: "metric", title: (title) => title, of: "epochs",
    curves: (metric) => [{ key: `train_${metric}`, name: "training", dash: "dot", tint: "warm" },
      { key: `validation_${metric}`, name: "validation", best: true }] },
  { name: "nfe", title: () => "Function evaluations (NFE)", of: "steps", ode: true, zero: true,
    curves: () => [{ key: "nfe_forward", name: "forward" },
      { key: "nfe_backward", name: "backward", dash: "dash", tint: "warm" },
      { key: "nfe_forward_a", name: "forward, phase two", two: true, tint: "cool" },
      { key: "nfe_backward_a", name: "backward, phase two", two: true, dash: "dash", tint: "grape" }] },
  { name: "dt", title: () => "Solver step size", of: "steps", ode: true, zero: true,
    curves: () => [{ key: "dt_mean", name: "mean", range: ["dt_min", "dt_max"] }] },
  { name: "gradients", title: () => "Gradient norms", of: "steps", zero: true,
    curves: () => [{ key: "grad_h", name: "∇L_h" }, { key: "grad_a", name: "∇L_a", dash: "dash", tint: "warm" }] },
  { name: "seconds", title: () => "Seconds per step", of: "steps", zero: true,
    curves: () => [{ key: "seconds", name: "seconds" }] },
  { name: "lr", title: () => "Learning rate", of: "steps", zero: true, exact: true,
    curves: () => [{ key: "lr", name: "learning rate" }] },
];
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
