"""Pairwise attention beside a state that jumps: how it evolves, and what becomes of it at an observation.

    evolving    da/dt = g(a, h') by exponential steps, one to `every` steps of h, on the mean of h' in between
    fixed       a(t) = the correlation of h(t), nothing is integrated

At a jump a stays as it is (keep), or is the correlation of h over the batch anew, of all series (recompute) or of those
that were observed (observed).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from acenode.attention import Correlation, Pairwise
from acenode.models.forecast.gru_ode import RowGRU

if TYPE_CHECKING:
    from acenode.models.forecast.gru_ode import GRUODE

SHORTEST = 1e-12  # window that is divided by


class Attention(nn.Module):
    """g, q and the choices. Without g attention is fixed."""

    def __init__(self, g: RowGRU | None, q: nn.Module, *, every: int = 10, at_jump: str = "keep",
                 own_feedback: bool = False) -> None:
        super().__init__()
        self.g, self.q, self.every, self.at_jump, self.own_feedback = g, q, every, at_jump, own_feedback
        anew = g is not None and at_jump != "keep"
        self.anew = Correlation((g.new.in_features,), bins=41) if g is not None and anew else None

    @property
    def fused(self) -> bool:
        return self.g is not None and self.at_jump == "keep"

    def begin(self, h0: Tensor) -> Tensor | None:
        """a(0); none where it is made from h at every step."""
        return self.q(h0) if self.g is not None else None

    def follow(self, a: Tensor, h: Tensor, dt: Tensor, row: Tensor, series: Tensor) -> Tensor:
        """a of some series after some rows, from a(0) and h at the start of every row, (S, B, d)."""
        assert self.g is not None
        window, found = row // self.every, a.new_empty(len(row), *a.shape[1:])  # windows that have ended by then
        for n in range(len(h) // self.every + 1):
            here = window == n
            found[here] = a[series[here]]
            rows = slice(n * self.every, (n + 1) * self.every)
            attended, tau = torch.einsum("bij,nbj->nbi", Pairwise.weights(a), h[rows]), dt[rows].sum(0)
            a = self.g.step((attended * dt[rows]).sum(0) / tau.clamp(min=SHORTEST), a, tau.unsqueeze(-1))
        return found


class Moving:
    """a on its way through a schedule."""

    def __init__(self, attention: Attention, a: Tensor | None, horizon: float, detach: bool) -> None:
        self.of, self.a, self.horizon, self.detach = attention, a, horizon, detach
        self.t: Tensor | float = 0.0  # in units of the horizon, (1, 1) or (B, 1)
        self.weights: Tensor | None = None
        self.rows = 0
        self.sum: Tensor | float = 0.0
        self.tau: Tensor | float = 0.0

    def now(self, h: Tensor) -> Tensor:
        """a at this moment."""
        return self.of.q(h, self.moment()) if self.a is None else self.a

    def moment(self) -> Tensor | float:
        """When it is: each series' own time, or in training, where all are correlated together, their mean."""
        return self.t.mean() if isinstance(self.t, Tensor) and self.of.training else self.t

    def step(self, f: GRUODE, h: Tensor, given: Tensor | None, dt: Tensor) -> Tensor:
        """h after a step of dt; a after it too, at the end of its window."""
        if self.weights is None or self.a is None:
            a = self.now(h)
            self.weights = Pairwise.weights(a.detach() if self.detach else a)
        attended = (self.weights * h.unsqueeze(-2)).sum(-1)
        after = h + dt * f(attended, given, h if self.of.own_feedback else None)
        self.t = self.t + dt / self.horizon
        if self.of.g is not None:
            self.sum, self.tau = self.sum + dt * attended, self.tau + dt.expand(len(h), 1)
            self.rows += 1
            if self.rows == self.of.every:
                self.turn()
        return after

    def turn(self) -> None:
        assert self.of.g is not None
        assert isinstance(self.tau, Tensor)
        assert isinstance(self.sum, Tensor)
        assert self.a is not None
        mean = self.sum / self.tau.clamp(min=SHORTEST)
        self.a = self.of.g.step(mean, self.a, self.tau.unsqueeze(-1))
        self.weights, self.rows, self.sum, self.tau = None, 0, 0.0, 0.0

    def jumped(self, h: Tensor, who: Tensor) -> None:
        """What becomes of a when these series have been observed."""
        if self.a is None or self.of.anew is None:
            return
        found, self.weights = self.of.anew(h, self.moment()), None
        if self.of.at_jump == "recompute":
            self.a, self.rows, self.sum, self.tau = found, 0, 0.0, 0.0
            return
        self.a = self.a.index_copy(0, who, found[who].contiguous())
        if isinstance(self.sum, Tensor) and isinstance(self.tau, Tensor):  # the new a has lived through none of it
            self.sum, self.tau = self.sum.index_fill(0, who, 0.0), self.tau.index_fill(0, who, 0.0)

    def settle(self, h: Tensor) -> None:
        """In evaluation no series waits for another's observation to begin anew: all do so after every step."""
        if self.of.at_jump == "recompute" and self.of.anew is not None and not self.of.training:
            self.a, self.weights = self.of.anew(h, self.moment()), None
