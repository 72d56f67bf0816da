"""One pass of Algorithm 1: forward, backward, and the update of the parameters that the pass trains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from acenode.ode.runge_kutta import Evaluations
from acenode.training.task import Task


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
        """Return λ‖θ_g‖, or 0 where nothing is penalised."""
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
