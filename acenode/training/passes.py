"""One pass of Algorithm 1: forward, backward and the update of whoever is trained, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from acenode.ode.runge_kutta import Evaluations
from acenode.training.task import Task


def norm_of(parameters: Sequence[nn.Parameter], kind: str) -> Tensor:
    """‖θ_g‖ over all of its entries together, unsquared."""
    if kind == "l1":
        return torch.cat([p.flatten() for p in parameters]).abs().sum()
    return torch.linalg.vector_norm(torch.cat([p.flatten() for p in parameters]))


@contextmanager
def only(trained: Sequence[nn.Parameter], everything: Sequence[nn.Parameter]) -> Iterator[None]:
    """Fix every parameter but the trained ones: no gradient is even computed for them."""
    chosen = {id(p) for p in trained}
    for p in everything:
        p.requires_grad_(id(p) in chosen)
    try:
        yield
    finally:
        for p in everything:
            p.requires_grad_(True)


@dataclass(frozen=True)
class Group:
    """Parameters that are trained together, and their optimiser."""

    parameters: list[nn.Parameter]
    optimiser: torch.optim.Optimizer


@dataclass(frozen=True)
class Pass:
    """Who is trained, by L_task with or without λ‖θ_g‖."""

    name: str
    groups: tuple[Group, ...]
    detach_attention: bool = False
    penalised: tuple[nn.Parameter, ...] = ()
    penalty: str = "none"
    penalty_weight: float = 0.0

    @property
    def trained(self) -> list[nn.Parameter]:
        return [p for group in self.groups for p in group.parameters]

    def penalty_of(self) -> Tensor | float:
        if not self.penalised or self.penalty == "none" or self.penalty_weight == 0:
            return 0.0
        return self.penalty_weight * norm_of(self.penalised, self.penalty)


@dataclass(frozen=True)
class Passed:
    """L_task, the loss that was descended, the task's metrics, each group's gradient norm, and the solve's cost."""

    task: Tensor
    total: Tensor
    metrics: dict[str, Tensor]
    norms: list[Tensor]
    evaluations: Evaluations | None


class Engine(Protocol):
    """Another way to do a pass; None where it cannot, and the plain way is taken."""

    def run(self, this: Pass, batch: Any) -> Passed | None: ...


def run_pass(task: Task, this: Pass, batch: Any) -> Passed:
    """The plain way."""
    with only(this.trained, list(task.model.parameters())):
        loss = task.loss(batch, detach_attention=this.detach_attention)
        total = loss.task + this.penalty_of()
        for group in this.groups:
            group.optimiser.zero_grad(set_to_none=True)
        total.backward()
        for group in this.groups:
            group.optimiser.step()
    return Passed(loss.task.detach(), total.detach(), loss.metrics, [gradient_norm(g.parameters) for g in this.groups],
                  loss.evaluations)


def gradient_norm(parameters: Sequence[nn.Parameter]) -> Tensor:
    """Of all parameters that have one."""
    grads = [p.grad for p in parameters if p.grad is not None]
    return torch.nn.utils.get_total_norm(grads) if grads else torch.zeros(())
