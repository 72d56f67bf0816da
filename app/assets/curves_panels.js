// The charts: what each one draws, and why it may be empty.

export const AXES = { step: { title: "Step", hover: "step %{x:.0f}" }, epoch: { title: "Epoch", hover: "epoch %{x:.2~f}" },
  time: { title: "Training time (s)", hover: "%{x:.1f} s" } };

// The dash distinguishes quantities, the colour runs. With a single run, `tint` gives a quantity its own colour.
// `axis` is the title of the vertical axis; without it, it is the panel's title. `hint` explains the symbols of a panel. Diagnostics are in a tab of their own.
export const PANELS = [
  { name: "metric", title: (title) => title, of: "epochs", hint: "After every epoch, on the training and the validation data",
    curves: (metric) => [{ key: `train_${metric}`, name: "training", dash: "dot", tint: "warm" },
      { key: `validation_${metric}`, name: "validation", best: true }] },
  { name: "losses", title: () => "Loss", of: "steps", log: true,
    hint: "Loss of the state (L_h): the task's loss, which trains everything but the derivative of attention (g). Loss of attention (L_a): the task's loss plus the penalty on the parameters of that derivative (θ_g), which it trains.",
    curves: () => [{ key: "L_h", name: "of the state (L_h)" }, { key: "L_a", name: "of attention (L_a)", dash: "dash", tint: "warm" }] },
  { name: "nfe", title: () => "Function evaluations (NFE)", axis: "Evaluations", of: "steps", ode: true, zero: true, diagnostic: true,
    hint: "How often the solver evaluates the derivative of the state (f) in one pass",
    curves: () => [{ key: "nfe_forward", name: "forward" },
      { key: "nfe_backward", name: "backward", dash: "dash", tint: "warm" },
      { key: "nfe_forward_a", name: "forward, while attention trains", two: true, tint: "cool" },
      { key: "nfe_backward_a", name: "backward, while attention trains", two: true, dash: "dash", tint: "grape" }] },
  { name: "dt", title: () => "Step size of the solver (Δt)", axis: "Step size (Δt)", of: "steps", ode: true, zero: true, diagnostic: true,
    hint: "Mean step in the time of the ODE; the band is from the smallest to the largest step",
    curves: () => [{ key: "dt_mean", name: "mean", range: ["dt_min", "dt_max"], band: "smallest to largest" }] },
  { name: "gradients", title: () => "Gradient norms", axis: "Norm", of: "steps", zero: true, diagnostic: true,
    hint: "Norm of the gradient of the loss of the state (∇L_h), and of the loss of attention (∇L_a)",
    curves: () => [{ key: "grad_h", name: "state (∇L_h)" }, { key: "grad_a", name: "attention (∇L_a)", dash: "dash", tint: "warm" }] },
  { name: "seconds", title: () => "Seconds per step", of: "steps", zero: true, diagnostic: true, hint: "Time of one mini-batch",
    curves: () => [{ key: "seconds", name: "seconds" }] },
  { name: "lr", title: () => "Learning rate", of: "steps", zero: true, exact: true, diagnostic: true, hint: "Learning rate of both optimisers",
    curves: () => [{ key: "lr", name: "learning rate" }] },
];

// The panels of a tab: results or diagnostics.
export const panelsOf = (diagnostics) => PANELS.filter((panel) => Boolean(panel.diagnostic) === diagnostics).map(({ name }) => name);
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
