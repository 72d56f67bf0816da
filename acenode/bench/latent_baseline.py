"""A direct implementation of the latent ODE on a union time grid, the baseline of `acenode bench latent`.

The encoder updates every record at all distinct times of the batch, the decoder is evaluated at all of them, and values
that were not observed are masked out of the loss.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.data.points import FIRST_GAP, STEPS_PER_SPAN, Points, TimeSeries
from acenode.models.latent.latent_ode import LatentODE, kl_to_standard_normal, log_likelihood, negative_elbo
from acenode.models.latent.ode_rnn import ODEEncoder
from acenode.models.layers import MLP


def collate(records: list[TimeSeries]) -> tuple[list[float], Tensor, Tensor]:
    """Return the distinct times (T,), and values and masks (B, T, D), zero where a record has no point."""
    union = np.unique(np.concatenate([r.t for r in records]))
    x = np.zeros((len(records), len(union), records[0].x.shape[1]), np.float32)
    m = np.zeros_like(x)
    for b, r in enumerate(records):
        at = np.searchsorted(union, r.t)
        x[b, at], m[b, at] = r.x, r.m
    return union.astype(np.float64).tolist(), torch.from_numpy(x), torch.from_numpy(m)


def mlp(net: MLP, x: Tensor) -> Tensor:
    """Apply a network layer by layer."""
    for layer in net:
        x = F.linear(x, layer.weight, layer.bias) if isinstance(layer, nn.Linear) else layer(x)
    return x


def encode(encoder: ODEEncoder, times: list[float], x: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
    """Run the ODE-RNN encoder backward in time; return mean and deviation of z(0), each (B, latent)."""
    cell, f = encoder.recurrence.cell, encoder.recurrence.drift.f.layers
    mu = s = x.new_zeros(len(x), encoder.recurrence.size)
    smallest, before = (times[-1] - times[0]) / STEPS_PER_SPAN, times[-1] + FIRST_GAP
    for i in reversed(range(len(times))):
        gap = times[i] - before
        count = 1 if i == len(times) - 1 or abs(gap) < smallest else max(2, int(abs(gap) / smallest + 1e-6)) - 1
        for _ in range(count):
            mu = mu + gap / count * mlp(f, mu)
        given = torch.cat((x[:, i], m[:, i]), 1)
        u = torch.sigmoid(mlp(cell.update, torch.cat((mu, s, given), 1)))
        r = torch.sigmoid(mlp(cell.reset, torch.cat((mu, s, given), 1)))
        mean, deviation = mlp(cell.state, torch.cat((mu * r, s * r, given), 1)).chunk(2, 1)
        seen = (m[:, i].sum(1, keepdim=True) > 0).float()
        mu = seen * ((1 - u) * mean + u * mu) + (1 - seen) * mu
        s = seen * ((1 - u) * deviation.abs() + u * s).abs() + (1 - seen) * s
        before = times[i]
    mean, deviation = mlp(encoder.out, torch.cat((mu, s), 1)).chunk(2, 1)
    return mean, deviation.abs()


def loss(model: LatentODE, records: list[TimeSeries], labels: Tensor, noise: Tensor, weight: float) -> Tensor:
    """Compute the negative evidence lower bound plus the weighted cross-entropy of a batch."""
    assert isinstance(model.encoder, ODEEncoder)
    times, x, m = collate(records)
    mean, deviation = encode(model.encoder, times, x, m)
    z0 = mean + deviation * noise  # (K, B, latent)
    K = len(z0)
    path = model.ode(z0.flatten(0, 1), [*times, 1.0] if times[-1] < 1 else times)
    z = path.h[:len(times)].unflatten(1, (K, -1)).permute(1, 2, 0, 3)  # (K, B, T, d)
    target = Points(torch.tensor(times).expand(len(records), -1), x, m, m.any(-1))
    bound = negative_elbo(log_likelihood(model.emission(z), target), kl_to_standard_normal(mean, deviation), 0.0)
    assert model.classifier is not None
    logits = model.classifier(z0).squeeze(-1)
    return bound + weight / K * F.binary_cross_entropy_with_logits(logits, labels.expand_as(logits))
