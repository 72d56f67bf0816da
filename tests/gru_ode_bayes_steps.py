"""GRU-ODE-Bayes step by step as the equations are written; random weights and events in the CUDA kernels' format."""

from __future__ import annotations

import torch
from torch import Tensor

from acenode.accelerate.gru_ode_bayes.events import KernelEvents, KernelWeights


def weights_of(H: int, Q: int, D: int, F: int, device: str = "cpu") -> KernelWeights:
    """Draw weights for H hidden units, Q units in the head, D variables and F features each."""
    generator = torch.Generator().manual_seed(1)
    shapes = [(H, 2 * H), (H, H), (H, Q), (Q,), (Q, 2 * D), (2 * D,), (D, 4, F), (D, F), (D * F, 3 * H), (3 * H,),
              (H, 3 * H), (3 * H,)]
    return KernelWeights(*(0.2 * torch.randn(s, generator=generator, dtype=torch.float64).to(device) for s in shapes))


def events_of(S: int, counts: tuple[int, ...], H: int, Q: int, D: int, F: int, dropout: bool, reads: bool,
              device: str = "cpu") -> KernelEvents:
    """Draw `counts` events for each series at distinct rows; with `reads` some of them are read points."""
    generator = torch.Generator().manual_seed(2)
    rows = [torch.randperm(S, generator=generator)[:n].sort().values for n in counts]
    N = sum(counts)

    def draw(width: int) -> Tensor:
        return torch.rand(N, width, generator=generator, dtype=torch.float64).to(device)

    return KernelEvents(torch.tensor([0, *counts]).cumsum(0).to(device), torch.cat(rows).to(device), 4 * draw(D) - 2,
                        (draw(D) > 0.4).double(), (draw(Q) > 0.3).double() / 0.7 if dropout else None,
                        draw(1)[:, 0] > 0.3 if reads else None)


def update_one(h: Tensor, e: int, events: KernelEvents, w: KernelWeights) -> Tensor:
    """Return h (1, H) after the update at event e."""
    hidden = torch.relu(h @ w.W_1 + w.b_1)
    if events.dropout is not None:
        hidden = hidden * events.dropout[e]
    mean, logvar = (hidden @ w.W_2 + w.b_2)[0].chunk(2)
    x, m = events.x[e], events.m[e]
    q = []
    for d in range(len(x)):
        inputs = torch.stack((x[d], mean[d], logvar[d], (x[d] - mean[d]) / torch.exp(logvar[d] / 2)))
        q.append(m[d] * torch.relu(inputs @ w.M[d] + w.b[d]))
    return torch.gru_cell(torch.cat(q)[None], h, w.W_input.T, w.W_hidden.T, w.b_input, w.b_hidden)


def by_rows(h0: Tensor, dt: Tensor, events: KernelEvents, w: KernelWeights) -> tuple[Tensor, Tensor]:
    """Integrate every series step by step; return h before and after every event."""
    pre, post = [], []
    for b in range(len(h0)):
        h = h0[b:b + 1]
        due = {int(events.row[e]): e for e in range(int(events.offsets[b]), int(events.offsets[b + 1]))}
        for i in range(len(dt)):
            r, z = torch.sigmoid(h @ w.W_rz).chunk(2, 1)
            h = h + dt[i, b] * (1 - z) * (torch.tanh((r * h) @ w.W_u) - h)
            if i in due:
                pre.append(h)
                if events.observed is None or bool(events.observed[due[i]]):
                    h = update_one(h, due[i], events, w)
                post.append(h)
    return torch.cat(pre), torch.cat(post)
