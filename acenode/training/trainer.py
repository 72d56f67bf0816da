"""Algorithm 1 of the paper, "How to train the dual co-evolving NODEs".

    for every mini-batch                                                     Trainer.train_batch
        phase one: train θ_f and θ_others with ∇L_h, θ_g fixed (Eq. 7)       Trainer._phase_one
        phase two: train θ_g with ∇L_a, the rest fixed (Eqs. 6 and 8)        Trainer._phase_two
    after every epoch: validate and update the best parameters               Trainer._validate

The trainer knows no experiment: a `Task` is the model with its data and loss, a `Recipe` the training settings.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from acenode.errors import SolveError, UserError
from acenode.ode.runge_kutta import Evaluations
from acenode.training.task import InterruptibleTask, Listener, Recipe, Task

# One pass: forward, backward, and the update of the parameters that the pass trains ---------------------------------


def parameter_norm(parameters: Sequence[nn.Parameter], kind: str) -> Tensor:
    """Return ‖θ‖ over all entries of all parameters together, not squared; `kind` is l1 or l2."""
    if kind == "l1":
        return torch.cat([p.flatten() for p in parameters]).abs().sum()
    return torch.linalg.vector_norm(torch.cat([p.flatten() for p in parameters]))


@contextmanager
def train_only(trained: Sequence[nn.Parameter], everything: Sequence[nn.Parameter]) -> Iterator[None]:
    """Fix all parameters but the trained ones, so that no gradient is computed for them.

    A parameter that is frozen, with `requires_grad` False, stays frozen, also if it is among the trained ones.
    """
    chosen, free = {id(p) for p in trained}, [p.requires_grad for p in everything]
    for p, was_free in zip(everything, free, strict=True):
        p.requires_grad_(was_free and id(p) in chosen)
    try:
        yield
    finally:
        for p, was_free in zip(everything, free, strict=True):
            p.requires_grad_(was_free)


@dataclass(frozen=True)
class OptimiserGroup:
    parameters: list[nn.Parameter]
    optimiser: torch.optim.Optimizer


@dataclass(frozen=True)
class PassSpec:
    """Which parameters a pass trains, and whether its loss is L_task or L_task + λ‖θ_g‖ (Eq. 6)."""

    name: str
    groups: tuple[OptimiserGroup, ...]
    detach_attention: bool = False
    penalised: tuple[nn.Parameter, ...] = ()
    penalty: str = "none"
    penalty_weight: float = 0.0

    @property
    def trained(self) -> list[nn.Parameter]:
        """The parameters that the pass updates: those of its groups that are not frozen."""
        return [p for group in self.groups for p in group.parameters if p.requires_grad]

    def penalty_term(self) -> Tensor | float:
        if not self.penalised or self.penalty == "none" or self.penalty_weight == 0:
            return 0.0
        return self.penalty_weight * parameter_norm(self.penalised, self.penalty)


@dataclass(frozen=True)
class PassResult:
    """What one pass computed; the tensors are still on the device."""

    task_loss: Tensor  # L_task
    loss: Tensor  # the loss that was minimised: L_task, with λ‖θ_g‖ where the pass penalises it
    metrics: dict[str, Tensor]
    gradient_norms: list[Tensor]  # one for each group
    evaluations: Evaluations | None  # the cost of the ODE solve


class PassEngine(Protocol):
    """Another implementation of `run_pass`; returns None where it cannot do the pass, which is then done plainly."""

    def run(self, spec: PassSpec, batch: Any) -> PassResult | None: ...


def run_pass(task: Task, spec: PassSpec, batch: Any) -> PassResult:
    """Compute the loss of a batch and its gradients, and update the parameters that the pass trains.

    If all of them are frozen, the loss is computed and nothing is updated.
    """
    trained = spec.trained
    with train_only(trained, list(task.model.parameters())):
        loss = task.loss(batch, detach_attention=spec.detach_attention)
        total = loss.task + spec.penalty_term()
        for group in spec.groups:
            group.optimiser.zero_grad(set_to_none=True)
        if trained:
            total.backward()
        for group in spec.groups:
            group.optimiser.step()
    return PassResult(loss.task.detach(), total.detach(), loss.metrics,
                      [gradient_norm(group.parameters) for group in spec.groups], loss.evaluations)


def gradient_norm(parameters: Sequence[nn.Parameter]) -> Tensor:
    """Return the L2 norm of all gradients together; parameters without a gradient do not count."""
    grads = [p.grad for p in parameters if p.grad is not None]
    return torch.nn.utils.get_total_norm(grads) if grads else torch.zeros(())


# Training -------------------------------------------------------------------------------------------------------------

MUST_BE_FINITE = {"L_h": "the loss L_h", "L_a": "the loss L_a",
                  "grad_h": "the gradient of L_h", "grad_a": "the gradient of L_a"}
FLUSH_SECONDS = 0.5  # between two readings of the losses: reading a value of a GPU makes the host wait


class TrainingError(RuntimeError):
    """Training diverged; the message says where and what to change."""


@dataclass
class BestEpoch:
    """The best epoch so far. There is none, and its values are None, before the first validation.

    Args:
        value: its validation metric.
        epoch: its number, counted from 0.
        model: the model's `state_dict` after it, on the CPU. Of a distributed model, that of the module inside.
        selection_value: the measure that selected it, which is `value` unless the metric names another.
        tie_value: the metric's tie breaker; infinite if it has none, or if the value is not known.
    """

    value: float | None = None
    epoch: int | None = None
    model: dict[str, Tensor] | None = None
    selection_value: float | None = None
    tie_value: float = math.inf


class Trainer:
    """Trains a task by Algorithm 1, from the beginning or from a loaded state.

    After training, the model has the parameters of the last epoch and is in evaluation mode. `best` is the `BestEpoch`
    by validation; `task.model.load_state_dict(trainer.best.model)` takes its parameters.

    Args:
        task: the model with its data and loss.
        recipe: the training settings.
        listener: receives records and checkpoints, and may ask to stop; `SilentListener()` ignores them.
        engine: another implementation of a pass, such as recorded CUDA graphs; None for plain autograd.

    Raises:
        UserError: every parameter is frozen, or the recipe does not suit the model.

    Examples:
        >>> import torch
        >>> from acenode import NODE, Solver
        >>> from acenode.training.task import Loss, Metric, ParameterGroups, Recipe, SilentListener
        >>> from acenode.training.trainer import Trainer
        >>> class Decay(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.k = torch.nn.Parameter(torch.tensor(0.5))
        ...     def forward(self, h, t):
        ...         return -self.k * h
        >>> class FindRate:  # of h(t) = h(0) exp(-1.5 t)
        ...     metric, iterations = Metric("mse", higher_is_better=False), 10
        ...     def __init__(self):
        ...         self.model = NODE(Decay(), Solver("rk4", step_size=0.25))
        ...     def groups(self, detach_attention):
        ...         return ParameterGroups.split(self.model, [], None, detach_attention)
        ...     def batch(self, epoch, iteration):
        ...         return torch.rand(16, 2, generator=torch.Generator().manual_seed(100 * epoch + iteration))
        ...     def loss(self, batch, *, detach_attention):
        ...         path = self.model(batch, detach_attention=detach_attention)
        ...         error = path.h[-1] - batch * torch.exp(torch.tensor(-1.5))
        ...         return Loss(error.square().mean(), {}, path.evaluations)
        ...     @torch.no_grad()
        ...     def evaluate(self, split):
        ...         return {"mse": float(self.loss(self.batch(999, 0), detach_attention=False).task)}
        >>> task = FindRate()
        >>> recipe = Recipe(8, 0.05, lambda parameters, rate, is_attention: torch.optim.Adam(parameters, lr=rate))
        >>> trainer = Trainer(task, recipe, SilentListener())
        >>> trainer.run(), task.model.training
        (True, False)
        >>> task.model.load_state_dict(trainer.best.model)
        <All keys matched successfully>
        >>> round(task.model.f.k.item(), 1)
        1.5
    """

    def __init__(self, task: Task, recipe: Recipe, listener: Listener, engine: PassEngine | None = None) -> None:
        self.task, self.recipe, self.listener, self.engine = task, recipe, listener, engine
        if isinstance(task, InterruptibleTask):
            task.interrupted = listener.stop_requested
        self.module = task.model.module if isinstance(task.model, DistributedDataParallel) else task.model
        groups = task.groups(recipe.detach_attention)
        if not any(p.requires_grad for p in (*groups.main, *groups.attention)):
            raise UserError("every parameter is frozen: set requires_grad of those to train")
        if groups.attention and recipe.schedule == "epoch" and recipe.epochs < 2:
            raise UserError("schedule=epoch trains θ_g in every second epoch: give it at least 2 epochs")
        if groups.attention and recipe.schedule != "joint" and isinstance(task.model, DistributedDataParallel) and (
                not task.model.find_unused_parameters or task.model.static_graph):
            raise UserError("each phase trains a part of the parameters: use DistributedDataParallel with "
                            "find_unused_parameters=True and static_graph=False, or schedule=joint")
        self.main_optimiser = recipe.optimiser(groups.main, recipe.learning_rate, False)
        self.attention_optimiser = (recipe.optimiser(groups.attention, recipe.learning_rate, True)
                                    if groups.attention else None)
        main, penalised = OptimiserGroup(groups.main, self.main_optimiser), tuple(groups.penalised)
        self.phase_one = PassSpec("one", (main,), recipe.detach_attention)
        if self.attention_optimiser is not None:
            attention = OptimiserGroup(groups.attention, self.attention_optimiser)
            self.phase_two = PassSpec("two", (attention,), False, penalised, recipe.penalty, recipe.penalty_weight)
            self.joint = PassSpec("joint", (main, attention), False, penalised, recipe.penalty, recipe.penalty_weight)
        self.epoch = self.iteration = self.step = 0
        self.seconds = 0.0
        self.best = BestEpoch()
        self.sums: dict[str, float] = {}  # of this epoch's batch metrics
        self.pending: list[dict[str, Any]] = []  # records whose tensors have not been read yet

    def run(self) -> bool:
        """Train to the end or until the listener asks to stop.

        Returns:
            True if the end was reached.

        Raises:
            TrainingError: a loss or a gradient became infinite or NaN.
            SolveError: an ODE solve failed.
            UserError: the task's `evaluate` does not return what its metric names.
        """
        last_flush = time.monotonic()
        while self.epoch < self.recipe.epochs:
            self.task.model.train()
            while self.iteration < self.task.iterations:
                if self.listener.stop_requested():
                    self._save()
                    return False
                start = time.perf_counter()
                try:
                    record = self.train_batch()
                except SolveError:
                    self._flush()  # so that the curves end at the failing step
                    raise
                record["seconds"] = time.perf_counter() - start
                self.seconds += record["seconds"]
                self.pending.append(record)
                self.step += 1
                self.iteration += 1
                if time.monotonic() - last_flush > FLUSH_SECONDS:
                    self._flush()
                    last_flush = time.monotonic()
                    if self.listener.checkpoint_due() and self.iteration < self.task.iterations:
                        self._save()
            if not self._end_epoch():
                return False
        return True

    def _end_epoch(self) -> bool:
        """Validate and write a checkpoint; return False if training was asked to stop.

        An interrupted validation loses no training: a checkpoint is written before it if one is due, and after it, also
        if it failed.
        """
        self._flush()
        if self.listener.checkpoint_due():
            self._save()
        epoch = self.epoch
        try:
            validated = not self.listener.stop_requested() and self._validate()
        except BaseException:
            if self.epoch == epoch:
                with contextlib.suppress(Exception):  # the first error is the one to report
                    self._save()
            raise
        self._save()
        return validated

    def train_batch(self) -> dict[str, Any]:
        """Train on one mini-batch and return its record; losses and metrics in it are still tensors."""
        recipe, batch = self.recipe, self.task.batch(self.epoch, self.iteration)
        rate = recipe.learning_rate * recipe.rate(self.progress)
        for optimiser in filter(None, (self.main_optimiser, self.attention_optimiser)):
            for group in optimiser.param_groups:
                group["lr"] = rate
        record: dict[str, Any] = {"step": self.step, "epoch": self.epoch, "lr": rate}
        if self.attention_optimiser is None:
            record |= self._phase_one(batch)
        elif recipe.schedule == "joint":
            record |= self._joint(batch)
        elif recipe.schedule == "epoch":
            record |= self._phase_one(batch) if self.epoch % 2 == 0 else self._phase_two(batch)
        else:
            record |= self._phase_one(batch) | self._phase_two(batch)
        return record

    def _phase_one(self, batch: Any) -> dict[str, Any]:
        """Train θ_f and θ_others with ∇L_h, θ_g fixed (Eq. 7; a is held constant too with `detach_attention`)."""
        result = self._pass(self.phase_one, batch)
        return {"L_h": result.task_loss, **result.metrics, "grad_h": result.gradient_norms[0],
                **_solve_cost(result.evaluations, "")}

    def _phase_two(self, batch: Any) -> dict[str, Any]:
        """Train θ_g with ∇L_a, the rest fixed (Eqs. 6 and 8), on a new forward pass."""
        result = self._pass(self.phase_two, batch)
        return {"L_a": result.loss, **(result.metrics if self.recipe.schedule == "epoch" else {}),
                "grad_a": result.gradient_norms[0], **_solve_cost(result.evaluations, "_a")}

    def _joint(self, batch: Any) -> dict[str, Any]:
        """Train all parameters with ∇(L_task + λ‖θ_g‖) in one pass, as the authors' released code does."""
        result = self._pass(self.joint, batch)
        return {"L_h": result.task_loss, "L_a": result.loss, **result.metrics, "grad_h": result.gradient_norms[0],
                "grad_a": result.gradient_norms[1], **_solve_cost(result.evaluations, "")}

    def _validate(self) -> bool:
        """Validate and update the best parameters; return False if validation was interrupted."""
        self.task.model.eval()
        validation = self.task.evaluate("validation")
        if not validation:
            return False
        metric = self.task.metric
        value = _measure(validation, metric.name)
        selection_value = _measure(validation, metric.selection) if metric.selection else value
        tie_value = _measure(validation, metric.tie_breaker) if metric.tie_breaker else math.inf
        improved = metric.improves(selection_value, self.best.selection_value, tie_value, self.best.tie_value)
        if improved:
            self.best = BestEpoch(value, self.epoch, {k: v.detach().to("cpu", copy=True)
                                                      for k, v in self.module.state_dict().items()},
                                  selection_value, tie_value if math.isfinite(tie_value) else math.inf)
        means = {f"train_{k}": v / self.task.iterations for k, v in self.sums.items()}
        self.epoch, self.iteration, self.sums = self.epoch + 1, 0, {}
        self.listener.on_epoch({"step": self.step, "epoch": self.epoch, **means,
                                **{f"validation_{k}": v for k, v in validation.items()},
                                "best": improved, "elapsed": self.seconds})
        return True

    def _pass(self, spec: PassSpec, batch: Any) -> PassResult:
        result = self.engine.run(spec, batch) if self.engine is not None else None
        return result or run_pass(self.task, spec, batch)

    @property
    def progress(self) -> float:
        return (self.epoch + self.iteration / self.task.iterations) / self.recipe.epochs

    def _flush(self) -> None:
        """Read the pending tensors in one transfer, send the records to the listener and check them."""
        tensors = [v.float() for r in self.pending for v in r.values() if isinstance(v, Tensor)]
        values = iter(torch.stack([t.reshape(()) for t in tensors]).tolist()) if tensors else iter(())
        records = [{k: next(values) if isinstance(v, Tensor) else v for k, v in r.items()} for r in self.pending]
        self.pending = []
        for record in records:
            for key, value in record.items():
                if key not in ("step", "epoch", "seconds", "lr"):
                    self.sums[key] = self.sums.get(key, 0.0) + value
        if records:
            self.listener.on_steps(records)
        for record in records:
            self._check_finite(record)

    def _check_finite(self, record: dict[str, Any]) -> None:
        """Raise TrainingError for a NaN or an infinity; called before every checkpoint, so none contains one."""
        bad = next((k for k in MUST_BE_FINITE if not math.isfinite(record.get(k, 0.0))), None)
        if bad is not None:
            remedy = f" or {self.recipe.remedy}" if self.recipe.remedy else ""
            raise TrainingError(f"{MUST_BE_FINITE[bad]} became {record[bad]} at step {record['step']}: lower the "
                                f"learning rate (now {record['lr']:g}){remedy}")

    def _save(self) -> None:
        self._flush()
        self.listener.on_checkpoint(self.state_dict())

    def state_dict(self) -> dict[str, Any]:
        """Return everything that is needed to continue with the same numbers."""
        return {
            "epoch": self.epoch, "iteration": self.iteration, "step": self.step, "seconds": self.seconds,
            "sums": dict(self.sums), "model": self.module.state_dict(), "main": self.main_optimiser.state_dict(),
            "attention": self.attention_optimiser.state_dict() if self.attention_optimiser else None,
            # "judged" is the value that selected the best epoch; existing checkpoints have this key
            "best": {"value": self.best.value, "epoch": self.best.epoch, "model": self.best.model,
                     "judged": self.best.selection_value, "tie": self.best.tie_value},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned, in a trainer of the same task and recipe."""
        self.epoch, self.iteration, self.step = state["epoch"], state["iteration"], state["step"]
        self.seconds, self.sums = state["seconds"], dict(state["sums"])
        best = state["best"]
        self.best = BestEpoch(best["value"], best["epoch"], best["model"], best.get("judged", best["value"]),
                              best.get("tie", math.inf))
        self.module.load_state_dict(state["model"])
        self.main_optimiser.load_state_dict(state["main"])
        if self.attention_optimiser is not None:
            self.attention_optimiser.load_state_dict(state["attention"])


def _measure(validation: dict[str, float], name: str) -> float:
    """Return a measure of the validation data; raise a UserError if the task does not compute it."""
    if name not in validation:
        raise UserError(f"evaluate('validation') returns no {name!r}, which the task's metric names: it returns "
                        f"{', '.join(validation)}")
    return validation[name]


def _solve_cost(evaluations: Evaluations | None, suffix: str) -> dict[str, Any]:
    """Return evaluations, steps and step sizes of a solve; read after the backward pass, which evaluates too."""
    if evaluations is None:
        return {}
    sizes = [abs(s) for s in evaluations.step_sizes]
    return {
        f"nfe_forward{suffix}": evaluations.forward, f"nfe_backward{suffix}": evaluations.backward,
        f"steps{suffix}": evaluations.accepted, f"rejected{suffix}": evaluations.rejected,
        **({f"dt_min{suffix}": min(sizes), f"dt_mean{suffix}": sum(sizes) / len(sizes), f"dt_max{suffix}": max(sizes)}
           if sizes else {}),
    }
