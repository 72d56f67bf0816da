"""Fully connected pieces of the time-series models, and the way they begin: weights N(0, 0.1²), biases zero."""

from __future__ import annotations

import platform
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FEW = 512  # rows of a product that is small
DEAR = platform.machine() in ("aarch64", "arm64")  # there a library does x Wᵀ, whose call costs more than a small one


class _SmallAffine(torch.autograd.Function):
    """x Wᵀ + b as a product with no transposed right-hand side, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.addmm(bias, x, weight.t().contiguous())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,), (x, weight) = grads, ctx.saved_tensors
        x_needed, weight_needed, bias_needed = ctx.needs_input_grad
        return (grad @ weight if x_needed else None, grad.t() @ x if weight_needed else None,
                grad.sum(0) if bias_needed else None)


class Map(nn.Linear):
    """A linear map that begins small, or uniform within a bound."""

    bound: float | None = None

    def forward(self, input: Tensor) -> Tensor:
        rows = input.numel() // self.in_features
        if DEAR and rows <= FEW and not input.is_cuda:
            flat = _SmallAffine.apply(input.reshape(-1, self.in_features), self.weight, self.bias)
            return flat.view(*input.shape[:-1], self.out_features)
        return F.linear(input, self.weight, self.bias)

    def initialise(self, generator: torch.Generator) -> None:
        if self.bound is not None:
            for p in self.parameters():
                p.data.uniform_(-self.bound, self.bound, generator=generator)
            return
        self.weight.data.normal_(0.0, 0.1, generator=generator)
        self.bias.data.zero_()


class Perceptron(nn.Sequential):
    """`maps` linear maps with an activation between each two: the last one is linear."""

    def __init__(self, inputs: int, outputs: int, units: int, maps: int, activation: type[nn.Module] = nn.Tanh) -> None:
        sizes = [inputs, *[units] * (maps - 1), outputs]
        layers: list[nn.Module] = []
        for a, b in pairwise(sizes):
            layers += [activation(), Map(a, b)] if layers else [Map(a, b)]
        super().__init__(*layers)

    def maps(self) -> list[Map]:
        return [layer for layer in self if isinstance(layer, Map)]


class Field(nn.Module):
    """f(h): autonomous, t is not read. With `square` it gives a matrix, as g does for pairwise attention."""

    def __init__(self, inputs: int, outputs: int, units: int, maps: int, *, bounded: bool = False,
                 square: bool = False) -> None:
        super().__init__()
        self.layers = Perceptron(inputs, outputs, units, maps)
        self.bounded, self.square, self.side = bounded, square, inputs

    def forward(self, h: Tensor, t: Tensor | None = None) -> Tensor:
        y = self.layers(h)
        if self.bounded:
            y = torch.tanh(y)
        return y.unflatten(-1, (self.side, self.side)) if self.square else y


class GRUCell(nn.Module):
    """Cho et al.'s gated unit, its input share for all times in one product: h ← (1−z)⊙n + z⊙h."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.input, self.hidden, self.size = Map(inputs, 3 * hidden), Map(hidden, 3 * hidden), hidden
        for part in (self.input, self.hidden):
            part.bound = hidden ** -0.5  # as torch begins a GRU

    def forward(self, given: Tensor, h: Tensor) -> Tensor:
        """`given` is `self.input` of what is read."""
        own = self.hidden(h)
        r, z = torch.sigmoid(given[..., :-self.size] + own[..., :-self.size]).chunk(2, -1)
        n = torch.tanh(given[..., -self.size:] + r * own[..., -self.size:])
        return torch.lerp(n, h, z)
