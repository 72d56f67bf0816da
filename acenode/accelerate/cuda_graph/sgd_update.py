"""A step of SGD that can be recorded: momentum in place, the learning rate in a tensor on the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def recordable(optimiser: torch.optim.Optimizer) -> bool:
    """Return True for SGD without dampening.

    torch applies no dampening in the first step; `fill_momentum` would make that step one with dampening.
    """
    return type(optimiser) is torch.optim.SGD and not any(group["dampening"] for group in optimiser.param_groups)


def fill_momentum(optimiser: torch.optim.Optimizer) -> None:
    """Give parameters that have no momentum yet a momentum of zero, which changes no step."""
    for group in optimiser.param_groups:
        for p in group["params"]:
            if group["momentum"] and optimiser.state[p].get("momentum_buffer") is None:
                optimiser.state[p]["momentum_buffer"] = torch.zeros_like(p)


def state_tensors(optimiser: torch.optim.Optimizer) -> list[Tensor]:
    """Return the tensors, besides the parameters, that a step changes."""
    return [v for state in optimiser.state.values() for v in state.values() if isinstance(v, Tensor)]


@contextmanager
def _device_rate(optimiser: torch.optim.Optimizer, rate: Tensor) -> Iterator[None]:
    before = [dict(group) for group in optimiser.param_groups]
    for group in optimiser.param_groups:
        group.update(lr=rate, fused=True, foreach=False)
    try:
        yield
    finally:
        for group, values in zip(optimiser.param_groups, before, strict=True):
            group.update(values)


def step(optimiser: torch.optim.Optimizer, rate: Tensor) -> None:
    """Take one step with a learning rate that is read on the device."""
    with _device_rate(optimiser, rate):
        optimiser.step()
