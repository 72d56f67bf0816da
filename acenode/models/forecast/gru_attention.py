"""Pairwise attention beside GRU-ODE-Bayes: how a(t) evolves, and what an observation does to it.

    evolving    da/dt = g(a, h') with h' = h σ(a)ᵀ (Eqs. 3 and 4 of the ACE-NODE paper), by one step for every window
                of `every` Euler steps of h, on the mean of h' over that window. g is a GRU on the rows of a, whose
                steps are exponential, or maps h' to the whole matrix
    fixed       a(t) is the correlation of h(t); nothing is integrated

At an observation a stays as it is (`keep`), or it is replaced by the correlation of h over the batch: for all series
(`recompute`) or for the observed ones (`observed`).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from acenode.attention import Correlation, Pairwise
from acenode.data.gru_ode_bayes_pass import MIN_WINDOW
from acenode.models.forecast.gru_ode import GRUODE, MatrixGRU, RowGRU


class GRUAttention(nn.Module):
    """g, q and the options above. Attention is fixed if g is None."""

    def __init__(self, g: RowGRU | MatrixGRU | None, q: nn.Module, *, every: int = 10, at_jump: str = "keep",
                 own_feedback: bool = False) -> None:
        super().__init__()
        self.g, self.q, self.every, self.at_jump, self.own_feedback = g, q, every, at_jump, own_feedback
        # q at observations: a running average of correlations over time. Its name is a key of checkpoints
        self.anew = Correlation((g.size,), bins=41) if g is not None and at_jump != "keep" else None

    def initial(self, h0: Tensor) -> Tensor | None:
        """Return a(0) = q(h(0)), or None for fixed attention."""
        return self.q(h0) if self.g is not None else None

    def at_rows(self, a: Tensor, h: Tensor, dt: Tensor, row: Tensor, series: Tensor, horizon: float) -> Tensor:
        """Return a of `series` after `row`, (R, d, d), from a(0) and h before every row, (S, B, d)."""
        assert self.g is not None
        window, found = row // self.every, a.new_empty(len(row), *a.shape[1:])  # number of windows that have ended
        for n in range(len(h) // self.every + 1):
            now = window == n
            found[now] = a[series[now]]
            rows = slice(n * self.every, (n + 1) * self.every)
            attended, tau = torch.einsum("bij,nbj->nbi", Pairwise.weights(a), h[rows]), dt[rows].sum(0)
            a = self.g.step((attended * dt[rows]).sum(0) / tau.clamp(min=MIN_WINDOW), a, tau.unsqueeze(-1), horizon)
        return found


class AttentionState:
    """a(t) during one integration, and the running mean of h' in the current window."""

    def __init__(self, attention: GRUAttention, a: Tensor | None, horizon: float, detach: bool) -> None:
        self.attention, self.a, self.horizon, self.detach = attention, a, horizon, detach
        self.t: Tensor | float = 0.0  # in units of the horizon, (1, 1) or (B, 1)
        self.weights: Tensor | None = None  # σ(a) of the current window
        self.rows = 0  # of the current window so far
        self.sum: Tensor | float = 0.0  # Σ dt h' over the window
        self.tau: Tensor | float = 0.0  # Σ dt

    def current(self, h: Tensor) -> Tensor:
        """Return a(t), (B, d, d)."""
        return self.attention.q(h, self._time()) if self.a is None else self.a

    def _time(self) -> Tensor | float:
        """Return the time of each series; in training, where all are correlated together, their mean."""
        return self.t.mean() if isinstance(self.t, Tensor) and self.attention.training else self.t

    def step(self, f: GRUODE, h: Tensor, x: Tensor | None, dt: Tensor) -> Tensor:
        """Return h after an Euler step of dh/dt = f(h'), h' = σ(a) h; advance a at the end of its window."""
        if self.weights is None or self.a is None:
            a = self.current(h)
            self.weights = Pairwise.weights(a.detach() if self.detach else a)
        attended = (self.weights * h.unsqueeze(-2)).sum(-1)
        after = h + dt * f(attended, x, h if self.attention.own_feedback else None)
        self.t = self.t + dt / self.horizon
        if self.attention.g is not None:
            self.sum, self.tau = self.sum + dt * attended, self.tau + dt.expand(len(h), 1)
            self.rows += 1
            if self.rows == self.attention.every:
                self._end_window()
        return after

    def _end_window(self) -> None:
        """Advance a by one step of da/dt = g(a, mean of h')."""
        assert self.attention.g is not None
        assert isinstance(self.tau, Tensor)
        assert isinstance(self.sum, Tensor)
        assert self.a is not None
        mean = self.sum / self.tau.clamp(min=MIN_WINDOW)
        self.a = self.attention.g.step(mean, self.a, self.tau.unsqueeze(-1), self.horizon)
        self._start_window()

    def _start_window(self) -> None:
        self.weights, self.rows, self.sum, self.tau = None, 0, 0.0, 0.0

    def observe(self, h: Tensor, series: Tensor) -> None:
        """Replace a after an observation of `series`, unless `at_jump` is keep."""
        if self.a is None or self.attention.anew is None:
            return
        new, self.weights = self.attention.anew(h, self._time()), None
        if self.attention.at_jump == "recompute":
            self.a = new
            self._start_window()
            return
        self.a = self.a.index_copy(0, series, new[series].contiguous())
        if isinstance(self.sum, Tensor) and isinstance(self.tau, Tensor):  # h' before the observation no longer counts
            self.sum, self.tau = self.sum.index_fill(0, series, 0.0), self.tau.index_fill(0, series, 0.0)

    def recompute_in_evaluation(self, h: Tensor) -> None:
        """Replace a after every step if `at_jump` is recompute.

        Otherwise a series' prediction would depend on when the other series of its batch are observed.
        """
        if self.attention.at_jump == "recompute" and self.attention.anew is not None and not self.attention.training:
            self.a, self.weights = self.attention.anew(h, self._time()), None
