"""An optimiser's step as something that can be recorded: its state in place, its learning rate on the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def recordable(optimiser: torch.optim.Optimizer) -> bool:
    """Whether it is SGD; without dampening, which a first step of torch's leaves out and one from zero does not."""
    return type(optimiser) is torch.optim.SGD and not any(group["dampening"] for group in optimiser.param_groups)


def settle(optimiser: torch.optim.Optimizer) -> None:
    """Give every parameter the momentum it would have at its first step: zero, which changes nothing."""
    for group in optimiser.param_groups:
        for p in group["params"]:
            if group["momentum"] and optimiser.state[p].get("momentum_buffer") is None:
                optimiser.state[p]["momentum_buffer"] = torch.zeros_like(p)


def state_of(optimiser: torch.optim.Optimizer) -> list[Tensor]:
    """The tensors that a step changes beside the parameters."""
    return [v for state in optimiser.state.values() for v in state.values() if isinstance(v, Tensor)]


@contextmanager
def _set(optimiser: torch.optim.Optimizer, rate: Tensor) -> Iterator[None]:
    before = [dict(group) for group in optimiser.param_groups]
    for group in optimiser.param_groups:
        group.update(lr=rate, fused=True, foreach=False)
    try:
        yield
    finally:
        for group, values in zip(optimiser.param_groups, before, strict=True):
            group.update(values)


def step(optimiser: torch.optim.Optimizer, rate: Tensor) -> None:
    """One step with a learning rate that is read on the device."""
    with _set(optimiser, rate):
        optimiser.step()
