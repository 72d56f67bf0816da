"""Base class of the forecasting baselines, and the inputs of their recurrences."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from acenode.data.points import Points
from acenode.data.sporadic import NoiseSource, SporadicBatch
from acenode.models.forecast.gaussian import Forecast, Gaussian
from acenode.models.missing_data import RecurrentInputs, last_observed


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
        return read, read.without_observations()
    none = torch.zeros_like(target.x)
    joined = Points(torch.cat((seen.t, target.t), 1), torch.cat((seen.x, none), 1), torch.cat((seen.m, none), 1),
                    torch.cat((seen.valid, target.valid), 1))
    return RecurrentInputs(joined.x, joined.m, *last_observed(joined, 0.0), elapsed(joined.t)).split(seen.t.shape[1])
