"""Initialise parameters from a generator of the run's own: torch's global generator is shared by all threads."""

from __future__ import annotations

import math

import torch
from torch import nn


@torch.no_grad()
def initialise(model: nn.Module, seed: int) -> None:
    """Initialise every parameter, on the CPU, so that all devices start from the same values.

    A module's own method `initialise(generator)` comes first; torch's layers follow torch's default rules.
    """
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        own = getattr(module, "initialise", None)
        if callable(own):
            own(generator)
        elif isinstance(module, nn.Linear | nn.Conv2d):
            bound = 1 / math.sqrt(module.weight[0].numel())
            for p in module.parameters(recurse=False):
                p.uniform_(-bound, bound, generator=generator)
        elif isinstance(module, nn.GroupNorm):
            module.reset_parameters()
        elif next(module.parameters(recurse=False), None) is not None:
            raise TypeError(f"no rule to initialise a {type(module).__name__}")
