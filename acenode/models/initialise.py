"""Initial parameters from a generator of the run's own: torch's global one is shared by every thread."""

from __future__ import annotations

import math

import torch
from torch import nn


@torch.no_grad()
def initialise(model: nn.Module, seed: int) -> None:
    """Fill every parameter by torch's default rules, on the CPU, so that every device starts from the same."""
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
