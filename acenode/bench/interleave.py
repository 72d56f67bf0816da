"""Time several implementations in turns in one process, so that a busy machine slows all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from acenode.errors import UserError


@dataclass(frozen=True)
class Timings:
    """Of every implementation, the median seconds of loss and gradient, and the last loss."""

    seconds: dict[str, float]
    losses: dict[str, float]


def split_parameters(model: nn.Module, g: Sequence[nn.Parameter]) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return all parameters, and all but those of g."""
    everything = list(model.parameters())
    return everything, [p for p in everything if all(p is not q for q in g)]


def time_interleaved(implementations: Mapping[str, tuple[nn.Module, Callable[[], Tensor]]], repeats: int) -> Timings:
    """Time the loss and gradient of each implementation, which is a model and a function that computes its loss."""
    if repeats < 1:
        raise UserError("--repeats must be at least 1")
    seconds: dict[str, list[float]] = {name: [] for name in implementations}
    losses: dict[str, float] = {}
    for _ in range(repeats):
        for name, (model, loss) in implementations.items():
            model.zero_grad()
            begun = time.perf_counter()
            value = loss()
            value.backward()
            seconds[name].append(time.perf_counter() - begun)
            losses[name] = float(value.detach())
    return Timings({name: statistics.median(s) for name, s in seconds.items()}, losses)
