"""What a forecasting model says: a normal distribution of every variable at every target, and how it is judged."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from acenode.ode.runge_kutta import Evaluations

BIAS = 0.05  # at the start


@dataclass(frozen=True)
class Forecast:
    """Mean and log-variance at the targets, and what the objective has beside their likelihood, summed over a batch."""

    mean: Tensor  # (B, T, D)
    logvar: Tensor  # (B, T, D)
    extra: Tensor | None = None
    evaluations: Evaluations | None = None  # what the ODE cost, where there is one


def gaussian_nll(x: Tensor, mean: Tensor, logvar: Tensor) -> Tensor:
    """−log N(x; μ, σ²), entry by entry."""
    return 0.5 * ((x - mean).square() * torch.exp(-logvar) + logvar + math.log(2 * math.pi))


class Affine(nn.Linear):
    """A linear map, or `blocks` of them side by side, that begin by Glorot's rule; the bias, if any, at 0.05."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True, blocks: int = 1) -> None:
        super().__init__(inputs, outputs, bias)
        self.blocks = blocks

    def initialise(self, generator: torch.Generator) -> None:
        for block in self.weight.data.chunk(self.blocks):
            nn.init.xavier_uniform_(block, generator=generator)
        if self.bias is not None:
            self.bias.data.fill_(BIAS)


class Gaussian(nn.Module):
    """p(x | h): Linear–ReLU–dropout–Linear to the mean and the log-variance of every variable."""

    def __init__(self, size: int, variables: int, units: int) -> None:
        super().__init__()
        self.hidden, self.out = Affine(size, units), Affine(units, 2 * variables)

    def forward(self, h: Tensor, kept: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`kept` (…, units) are the units that dropout leaves, raised to keep the mean."""
        y = torch.relu(self.hidden(h))
        mean, logvar = self.out(y if kept is None else y * kept).chunk(2, -1)
        return mean, logvar
