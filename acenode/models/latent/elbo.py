"""The objective of the latent models and its terms, averaged as the protocol averages them.

A variable's log-density is averaged over its own observed targets (zero where there are none), then over all
variables and over the records. So is the squared error.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from acenode.data.points import Points

DEVIATION = 0.01  # of an observation
POISSON = 0.1  # weight of the log-likelihood of the observation times


def diluted(values: Tensor, m: Tensor) -> Tensor:
    """Values (..., B, T, D) at observed targets: the mean over a variable's targets, then variables, then records."""
    count = m.sum(-2)  # (B, D)
    return ((values * m).sum(-2) / count.clamp(min=1)).mean((-2, -1))


def log_likelihood(x: Tensor, target: Points, deviation: float = DEVIATION) -> Tensor:
    """ℓ_k of predictions x (K, B, T, D), (K,)."""
    density = -0.5 * ((x - target.x) / deviation).square() - math.log(deviation) - 0.5 * math.log(2 * math.pi)
    return diluted(density, target.m)


def squared_error(x: Tensor, target: Points) -> Tensor:
    """The protocol's mean squared error of predictions x (K, B, T, D)."""
    return diluted((x - target.x).square(), target.m).mean()


def divergence(mean: Tensor, deviation: Tensor) -> Tensor:
    """KL(N(mean, deviation²) ‖ N(0, 1)), the mean over records and latent coordinates."""
    variance = deviation.square()
    return (0.5 * (variance + mean.square() - 1) - deviation.clamp(min=1e-20).log()).mean()


def poisson_likelihood(log_rate: Tensor, integral: Tensor, m: Tensor) -> Tensor:
    """Σ_i log λ_j(t_i) − Λ_j, zero for a variable never observed: log_rate (K, B, T, D) → (K,)."""
    seen = (m.sum(-2) > 0).to(log_rate)
    return (((log_rate * m).sum(-2) - integral) * seen).mean((-2, -1))


def evidence_bound(likelihood: Tensor, kl: Tensor, weight: float) -> Tensor:
    """−log Σ_k exp(ℓ_k − c KL)."""
    return -torch.logsumexp(likelihood - weight * kl, 0)


def kl_weight(epoch: int) -> float:
    """c: nothing for ten epochs, then 1 − 0.99^(epoch − 10)."""
    return 0.0 if epoch < 10 else 1 - 0.99 ** (epoch - 10)
