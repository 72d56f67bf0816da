"""What training and whoever is trained agree on. Nothing here needs torch to be imported."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from acenode.ode.runge_kutta import Evaluations


@dataclass(frozen=True)
class Metric:
    """What validation is judged by; `judge` is the metric that chooses the best epoch, where that is another."""

    name: str
    higher_is_better: bool = True
    judge: str | None = None  # better where it is lower or higher, as the metric itself

    def better(self, value: float, best: float | None) -> bool:
        if best is None or not math.isfinite(best):
            return True
        return value > best if self.higher_is_better else value < best  # never for NaN


@dataclass(frozen=True)
class Groups:
    """Who trains when. `attention` is θ_g (and θ_q where a(t) is detached in phase one); `penalised` is θ_g alone."""

    main: list[nn.Parameter]
    attention: list[nn.Parameter]
    penalised: list[nn.Parameter]

    @classmethod
    def of(cls, model: nn.Module, g: Sequence[nn.Module | None], q: nn.Module | None, detach_attention: bool) -> Groups:
        """θ_g of every g there is apart from the rest; θ_q goes with the rest unless phase one cannot reach it."""
        penalised = [p for net in g if net is not None for p in net.parameters()]
        unreached = list(q.parameters()) if q is not None and penalised and detach_attention else []
        later = {id(p) for p in penalised + unreached}
        return cls([p for p in model.parameters() if id(p) not in later], penalised + unreached, penalised)


@dataclass(frozen=True)
class Loss:
    """L_task of a batch, what else is worth a curve, and the solve behind it."""

    task: Tensor
    metrics: dict[str, Tensor]
    evaluations: Evaluations | None = None


class Task(Protocol):
    """What is trained. `batch` is a pure function of its arguments, so a run can go on from any point."""

    @property
    def model(self) -> nn.Module: ...
    @property
    def metric(self) -> Metric: ...
    @property
    def iterations(self) -> int: ...  # batches an epoch

    def groups(self, detach_attention: bool) -> Groups: ...
    def batch(self, epoch: int, iteration: int) -> Any: ...
    def loss(self, batch: Any, *, detach_attention: bool) -> Loss: ...
    def evaluate(self, split: str) -> dict[str, float]: ...


@runtime_checkable
class Pieces(Task, Protocol):
    """A task whose loss comes in three pieces of fixed shapes that ask the host nothing: encode a batch to h(0), evolve
    it by an ODE layer, read the loss and the metrics off h(1). A batch is a tuple of tensors."""

    @property
    def layer(self) -> nn.Module: ...

    def encode(self, batch: Any) -> Tensor: ...
    def read_out(self, h1: Tensor, batch: Any) -> tuple[Tensor, dict[str, Tensor]]: ...


@dataclass(frozen=True)
class Recipe:
    """How it is trained. `rate(progress)` is the learning rate's factor at a fraction of the training."""

    epochs: int
    learning_rate: float
    optimiser: Callable[[Sequence[nn.Parameter], float, bool], torch.optim.Optimizer]  # parameters, rate, is θ_g
    rate: Callable[[float], float] = lambda progress: 1.0
    schedule: str = "alternating"
    penalty: str = "l2"
    penalty_weight: float = 0.0
    detach_attention: bool = False
    remedy: str = ""  # what may help beside a lower learning rate where training diverges


def never() -> bool:
    """Nobody asks to stop."""
    return False


class Listener(Protocol):
    """Who is told, and who may ask to stop."""

    def stop_asked(self) -> bool: ...
    def steps(self, records: list[dict[str, Any]]) -> None: ...
    def epoch(self, record: dict[str, Any]) -> None: ...
    def checkpoint(self, state: dict[str, Any]) -> None: ...
    def checkpoint_due(self) -> bool: ...


class Nobody:
    """Hears nothing and never asks to stop."""

    def stop_asked(self) -> bool:
        return False

    def checkpoint_due(self) -> bool:
        return False

    def steps(self, records: list[dict[str, Any]]) -> None: ...
    def epoch(self, record: dict[str, Any]) -> None: ...
    def checkpoint(self, state: dict[str, Any]) -> None: ...
