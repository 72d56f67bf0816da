"""A direct implementation of GRU-ODE-Bayes on one time grid for the batch, the baseline of `acenode bench ushcn`.

All series advance together by Euler steps from one distinct time of the batch to the next, and p predicts for every
series after every step and every jump.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.data.points import TimeSeries
from acenode.models.forecast.gaussian import gaussian_nll
from acenode.models.forecast.gru_ode_bayes import GRUODEBayes, kl_to_observation


class DirectGRUODEBayes(nn.Module):
    """The parameters of a `GRUODEBayes` in torch's own layers."""

    def __init__(self, model: GRUODEBayes) -> None:
        super().__init__()
        self.model = model
        self.cell = nn.GRUCell(model.jump.cell.input.in_features, model.latent)
        for name, given in (("weight_ih", model.jump.cell.input.weight), ("bias_ih", model.jump.cell.input.bias),
                            ("weight_hh", model.jump.cell.hidden.weight), ("bias_hh", model.jump.cell.hidden.bias)):
            setattr(self.cell, name, given)

    def predict(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean and log-variance that p predicts from h."""
        p = self.model.p
        y = torch.relu(F.linear(h, p.hidden.weight, p.hidden.bias))
        mean, logvar = F.linear(y, p.out.weight, p.out.bias).chunk(2, 1)
        return mean, logvar

    def rate(self, h: Tensor) -> Tensor:
        """Return dh/dt of the GRU-ODE."""
        f = self.model.f
        assert f.reset is not None
        r = torch.sigmoid(F.linear(h, f.reset.weight))
        z = torch.sigmoid(F.linear(h, f.update.weight))
        u = torch.tanh(F.linear(r * h, f.new.weight))
        return (1 - z) * (u - h)

    def jump(self, h: Tensor, mean: Tensor, logvar: Tensor, x: Tensor, m: Tensor) -> Tensor:
        """Return h after the Bayesian update with the observations x where m is one."""
        jump = self.model.jump
        given = torch.stack((x, mean, logvar, (x - mean) / torch.exp(0.5 * logvar)), 2)  # (n, D, 4)
        features = torch.relu(torch.einsum("ndk,dkp->ndp", given, jump.weight) + jump.bias)
        return self.cell((features * m.unsqueeze(2)).flatten(1), h)

    def loss(self, records: list[TimeSeries], step: float) -> Tensor:
        """Compute the loss of a batch: negative log-likelihoods before jumps, and divergences after them."""
        order = np.argsort(np.concatenate([r.t for r in records]), kind="stable")
        t = np.concatenate([r.t for r in records])[order]
        series = np.repeat(np.arange(len(records)), [len(r.t) for r in records])[order]
        x, m = (torch.from_numpy(np.concatenate([getattr(r, k) for r in records])[order]) for k in ("x", "m"))
        times, first = np.unique(t, return_index=True)
        h = self.model.initial_state(len(records), None)
        mean, logvar = self.predict(h)
        now, total = 0.0, h.new_zeros(())
        for i, time in enumerate(times):
            while now < time - 0.001 * step:
                h = h + step * self.rate(h)
                mean, logvar = self.predict(h)
                now += step
            rows = slice(first[i], first[i + 1] if i + 1 < len(times) else len(t))
            index, seen, mask = torch.from_numpy(series[rows]), x[rows], m[rows]
            total = total + (gaussian_nll(seen, mean[index], logvar[index]) * mask).sum()
            moved = self.jump(h[index], mean[index], logvar[index], seen, mask)
            h = h.clone()
            h[index] = moved
            mean, logvar = self.predict(h)
            total = total + self.model.mixing * (kl_to_observation(mean[index], logvar[index], seen) * mask).sum()
        return total / len(records)
