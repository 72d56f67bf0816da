"""The training objective of the latent models and its terms, averaged as the protocol averages them.

A variable's log-density is averaged over its own observed targets (zero where there are none), then over all
variables and over the records. The squared error is averaged in the same way.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from acenode.data.points import Points

DEVIATION = 0.01  # standard deviation of an observation
POISSON = 0.1  # weight of the log-likelihood of the observation times


def mean_over_targets(values: Tensor, m: Tensor) -> Tensor:
    """Average values (..., B, T, D) over each variable's observed targets, then variables, then records."""
    count = m.sum(-2)  # (B, D)
    return ((values * m).sum(-2) / count.clamp(min=1)).mean((-2, -1))


def log_likelihood(x: Tensor, target: Points, deviation: float = DEVIATION) -> Tensor:
    """Return the log-likelihood ℓ_k of predictions x (K, B, T, D), (K,)."""
    density = -0.5 * ((x - target.x) / deviation).square() - math.log(deviation) - 0.5 * math.log(2 * math.pi)
    return mean_over_targets(density, target.m)


def squared_error(x: Tensor, target: Points) -> Tensor:
    """Return the protocol's mean squared error of predictions x (K, B, T, D)."""
    return mean_over_targets((x - target.x).square(), target.m).mean()


def kl_to_standard_normal(mean: Tensor, deviation: Tensor) -> Tensor:
    """Return KL(N(mean, deviation²) ‖ N(0, 1)), averaged over records and latent coordinates."""
    variance = deviation.square()
    return (0.5 * (variance + mean.square() - 1) - deviation.clamp(min=1e-20).log()).mean()


def poisson_likelihood(log_rate: Tensor, integral: Tensor, m: Tensor) -> Tensor:
    """Return Σ_i log λ_j(t_i) − Λ_j, averaged over variables and records, (K,); zero for a variable never observed.

    Args:
        log_rate: log λ at the targets, (K, B, T, D).
        integral: Λ, (K, B, D).
        m: The targets' mask, (B, T, D).
    """
    observed = (m.sum(-2) > 0).to(log_rate)
    return (((log_rate * m).sum(-2) - integral) * observed).mean((-2, -1))


def negative_elbo(likelihood: Tensor, kl: Tensor, weight: float) -> Tensor:
    """Return −log Σ_k exp(ℓ_k − c KL) for the log-likelihoods ℓ (K,) and the weight c."""
    return -torch.logsumexp(likelihood - weight * kl, 0)


def kl_weight(epoch: int) -> float:
    """Return c: zero for ten epochs, then 1 − 0.99^(epoch − 10)."""
    return 0.0 if epoch < 10 else 1 - 0.99 ** (epoch - 10)
