"""A neural ODE in a variational autoencoder: the seen points determine z(0), and z(t) the predictions."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from acenode.backend import ACCELERATED, Backend
from acenode.data.points import Points
from acenode.data.sporadic import NoiseSource, SporadicBatch
from acenode.models.dense_layers import MLPField
from acenode.models.forecast.forecaster import Forecaster, elapsed
from acenode.models.forecast.gaussian import Affine, Forecast
from acenode.models.gru import MaskedGRU
from acenode.node import NODE
from acenode.ode.options import Solver


class ODEVAE(Forecaster):
    """q(z0) by a GRU over the reversed [x, Δ], or [x, m, Δ] with `mask`; dz/dt = f(z), two linear maps and a tanh.

    The ODE's time is in units of the horizon. z0 is a sample of q in training, its mean otherwise; `extra` is
    KL(q(z0) ‖ N(0, 1)).
    """

    def __init__(self, variables: int, latent: int, units: int, recognition: int, head: int, *, mask: bool,
                 solver: Solver, dropout: float = 0.0, backend: Backend = ACCELERATED) -> None:
        super().__init__(latent, variables, head, dropout)
        self.mask = mask
        self.gru = MaskedGRU((1 + mask) * variables + 1, recognition)
        self.out = Affine(recognition, 2 * latent)
        self.ode = NODE(MLPField(latent, latent, units, 2, backend=backend), solver)

    def encode(self, points: Points) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of q(z0)."""
        x = torch.cat((points.x, *((points.m,) if self.mask else ()), elapsed(points.t)), -1)
        mean, logvar = self.out(self.gru(x.flip(1), points.valid.flip(1))[:, -1]).chunk(2, -1)
        return mean, logvar

    def forward(self, batch: SporadicBatch, *, detach_attention: bool = False) -> Forecast:
        """Predict the targets. `detach_attention` is unused; all forecasting models share this signature."""
        mean, logvar = self.encode(batch.seen)
        noise = NoiseSource(batch.seed, mean.device)
        z0 = mean
        if self.training:
            z0 = torch.addcmul(mean, (0.5 * logvar).exp(), noise.normal(*mean.shape).to(mean))
        found = self.ode.at(z0, batch.target.t / batch.horizon)
        extra = 0.5 * (logvar.exp() + mean.square() - 1 - logvar).sum()
        return replace(self.predict(found.h, noise, extra), evaluations=found.evaluations)

    def trajectory(self, batch: SporadicBatch, t: list[float]) -> tuple[Tensor, None]:
        """Return z at common times, from the posterior's mean."""
        mean, _ = self.encode(batch.seen)
        times = torch.tensor(t, dtype=mean.dtype, device=mean.device) / batch.horizon
        return self.ode.at(mean, times.expand(len(mean), -1)).h.transpose(0, 1), None
