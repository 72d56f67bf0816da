"""Contestants that take turns in one process, so that whatever slows the machine slows them all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from acenode.errors import UserError


@dataclass(frozen=True)
class Turns:
    """Median seconds of loss and gradient, and the last loss, of every contestant."""

    seconds: dict[str, float]
    losses: dict[str, float]


def apart(model: nn.Module, g: Sequence[nn.Parameter]) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """All parameters, and those that are not g's."""
    everything = list(model.parameters())
    return everything, [p for p in everything if all(p is not q for q in g)]


def take_turns(contestants: Mapping[str, tuple[nn.Module, Callable[[], Tensor]]], repeats: int) -> Turns:
    """Each has a model, whose gradients begin at none, and a loss."""
    if repeats < 1:
        raise UserError("--repeats must be at least 1")
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    losses: dict[str, float] = {}
    for _ in range(repeats):
        for name, (model, loss) in contestants.items():
            model.zero_grad()
            begun = time.perf_counter()
            value = loss()
            value.backward()
            seconds[name].append(time.perf_counter() - begun)
            losses[name] = float(value.detach())
    return Turns({name: statistics.median(s) for name, s in seconds.items()}, losses)
