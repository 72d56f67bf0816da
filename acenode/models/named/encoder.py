"""The encoder of named variables: the observations of a variable give the start of its own block of h, no other's."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.data.points import Points
from acenode.models.gru import MaskedGRU
from acenode.models.named.field import Embedding, layers

RECENT = 6  # observations that are read directly, besides the GRU
FEATURES = 3  # of an observation: its value, the time since the last one, the time until the ODE starts


class OwnEncoder(nn.Module):
    """h_i(0) from the observations of variable i alone, by a GRU that all variables share, told apart by e_i.

    Gaps are skipped: the GRU reads a variable's observations only, with the times between them. The few that it reads
    last are read directly too.

    Args:
        backwards: read the last observation first, for an ODE that starts before them.
    """

    def __init__(self, block: int, embedding: Embedding, hidden: int, *, backwards: bool) -> None:
        super().__init__()
        size = embedding.e.shape[1]
        self.gru = MaskedGRU(FEATURES + size, hidden)
        self.out = layers(hidden + RECENT * FEATURES + size, hidden, block)
        self.backwards = backwards

    def forward(self, seen: Points, start: float, embedding: Embedding) -> Tensor:
        """Return h(0), (B, V, k), for an ODE that begins at `start`."""
        x, observed = self._features(seen, start)  # (B, V, T, FEATURES), (B, V, T)
        B, V, T = observed.shape
        e = embedding.e[:, None].expand(B, V, T, -1)
        read = self.gru(torch.cat((x, e), -1).flatten(0, 1), observed.flatten(0, 1))[:, -1]  # (B·V, hidden)
        return self.out(embedding(read.unflatten(0, (B, V)), recent(x, observed, RECENT)))

    def _features(self, seen: Points, start: float) -> tuple[Tensor, Tensor]:
        """Return what is read of each variable's observations in the order of reading, and which there are."""
        t = seen.t[:, None].expand(-1, seen.x.shape[-1], -1)  # (B, V, T)
        x, observed = seen.x.transpose(1, 2), seen.m.transpose(1, 2) > 0
        if self.backwards:
            t, x, observed = t.flip(-1), x.flip(-1), observed.flip(-1)
        before = last_time(t, observed, self.backwards)
        gap = torch.where(observed & before.isfinite(), (t - before).abs(), 0.0)
        return torch.stack((x, gap, (start - t).abs()), -1) * observed.unsqueeze(-1), observed


def last_time(t: Tensor, observed: Tensor, backwards: bool) -> Tensor:
    """Return the time of the observation before each point in the order of reading; infinite if there is none."""
    none = float("inf") if backwards else float("-inf")
    times = torch.where(observed, t, none)
    so_far = times.cummin(-1).values if backwards else times.cummax(-1).values
    return torch.cat((torch.full_like(so_far[..., :1], none), so_far[..., :-1]), -1)


def recent(x: Tensor, observed: Tensor, count: int) -> Tensor:
    """Return the features of the observations that are read last, the very last first, (B, V, count · features).

    Where there are fewer, the rest is zero.
    """
    x, observed = x.flip(-2), observed.flip(-1)
    order = (~observed).to(torch.uint8).argsort(dim=-1, stable=True)[..., :count]
    chosen = x.gather(-2, order.unsqueeze(-1).expand(*order.shape, x.shape[-1]))
    chosen = chosen * observed.gather(-1, order).unsqueeze(-1)
    missing = count - order.shape[-1]
    return F.pad(chosen, (0, 0, 0, missing)).flatten(-2)
