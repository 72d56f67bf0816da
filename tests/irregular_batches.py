"""Small batches of irregular records for the tests of the latent models, and models with random weights."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from acenode.data.points import Points, SeriesBatch, TimeSeries, pad, recurrent_schedule


def record(n: int, D: int = 3, seed: int = 0) -> TimeSeries:
    rng = np.random.default_rng([seed, n])
    times = np.sort(rng.choice(np.arange(1, 200), n - 1, replace=False)) / 200
    t = np.concatenate([[0.0], times])
    m = rng.random((n, D)) < 0.5
    m[np.arange(n), rng.integers(0, D, n)] = True
    return TimeSeries.single(t, rng.normal(size=m.shape) * m, m)


def records(lengths: tuple[int, ...] = (5, 9, 3), D: int = 3) -> list[TimeSeries]:
    return [record(n, D, seed=i) for i, n in enumerate(lengths)]


def batch(of: list[TimeSeries], *, backwards: bool | None = True, K: int = 2, latent: int = 3) -> SeriesBatch:
    seen = pad(of)
    steps = None if backwards is None else recurrent_schedule(of, seen, backwards=backwards, union=False)
    noise = torch.randn(K, len(of), latent, generator=torch.Generator().manual_seed(5))
    label = torch.tensor([float(i % 2) for i in range(len(of))])
    return SeriesBatch(seen, seen, label, (0.0, 1.0), steps, noise)


def filled(model: nn.Module, seed: int = 0, size: float = 0.4) -> nn.Module:
    """Draw every parameter at random, so that no weight is zero and untested."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator) * size)
    return model


def padded_more(points: Points, extra: int, rubbish: float = 0.0) -> Points:
    """Return the same points with more padding, which holds the value `rubbish`."""
    B, _, D = points.x.shape
    t = torch.cat((points.t, points.t[:, -1:].expand(B, extra)), 1)
    x = torch.cat((points.x, torch.full((B, extra, D), rubbish)), 1)
    m = torch.cat((points.m, torch.zeros(B, extra, D)), 1)
    valid = torch.cat((points.valid, torch.zeros(B, extra, dtype=torch.bool)), 1)
    return Points(t, x, m, valid)
