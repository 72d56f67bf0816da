"""Algorithm 1: train θ_f and θ_others with L_h, then θ_g with L_a, validate, keep the best. Knows no experiment."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from acenode.errors import SolveError, UserError
from acenode.ode.runge_kutta import Evaluations
from acenode.training.passes import Engine, Group, Pass, Passed, run_pass
from acenode.training.task import Listener, Recipe, Task

NUMBERS = {"L_h": "the loss L_h", "L_a": "the loss L_a",
           "grad_h": "the gradient of L_h", "grad_a": "the gradient of L_a"}


class TrainingError(RuntimeError):
    """Training that cannot go on, in words."""


@runtime_checkable
class Interruptible(Protocol):
    """A task that asks between the batches of an evaluation whether to go on; it answers {} where it did not."""

    interrupted: Callable[[], bool]


@dataclass
class Best:
    value: float | None = None
    epoch: int | None = None
    model: dict[str, Tensor] | None = None
    judged: float | None = None


class Trainer:
    """Runs a task by a recipe from wherever its state stands."""

    def __init__(self, task: Task, recipe: Recipe, listener: Listener, engine: Engine | None = None) -> None:
        self.task, self.recipe, self.listener, self.engine = task, recipe, listener, engine
        if isinstance(task, Interruptible):
            task.interrupted = listener.stop_asked
        groups = task.groups(recipe.detach_attention)
        if groups.attention and recipe.schedule == "epoch" and recipe.epochs < 2:
            raise UserError("schedule=epoch trains θ_g in every second epoch: give it at least 2 epochs")
        self.main = recipe.optimiser(groups.main, recipe.learning_rate, False)
        self.attention = (recipe.optimiser(groups.attention, recipe.learning_rate, True)
                          if groups.attention else None)
        main, penalised = Group(groups.main, self.main), tuple(groups.penalised)
        self.phase_one = Pass("one", (main,), recipe.detach_attention)
        if self.attention is not None:
            attention = Group(groups.attention, self.attention)
            self.phase_two = Pass("two", (attention,), False, penalised, recipe.penalty, recipe.penalty_weight)
            self.joint = Pass("joint", (main, attention), False, penalised, recipe.penalty, recipe.penalty_weight)
        self.epoch = self.iteration = self.step = 0
        self.seconds = 0.0
        self.best = Best()
        self.sums: dict[str, float] = {}  # of this epoch's batch metrics
        self.pending: list[dict[str, Any]] = []

    # The two phases -------------------------------------------------------------------------------------------

    def train_batch(self) -> dict[str, Any]:
        """One iteration of Algorithm 1 on one mini-batch; what happened, with tensors not yet read."""
        recipe, batch = self.recipe, self.task.batch(self.epoch, self.iteration)
        rate = recipe.learning_rate * recipe.rate(self.progress)
        for optimiser in filter(None, (self.main, self.attention)):
            for group in optimiser.param_groups:
                group["lr"] = rate
        record: dict[str, Any] = {"step": self.step, "epoch": self.epoch, "lr": rate}
        if self.attention is None:
            record |= self._phase_one(batch)
        elif recipe.schedule == "joint":
            record |= self._joint(batch)
        elif recipe.schedule == "epoch":
            record |= self._phase_one(batch) if self.epoch % 2 == 0 else self._phase_two(batch)
        else:
            record |= self._phase_one(batch) | self._phase_two(batch)
        return record

    def _phase_one(self, batch: Any) -> dict[str, Any]:
        """Train θ_f and θ_others with ∇L_h, θ_g fixed (Eq. 7)."""
        done = self._pass(self.phase_one, batch)
        return {"L_h": done.task, **done.metrics, "grad_h": done.norms[0], **_costs(done.evaluations, "")}

    def _phase_two(self, batch: Any) -> dict[str, Any]:
        """Train θ_g with ∇L_a, everything else fixed (Eqs. 6 and 8), on a fresh forward pass."""
        done = self._pass(self.phase_two, batch)
        return {"L_a": done.total, **(done.metrics if self.recipe.schedule == "epoch" else {}),
                "grad_a": done.norms[0], **_costs(done.evaluations, "_a")}

    def _joint(self, batch: Any) -> dict[str, Any]:
        """One pass on L_task + λ‖θ_g‖, both updates: what the authors' released code does."""
        done = self._pass(self.joint, batch)
        return {"L_h": done.task, "L_a": done.total, **done.metrics, "grad_h": done.norms[0], "grad_a": done.norms[1],
                **_costs(done.evaluations, "")}

    def _pass(self, this: Pass, batch: Any) -> Passed:
        done = self.engine.run(this, batch) if self.engine is not None else None
        return done or run_pass(self.task, this, batch)

    # The loop -------------------------------------------------------------------------------------------------

    @property
    def progress(self) -> float:
        """Fraction of the training that is done."""
        return (self.epoch + self.iteration / self.task.iterations) / self.recipe.epochs

    def run(self) -> bool:
        """Train to the end, or until asked to stop; whether the end was reached."""
        last_flush = time.monotonic()
        while self.epoch < self.recipe.epochs:
            self.task.model.train()
            while self.iteration < self.task.iterations:
                if self.listener.stop_asked():
                    self._save()
                    return False
                start = time.perf_counter()
                try:
                    record = self.train_batch()
                except SolveError:
                    self._flush()  # the curves go up to here
                    raise
                record["seconds"] = time.perf_counter() - start
                self.seconds += record["seconds"]
                self.pending.append(record)
                self.step += 1
                self.iteration += 1
                if time.monotonic() - last_flush > 0.5:  # reading a GPU's numbers makes the host wait
                    self._flush()
                    last_flush = time.monotonic()
                    if self.listener.checkpoint_due() and self.iteration < self.task.iterations:
                        self._save()
            self._save()  # nothing of the epoch is lost, however its validation ends
            if self.listener.stop_asked() or not self._end_epoch():
                return False
            self._save()
        return True

    def _flush(self) -> None:
        """Read the pending numbers and hand them on."""
        tensors = [v.float() for r in self.pending for v in r.values() if isinstance(v, Tensor)]
        values = iter(torch.stack([t.reshape(()) for t in tensors]).tolist()) if tensors else iter(())
        records = [{k: next(values) if isinstance(v, Tensor) else v for k, v in r.items()} for r in self.pending]
        self.pending = []
        for record in records:
            for key, value in record.items():
                if key not in ("step", "epoch", "seconds", "lr"):
                    self.sums[key] = self.sums.get(key, 0.0) + value
        if records:
            self.listener.steps(records)
        for record in records:
            bad = [k for k in NUMBERS if not math.isfinite(record.get(k, 0.0))]
            if bad:  # before anything is saved, so that the last checkpoint is a good one
                remedy = f" or {self.recipe.remedy}" if self.recipe.remedy else ""
                raise TrainingError(f"{NUMBERS[bad[0]]} became {record[bad[0]]} at step {record['step']}: lower the "
                                    f"learning rate (now {record['lr']:g}){remedy}")

    def _end_epoch(self) -> bool:
        """Validate and update the best parameters; whether it came to that before somebody asked to stop."""
        self.task.model.eval()
        validation = self.task.evaluate("validation")
        if not validation:
            return False
        metric = self.task.metric
        value, judged = validation[metric.name], validation[metric.judge or metric.name]
        improved = metric.better(judged, self.best.judged)
        if improved:
            self.best = Best(value, self.epoch, {k: v.detach().to("cpu", copy=True)
                                                 for k, v in self.task.model.state_dict().items()}, judged)
        means = {f"train_{k}": v / self.task.iterations for k, v in self.sums.items()}
        self.epoch, self.iteration, self.sums = self.epoch + 1, 0, {}
        self.listener.epoch({"step": self.step, "epoch": self.epoch, **means,
                             **{f"validation_{k}": v for k, v in validation.items()},
                             "best": improved, "elapsed": self.seconds})
        return True

    # State ----------------------------------------------------------------------------------------------------

    def _save(self) -> None:
        self._flush()
        self.listener.checkpoint(self.state_dict())

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to go on as if nothing had happened."""
        return {
            "epoch": self.epoch, "iteration": self.iteration, "step": self.step, "seconds": self.seconds,
            "sums": dict(self.sums), "model": self.task.model.state_dict(), "main": self.main.state_dict(),
            "attention": self.attention.state_dict() if self.attention else None,
            "best": {"value": self.best.value, "epoch": self.best.epoch, "model": self.best.model,
                     "judged": self.best.judged},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch, self.iteration, self.step = state["epoch"], state["iteration"], state["step"]
        self.seconds, self.sums = state["seconds"], dict(state["sums"])
        self.best = Best(**{"judged": state["best"]["value"], **state["best"]})
        self.task.model.load_state_dict(state["model"])
        self.main.load_state_dict(state["main"])
        if self.attention is not None:
            self.attention.load_state_dict(state["attention"])


def _costs(evaluations: Evaluations | None, suffix: str) -> dict[str, Any]:
    """What the solve cost. Read after the backward pass, which counts too."""
    if evaluations is None:
        return {}
    sizes = [abs(s) for s in evaluations.step_sizes]
    return {
        f"nfe_forward{suffix}": evaluations.forward, f"nfe_backward{suffix}": evaluations.backward,
        f"steps{suffix}": evaluations.accepted, f"rejected{suffix}": evaluations.rejected,
        **({f"dt_min{suffix}": min(sizes), f"dt_mean{suffix}": sum(sizes) / len(sizes), f"dt_max{suffix}": max(sizes)}
           if sizes else {}),
    }
