"""Encoders q(z0 | series): a recurrent network reads a record backwards in time and gives a Gaussian of z0."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from acenode.backend import ACCELERATED, Backend
from acenode.data.points import Points, RecurrentSchedule
from acenode.models.dense_layers import MLP
from acenode.models.gru import MaskedGRU
from acenode.models.latent.ode_rnn import ODERNN
from acenode.models.missing_data import time_to_next


class ODEEncoder(nn.Module):
    """An ODE-RNN backwards in time, then an MLP from its last state to mean and standard deviation of z0."""

    backwards = True  # direction of the schedule that the encoder needs

    def __init__(self, latent: int, recurrence: ODERNN, hidden: int = 100) -> None:
        super().__init__()
        self.recurrence, self.latent = recurrence, latent
        self.out = MLP(2 * recurrence.size, 2 * latent, hidden, 2, backend=recurrence.backend)

    def forward(self, points: Points, schedule: RecurrentSchedule | None,
                detach_attention: bool = False) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of z0, (B, latent)."""
        assert schedule is not None
        return mean_and_deviation(self.out(self.recurrence(points, schedule, detach_attention)[-1]))


class RNNEncoder(nn.Module):
    """A GRU over the reversed points [Δ, x, m], then an MLP to mean and standard deviation of z0."""

    backwards = None  # needs no schedule

    def __init__(self, variables: int, latent: int, size: int, units: int, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.gru = MaskedGRU(2 * variables + 1, size)
        self.out = MLP(size, 2 * latent, units, 2, backend=backend)

    def forward(self, points: Points, schedule: RecurrentSchedule | None,
                detach_attention: bool = False) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of z0, (B, latent)."""
        x = torch.cat((time_to_next(points).unsqueeze(-1), points.x, points.m), -1)
        h = self.gru(x.flip(1), points.observed.flip(1))[:, -1]
        return mean_and_deviation(self.out(h))


def mean_and_deviation(y: Tensor) -> tuple[Tensor, Tensor]:
    """Split y (..., 2d) into a mean and a standard deviation, which is the absolute value of the second half."""
    mean, deviation = y.chunk(2, -1)
    return mean, deviation.abs()
