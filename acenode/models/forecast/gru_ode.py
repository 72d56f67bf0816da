"""GRU-ODE, the GRU in continuous time (De Brouwer et al., GRU-ODE-Bayes, Section 2.3), and attention beside it.

    full       r, z = σ(W x + U h + b), u = tanh(W_u x + U_u (r ⊙ h) + b_u), dh/dt = (1 − z) ⊙ (u − h)
    minimal    z = σ(W x + U h + b), u = tanh(W_u x + U_u (z ⊙ h) + b_u), dh/dt = (1 − z) ⊙ (u − h)

Without imputation x ≡ 0 and there are no biases. h stays within [−1, 1], also under Euler steps of length at most 1.
Pairwise attention:

    evolving   da/dt = g(a, h') with h' = h σ(a)ᵀ (Eqs. 3 and 4 of the ACE-NODE paper), by one step for every window
               of `every` Euler steps of h, on the mean of h' over that window. g is a GRU on the rows of a, whose
               steps are exponential, or maps h' to the whole matrix
    fixed      a(t) is the correlation of h(t); nothing is integrated

At an observation a stays as it is (`keep`), or it is replaced by the correlation of h over the batch: for all series
(`recompute`) or for the observed ones (`observed`).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from acenode.attention import Correlation, Pairwise
from acenode.data.passes import GWeights
from acenode.models.forecast.gaussian import Affine

MIN_WINDOW = 1e-12  # a mean over a window divides by at least this much time


class GRUODE(nn.Module):
    """dh/dt of either cell; `inputs` is the size of x, 0 for none."""

    def __init__(self, size: int, inputs: int = 0, minimal: bool = False) -> None:
        super().__init__()
        self.minimal, self.inputs = minimal, inputs
        self.reset = None if minimal else Affine(size, size, bias=False)
        self.update, self.new = Affine(size, size, bias=False), Affine(size, size, bias=False)
        self.given = Affine(inputs, (2 if minimal else 3) * size, blocks=2 if minimal else 3) if inputs else None

    def forward(self, h: Tensor, x: Tensor | None = None, own: Tensor | None = None) -> Tensor:
        """Return dh/dt, (B, d). The gates read h; the term −h reads `own`, if given."""
        gates = [self.update(h)] if self.reset is None else [self.reset(h), self.update(h)]
        u_x: Tensor | float = 0.0
        if self.given is not None:
            *gates_x, u_x = self.given(x).chunk(len(gates) + 1, -1)
            gates = [gate + gate_x for gate, gate_x in zip(gates, gates_x, strict=True)]
        gates = [torch.sigmoid(gate) for gate in gates]
        r, z = gates[0], gates[-1]  # the same gate in the minimal cell
        u = torch.tanh(self.new(r * h) + u_x)
        return (1 - z) * (u - (h if own is None else own))


class RowGRU(nn.Module):
    """g: every row a_i of a is the state of one full GRU-ODE that reads h', with weights shared by the rows.

    r_i, z_i = σ(W h' + U a_i), u_i = tanh(W_u h' + U_u (r_i ⊙ a_i)), da_i/dt = (1 − z_i) ⊙ (u_i − a_i). So a stays
    within [−1, 1], the range of correlations. An exponential step holds z and u constant and solves the remaining
    equation, which is linear in a_i; it stays within [−1, 1] for any length.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        # U of the rows of a, and W of h'
        self.gates, self.gates_in = (Affine(size, 2 * size, bias=False, blocks=2) for _ in range(2))
        self.new, self.new_in = (Affine(size, size, bias=False) for _ in range(2))

    def forward(self, attended: Tensor, a: Tensor) -> Tensor:
        """Return da/dt, (B, d, d), from h' (B, d) and a."""
        rate, u = self.relax(attended, a)
        return rate * (u - a)

    def step(self, attended: Tensor, a: Tensor, tau: Tensor, horizon: float = 1.0) -> Tensor:
        """Return a after an exponential step of length τ, (B, 1, 1). `horizon` is unused; see `MatrixGRU`."""
        rate, u = self.relax(attended, a)
        return a - torch.expm1(-tau * rate) * (u - a)

    def relax(self, attended: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rate 1 − z and the target u of da/dt = (1 − z) ⊙ (u − a)."""
        r, z = torch.sigmoid(self.gates(a) + self.gates_in(attended).unsqueeze(-2)).chunk(2, -1)
        return 1 - z, torch.tanh(self.new(r * a) + self.new_in(attended).unsqueeze(-2))

    def weights(self) -> GWeights:
        return GWeights(self.gates.weight, self.new.weight, self.gates_in.weight, self.new_in.weight)


class MatrixGRU(nn.Module):
    """g as a function of h' alone: a full GRU-ODE on h', whose derivative a linear layer maps to all d² entries of a.

    r, z = σ(U h'), u = tanh(U_u (r ⊙ h')), v = (1 − z) ⊙ (u − h'), da/dt = (W v + b)/T with the horizon T. Every entry
    of a has weights of its own, so the rows stay different: 3d² + d³ + d² parameters, 135,000 at d = 50. a is an
    integral, without bounds. W could absorb T; dividing by it makes a change by about W v between 0 and T whatever the
    unit of time.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.cell, self.out = GRUODE(size), Affine(size, size * size)

    def forward(self, attended: Tensor, horizon: float = 1.0) -> Tensor:
        """Return da/dt, (B, d, d), from h' (B, d)."""
        rate: Tensor = self.out(self.cell(attended)) / horizon
        return rate.unflatten(-1, (self.size, self.size))

    def step(self, attended: Tensor, a: Tensor, tau: Tensor, horizon: float = 1.0) -> Tensor:
        """Return a after a step of length τ, (B, 1, 1), which is exact for a constant h'."""
        return a + tau * self(attended, horizon)


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
        if self.attention.g is not None and self.a is not None:
            total, tau = self.sum + dt * attended, self.tau + dt.expand(len(h), 1)
            self.sum, self.tau, self.rows = total, tau, self.rows + 1
            if self.rows == self.attention.every:  # one step of da/dt = g(a, mean of h')
                mean = total / tau.clamp(min=MIN_WINDOW)
                self.a = self.attention.g.step(mean, self.a, tau.unsqueeze(-1), self.horizon)
                self._start_window()
        return after

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
