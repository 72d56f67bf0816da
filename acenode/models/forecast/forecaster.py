"""What the forecasting baselines share: a Gaussian read off a state, and how points and targets are met in time."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from acenode.data.points import Points
from acenode.data.sporadic import NoiseSource, SporadicBatch
from acenode.models.forecast.gaussian import Forecast, Gaussian
from acenode.models.latent.recurrence import Readings, since


class Forecaster(nn.Module):
    """A model with a state of `latent` coordinates, off which every variable's mean and log-variance are read."""

    def __init__(self, latent: int, variables: int, units: int, dropout: float) -> None:
        super().__init__()
        self.latent, self.units, self.dropout = latent, units, dropout
        self.head = Gaussian(latent, variables, units)

    def say(self, h: Tensor, draws: NoiseSource, extra: Tensor | None = None) -> Forecast:
        """The forecast from the states (B, T, latent) at the targets."""
        drop = self.training and self.dropout > 0
        kept = draws.dropout_mask(self.dropout, *h.shape[:-1], self.units).to(h) if drop else None
        mean, logvar = self.head(h, kept)
        return Forecast(mean, logvar, extra)


def elapsed(t: Tensor) -> Tensor:
    """Δ (B, T, 1): the time since the point before, since 0 at the first."""
    return t.diff(dim=1, prepend=torch.zeros_like(t[:, :1])).clamp(min=0).unsqueeze(-1)


def met(batch: SporadicBatch) -> tuple[Readings, Readings]:
    """What is read at the seen points, and what is asked: the targets with nothing observed there."""
    seen, target = batch.seen, batch.target
    if batch.training:
        read = Readings(seen.x, seen.m, *since(seen, 0.0), elapsed(seen.t))
        return read, read.missing()
    none = torch.zeros_like(target.x)
    joined = Points(torch.cat((seen.t, target.t), 1), torch.cat((seen.x, none), 1), torch.cat((seen.m, none), 1),
                    torch.cat((seen.valid, target.valid), 1))
    return Readings(joined.x, joined.m, *since(joined, 0.0), elapsed(joined.t)).split(seen.t.shape[1])
