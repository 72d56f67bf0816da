"""Dense layers, and how every parameter of a model is initialised.

Dense layers start with weights from N(0, 0.1²) and zero biases.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.accelerate import dispatch
from acenode.backend import ACCELERATED, Backend


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


class LinearLayer(nn.Linear):
    """x Wᵀ + b, initialised by N(0, 0.1²), or uniformly in [−bound, bound]."""

    def __init__(self, inputs: int, outputs: int, *, bound: float | None = None,
                 backend: Backend = ACCELERATED) -> None:
        super().__init__(inputs, outputs)
        self.bound, self.backend = bound, backend

    def forward(self, input: Tensor) -> Tensor:
        fast = dispatch.linear(self.backend, input, self.weight, self.bias)
        return F.linear(input, self.weight, self.bias) if fast is None else fast

    def initialise(self, generator: torch.Generator) -> None:
        if self.bound is not None:
            for p in self.parameters():
                p.data.uniform_(-self.bound, self.bound, generator=generator)
            return
        self.weight.data.normal_(0.0, 0.1, generator=generator)
        self.bias.data.zero_()


class MLP(nn.Sequential):
    """`layers` linear layers with an activation between each two."""

    def __init__(self, inputs: int, outputs: int, units: int, layers: int, activation: type[nn.Module] = nn.Tanh, *,
                 backend: Backend = ACCELERATED) -> None:
        modules: list[nn.Module] = []
        for a, b in pairwise([inputs, *[units] * (layers - 1), outputs]):
            modules += [activation()] if modules else []
            modules.append(LinearLayer(a, b, backend=backend))
        super().__init__(*modules)

    def linear_layers(self) -> list[LinearLayer]:
        return [layer for layer in self if isinstance(layer, LinearLayer)]


class MLPField(nn.Module):
    """f(h), or g(h) for pairwise attention: an MLP that does not read t.

    With `bounded` tanh is applied to its output; with `square` the output has the shape (..., inputs, inputs).
    """

    def __init__(self, inputs: int, outputs: int, units: int, layers: int, *, bounded: bool = False,
                 square: bool = False, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.layers = MLP(inputs, outputs, units, layers, backend=backend)
        self.bounded, self.square, self.side = bounded, square, inputs

    def forward(self, h: Tensor, t: Tensor | None = None) -> Tensor:
        y = self.layers(h)
        if self.bounded:
            y = torch.tanh(y)
        return y.unflatten(-1, (self.side, self.side)) if self.square else y
