"""Gaussian predictions of every variable at every target, and their likelihood."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from acenode.ode.runge_kutta import Evaluations

INITIAL_BIAS = 0.05


@dataclass(frozen=True)
class Forecast:
    """Predicted distribution N(μ, σ²) at the targets."""

    mean: Tensor  # (B, T, D), μ
    logvar: Tensor  # (B, T, D), log σ²
    extra: Tensor | None = None  # what the loss adds to the negative log-likelihood, summed over the batch
    evaluations: Evaluations | None = None  # of f, for models with an ODE


def gaussian_nll(x: Tensor, mean: Tensor, logvar: Tensor) -> Tensor:
    """Return −log N(x; μ, σ²) of every entry."""
    return 0.5 * ((x - mean).square() * torch.exp(-logvar) + logvar + math.log(2 * math.pi))


class Affine(nn.Linear):
    """A linear layer, or `blocks` of them side by side, with Glorot's uniform initialisation and biases of 0.05."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True, blocks: int = 1) -> None:
        super().__init__(inputs, outputs, bias)
        self.blocks = blocks

    def initialise(self, generator: torch.Generator) -> None:
        for block in self.weight.data.chunk(self.blocks):
            nn.init.xavier_uniform_(block, generator=generator)
        if self.bias is not None:
            self.bias.data.fill_(INITIAL_BIAS)


class Gaussian(nn.Module):
    """p(x | h): Linear–ReLU–dropout–Linear to the mean and the log-variance of every variable."""

    def __init__(self, size: int, variables: int, units: int) -> None:
        super().__init__()
        self.hidden, self.out = Affine(size, units), Affine(units, 2 * variables)

    def forward(self, h: Tensor, dropout: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance, (…, D). `dropout` is the mask of the hidden layer, (…, units)."""
        y = torch.relu(self.hidden(h))
        mean, logvar = self.out(y if dropout is None else y * dropout).chunk(2, -1)
        return mean, logvar
