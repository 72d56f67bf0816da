"""Interfaces between the trainer and a task.

torch is imported only for type checking: commands that only list experiments start without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from acenode.config.vocabulary import check

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from acenode.ode.runge_kutta import Evaluations


@dataclass(frozen=True)
class Metric:
    """The validation metric of an experiment.

    `selection` names the metric that selects the best epoch, where it is not this one; the same direction is better.
    `tie_breaker` names a measure that decides between epochs whose metric is equal: the lowest is best. Without one,
    the first of equal epochs is best.
    """

    name: str
    higher_is_better: bool = True
    selection: str | None = None
    tie_breaker: str | None = None

    def improves(self, value: float, best: float | None, tie: float = math.nan, best_tie: float = math.inf) -> bool:
        """Return True if `value` is better than `best`, or equal and `tie` is below `best_tie`; a NaN never is."""
        if best is None or not math.isfinite(best):
            return True
        if value == best:
            return tie < best_tie
        return value > best if self.higher_is_better else value < best


@dataclass(frozen=True)
class ParameterGroups:
    """The parameters that each phase trains.

    `main` is θ_f and θ_others. `attention` is θ_g, and θ_q where phase one detaches a(t). `penalised` is θ_g alone.
    """

    main: list[nn.Parameter]
    attention: list[nn.Parameter]
    penalised: list[nn.Parameter]

    @classmethod
    def split(cls, model: nn.Module, g: Sequence[nn.Module | None], q: nn.Module | None,
              detach_attention: bool) -> ParameterGroups:
        """Separate θ_g from the rest; θ_q stays with the rest unless phase one has no gradient for it."""
        penalised = [p for net in g if net is not None for p in net.parameters()]
        without_gradient = list(q.parameters()) if q is not None and penalised and detach_attention else []
        in_phase_two = {id(p) for p in penalised + without_gradient}
        return cls([p for p in model.parameters() if id(p) not in in_phase_two], penalised + without_gradient,
                   penalised)


@dataclass(frozen=True)
class Loss:
    """L_task of a batch, further metrics to plot, and the cost of the ODE solve."""

    task: Tensor
    metrics: dict[str, Tensor]
    evaluations: Evaluations | None = None


class Task(Protocol):
    """A model with its data and loss. `batch` depends on its arguments alone, so training can resume at any batch."""

    @property
    def model(self) -> nn.Module: ...
    @property
    def metric(self) -> Metric: ...
    @property
    def iterations(self) -> int: ...  # batches per epoch

    def groups(self, detach_attention: bool) -> ParameterGroups: ...
    def batch(self, epoch: int, iteration: int) -> Any: ...
    def loss(self, batch: Any, *, detach_attention: bool) -> Loss: ...
    def evaluate(self, split: str) -> dict[str, float]: ...


@runtime_checkable
class PiecewiseTask(Task, Protocol):
    """A task whose loss is computed in three pieces: encode a batch to h(0), evolve h by an ODE layer, read out.

    A batch is a tuple of tensors. The pieces have fixed shapes and never read a value of the device, so that a pass
    can be recorded as CUDA graphs.
    """

    @property
    def layer(self) -> nn.Module: ...

    def encode(self, batch: Any) -> Tensor: ...
    def read_out(self, h1: Tensor, batch: Any) -> tuple[Tensor, dict[str, Tensor]]: ...


@runtime_checkable
class InterruptibleTask(Protocol):
    """A task that calls `interrupted` between evaluation batches; if it returns True, `evaluate` returns {}."""

    interrupted: Callable[[], bool]


@dataclass(frozen=True)
class Recipe:
    """Training settings. `rate` maps the fraction of training that is done to a factor of the learning rate."""

    epochs: int
    learning_rate: float
    optimiser: Callable[[Sequence[nn.Parameter], float, bool], torch.optim.Optimizer]  # parameters, rate, is θ_g
    rate: Callable[[float], float] = lambda progress: 1.0
    schedule: str = "alternating"
    penalty: str = "l2"
    penalty_weight: float = 0.0
    detach_attention: bool = False
    remedy: str = ""  # what to change, besides the learning rate, if training diverges

    def __post_init__(self) -> None:
        for key in ("schedule", "penalty"):
            check(key, getattr(self, key))


def never_interrupted() -> bool:
    return False


class Listener(Protocol):
    """Receives the trainer's records and checkpoints, and may ask it to stop."""

    def stop_requested(self) -> bool: ...
    def checkpoint_due(self) -> bool: ...
    def on_steps(self, records: list[dict[str, Any]]) -> None: ...
    def on_epoch(self, record: dict[str, Any]) -> None: ...
    def on_checkpoint(self, state: dict[str, Any]) -> None: ...


class SilentListener:
    """A listener that ignores every record and never asks to stop."""

    def stop_requested(self) -> bool:
        return False

    def checkpoint_due(self) -> bool:
        return False

    def on_steps(self, records: list[dict[str, Any]]) -> None: ...
    def on_epoch(self, record: dict[str, Any]) -> None: ...
    def on_checkpoint(self, state: dict[str, Any]) -> None: ...
