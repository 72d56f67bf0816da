"""What the forecasting models share: the Gaussian head, its likelihood, and the inputs of their recurrences."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from acenode.data.points import Points
from acenode.data.schedule import NoiseSource, SporadicBatch
from acenode.models.layers import RecurrentInputs, last_observed
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


class Forecaster(nn.Module):
    """A model whose Gaussian head maps a state (…, latent) to the mean and log-variance of every variable."""

    def __init__(self, latent: int, variables: int, units: int, dropout: float) -> None:
        super().__init__()
        self.latent, self.units, self.dropout = latent, units, dropout
        self.head = Gaussian(latent, variables, units)

    def predict(self, h: Tensor, noise: NoiseSource, extra: Tensor | None = None) -> Forecast:
        """Return the forecast from the states (B, T, latent) at the targets."""
        drop = self.training and self.dropout > 0
        dropout = noise.dropout_mask(self.dropout, *h.shape[:-1], self.units).to(h) if drop else None
        mean, logvar = self.head(h, dropout)
        return Forecast(mean, logvar, extra)


def elapsed(t: Tensor) -> Tensor:
    """Return Δ (B, T, 1): the time since the previous point, or since 0 at the first."""
    return t.diff(dim=1, prepend=torch.zeros_like(t[:, :1])).clamp(min=0).unsqueeze(-1)


def seen_and_targets(batch: SporadicBatch) -> tuple[RecurrentInputs, RecurrentInputs]:
    """Return what a recurrence reads at the seen points and at the targets, where nothing is observed."""
    seen, target = batch.seen, batch.target
    if batch.training:
        read = RecurrentInputs(seen.x, seen.m, *last_observed(seen, 0.0), elapsed(seen.t))
        return read, replace(read, x=torch.zeros_like(read.x), m=torch.zeros_like(read.m))
    none = torch.zeros_like(target.x)
    joined = Points(torch.cat((seen.t, target.t), 1), torch.cat((seen.x, none), 1), torch.cat((seen.m, none), 1),
                    torch.cat((seen.valid, target.valid), 1))
    return RecurrentInputs(joined.x, joined.m, *last_observed(joined, 0.0), elapsed(joined.t)).split(seen.t.shape[1])
