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
    """The validation metric of a task, and the rule that selects the best epoch. All names are keys of `Task.evaluate`.

    Args:
        name: the metric that is shown and stored.
        higher_is_better: False for errors and losses.
        selection: the measure that selects the best epoch, if not the metric; the same direction is better.
        tie_breaker: the measure that decides between equal epochs: the lowest is best. If None, the first of equal
            epochs is best.

    Examples:
        >>> from acenode.training.task import Metric
        >>> Metric("mse", higher_is_better=False).improves(0.1, best=0.2)
        True
        >>> Metric("auc", tie_breaker="cross_entropy").improves(1.0, best=1.0, tie=0.2, best_tie=0.3)
        True
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

    Args:
        main: θ_f and θ_others, which phase one trains.
        attention: θ_g, which phase two trains, and θ_q where phase one detaches a(t). Empty without evolving attention;
            all training is then phase one.
        penalised: θ_g alone, whose norm is in the loss of phase two.

    Examples:
        >>> from torch import nn
        >>> from acenode.training.task import ParameterGroups
        >>> model = nn.ModuleDict({"f": nn.Linear(3, 3), "g": nn.Linear(3, 9)})
        >>> groups = ParameterGroups.split(model, g=[model["g"]], q=None, detach_attention=False)
        >>> len(groups.main), groups.attention == groups.penalised == list(model["g"].parameters())
        (2, True)
    """

    main: list[nn.Parameter]
    attention: list[nn.Parameter]
    penalised: list[nn.Parameter]

    @classmethod
    def split(cls, model: nn.Module, g: Sequence[nn.Module | None], q: nn.Module | None,
              detach_attention: bool) -> ParameterGroups:
        """Separate θ_g from the rest; θ_q stays with the rest unless phase one has no gradient for it.

        Args:
            model: the whole model.
            g: its modules that compute da/dt; None among them is left out.
            q: its module that computes a(0), if any.
            detach_attention: whether phase one treats a(t) as a constant, as in `Recipe`.

        Returns:
            The groups.
        """
        penalised = [p for net in g if net is not None for p in net.parameters()]
        without_gradient = list(q.parameters()) if q is not None and penalised and detach_attention else []
        in_phase_two = {id(p) for p in penalised + without_gradient}
        return cls([p for p in model.parameters() if id(p) not in in_phase_two], penalised + without_gradient,
                   penalised)


@dataclass(frozen=True)
class Loss:
    """The loss of a batch, as `Task.loss` returns it.

    Args:
        task: L_task, a scalar with gradients. The trainer adds λ‖θ_g‖ where a phase penalises it.
        metrics: further scalars to record, detached, such as the accuracy of the batch; may be empty.
        evaluations: the cost of the ODE solve, such as `Trajectory.evaluations`; None if it is not to be recorded.

    Examples:
        >>> import torch
        >>> from acenode.training.task import Loss
        >>> error = torch.tensor([0.1, -0.3], requires_grad=True)
        >>> loss = Loss(error.square().mean(), {"mae": error.detach().abs().mean()})
        >>> round(loss.task.item(), 3), round(loss.metrics["mae"].item(), 3)
        (0.05, 0.2)
    """

    task: Tensor
    metrics: dict[str, Tensor]
    evaluations: Evaluations | None = None


class Task(Protocol):
    """A model with its data and loss. Every object with these members is a task; `Trainer` has an example."""

    @property
    def model(self) -> nn.Module:
        """The model. The trainer switches it to training mode for batches and to evaluation mode for `evaluate`."""

    @property
    def metric(self) -> Metric:
        """The validation metric, by which the best epoch is selected."""

    @property
    def iterations(self) -> int:
        """The number of batches in an epoch."""

    def groups(self, detach_attention: bool) -> ParameterGroups:
        """Return the parameters of each phase, usually by `ParameterGroups.split`."""

    def batch(self, epoch: int, iteration: int) -> Any:
        """Return a batch, counted from 0. It depends on the arguments alone, so that training can resume anywhere."""

    def loss(self, batch: Any, *, detach_attention: bool) -> Loss:
        """Return the loss of a batch from a new forward pass; pass `detach_attention` on to the ODE layer."""

    def evaluate(self, split: str) -> dict[str, float]:
        """Return measures by their names, computed without gradients.

        The trainer asks for "validation" after every epoch, and an experiment of the lab for "test" at the end.
        """


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
    """Training settings.

    Args:
        epochs: passes over the training data.
        learning_rate: of both optimisers.
        optimiser: called as optimiser(parameters, learning_rate, is_attention), once for θ_f and θ_others with False,
            and once for θ_g with True if attention evolves. Returns a torch optimiser.
        rate: maps the fraction of training that is done, from 0 to 1, to a factor of the learning rate. It is set
            before every batch.
        schedule: "alternating" for both phases on every batch (Algorithm 1), "joint" for one pass that trains all
            parameters, "epoch" for phases that take turns by epoch.
        penalty: the norm in L_a = L_task + λ‖θ_g‖ (Eq. 6): "l2", "l1" or "none". It is the norm of all entries of θ_g
            together, and the L2 norm is not squared, unlike weight decay.
        penalty_weight: λ.
        detach_attention: treat a(t) as a constant in phase one.
        remedy: what to change besides the learning rate if training diverges, such as "tighten rtol and atol". It ends
            the error's message: "lower the learning rate (now 0.1) or tighten rtol and atol".

    Raises:
        UserError: an unknown schedule or penalty.

    Examples:
        >>> import torch
        >>> from acenode.training.task import Recipe
        >>> recipe = Recipe(10, 0.01, lambda parameters, rate, is_attention: torch.optim.Adam(parameters, lr=rate),
        ...                 rate=lambda progress: 1 - 0.9 * progress, penalty_weight=1e-3)
        >>> recipe.schedule, round(recipe.rate(0.5), 2)
        ('alternating', 0.55)
    """

    epochs: int
    learning_rate: float
    optimiser: Callable[[Sequence[nn.Parameter], float, bool], torch.optim.Optimizer]
    rate: Callable[[float], float] = lambda progress: 1.0
    schedule: str = "alternating"
    penalty: str = "l2"
    penalty_weight: float = 0.0
    detach_attention: bool = False
    remedy: str = ""

    def __post_init__(self) -> None:
        for key in ("schedule", "penalty"):
            check(key, getattr(self, key))


def never_interrupted() -> bool:
    return False


class Listener(Protocol):
    """Receives the trainer's records and checkpoints, and may ask it to stop."""

    def stop_requested(self) -> bool:
        return False

    def checkpoint_due(self) -> bool:
        return False

    def on_steps(self, records: list[dict[str, Any]]) -> None:
        return

    def on_epoch(self, record: dict[str, Any]) -> None:
        return

    def on_checkpoint(self, state: dict[str, Any]) -> None:
        return


class SilentListener(Listener):
    """A listener that ignores every record and never asks to stop."""
