"""Forward pass of GRU-ODE-Bayes and ACE in torch operations, for the hand-derived gradient in `torch_backward`.

Row by row (`acenode.models.forecast.gru_ode_bayes` has the equations):

    s = h, or h' = σ(a) h with attention
    r, o = σ(s W), u = tanh((r ⊙ s) W')                    o = 1 − z: the weights carry the sign
    h ← h + dt o ⊙ (u − s)                                 with `own_feedback` u − h
    h ← GRU(ReLU([x, p, e] F + b) ⊙ m, h)                  at an observation; p = MLP(h), e = (x − μ)/σ
    a ← u_a + e^(−τ o_a) ⊙ (a − u_a)                       once per window of rows, τ long, on the mean of s; or
    a ← a + τ (v W + b), v = o_a ⊙ (u_a − mean)            if g gives the whole matrix

All values of a window are saved while they fit in `SAVE_LIMIT`; of later windows only the start is saved, and the
backward pass recomputes their rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from acenode.accelerate.gru_ode_bayes.packed import PackedWeights, PassPlan
from acenode.data.gru_ode_bayes_pass import MIN_WINDOW

SAVE_LIMIT = 6e9  # bytes saved for the backward pass
UNOBSERVED = -1e9  # added to the features of unobserved variables, so that their ReLU is 0

Views = tuple[Tensor, ...]  # one view of a table for each row with observations


@dataclass
class AttentionStep:
    """Attention in one window, and what its step at the end is made of."""

    a: Tensor  # (B, H, H)
    weights: Tensor  # σ(a)
    mean: Tensor  # of s, (B, H)
    tau: Tensor  # (1, 1) or (B, 1)
    gates: Tensor  # r, o: (B, H, 2H), or (B, 2H) if g gives the whole matrix
    u: Tensor
    drift: Tensor | None = None  # v, (B, H), if g gives the whole matrix


@dataclass
class Window:
    """The values of n rows of B series."""

    lo: int
    hi: int
    h: Tensor  # (n + 1, B, H)
    gates: Tensor  # r, o: (n, 2, B, H)
    u: Tensor
    s: Tensor  # h itself without attention
    attention: AttentionStep | None = None


class Table:
    """One line per observation, with views of its columns for the observations of each row of the schedule."""

    def __init__(self, data: Tensor, sizes: list[int], *widths: int) -> None:
        self.data = data
        self.rows: Views = data.split(sizes) if sizes else ()
        self.columns: list[Views] = [part.split(sizes) if sizes else () for part in data.split(widths, 1)]


class ForwardPass:
    """One pass over a schedule, with the values that the backward pass needs."""

    def __init__(self, plan: PassPlan, w: PackedWeights) -> None:
        self.plan, self.w, observations = plan, w, plan.schedule.observations
        D, H, N = plan.x.shape[1], len(w.f_new), len(plan.x)
        P = w.features.shape[1]
        self.D, self.H = D, H
        sizes = [hi - lo for lo, hi in pairwise(observations.offsets)]
        places = iter(range(N))
        self.ordinal = [next(places) if size else -1 for size in sizes]  # of a row among those with observations
        self.sizes = [size for size in sizes if size]
        self.series = observations.series.split(self.sizes) if self.sizes else ()
        self.hidden, self.out = self.table(w.hidden.shape[1]), self.table(D, D, D, D)
        self.inverse, self.gru_input, self.cell = self.table(D), self.table(P, H), self.table(H, H, H, H)
        self.gates = self.split(self.cell.data[:, :2 * H])
        self.read_by_features = self.split(self.out.data[:, D:])  # μ, log σ², e
        self.after = self.table(H)
        self.dropout = None if plan.dropout is None else self.split(plan.dropout)
        bias = w.out_bias.repeat(N, 1)
        bias[:, 3 * D:] += plan.x
        self.out_bias = self.split(bias)
        unobserved = (1 - plan.m).mul_(UNOBSERVED).repeat_interleave(P // D, 1)
        self.features_of_x = self.split(torch.addmm(w.features_bias, plan.x, w.features[:D]).add_(unobserved))
        self.reads = plan.x.new_empty(len(plan.schedule.reads), H)
        self.minus_one = plan.x.new_full((), -1.0)
        self.saved: list[Window | tuple[Tensor, Tensor | None]] = []

    def table(self, *widths: int) -> Table:
        return Table(self.plan.x.new_empty(len(self.plan.x), sum(widths)), self.sizes, *widths)

    def split(self, data: Tensor) -> Views:
        return data.split(self.sizes) if self.sizes else ()

    def windows(self) -> list[tuple[int, int]]:
        S, every = self.plan.schedule.rows, self.plan.every
        return [(lo, min(lo + every, S)) for lo in range(1, S, every)]

    def run(self, h: Tensor, a: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the predictions before the observations, h after them and h at the read points."""
        h = h.clone()
        self.read_and_observe(0, h, first=True)
        room = SAVE_LIMIT
        for lo, hi in self.windows():
            window = self.window(lo, hi, h, a, first=True)
            room -= _bytes(window)
            if self.plan.save:
                self.saved.append(window if room > 0 else (h.clone(), a))
            h = window.h[-1]
            if window.attention is not None:
                a = self.next_a(window.attention)
        self.end = h
        # an output that this object holds would be a reference cycle through its grad_fn
        return self.out.data[:, self.D:3 * self.D].clone(), self.after.data.detach(), self.reads.detach()

    def window(self, lo: int, hi: int, h: Tensor, a: Tensor | None, first: bool) -> Window:
        """Compute the rows of a window from h on. Unless it is the first time, the jumps are known."""
        n, B, H, dt = hi - lo, len(h), self.H, self.plan.schedule.dt[lo:hi].unbind(0)
        new = h.new_empty
        states, gates, candidates = new(n + 1, B, H), new(n, 2, B, H), new(n, B, H)
        read = states[:-1] if a is None else new(n, B, H)
        states[0] = h
        out = Window(lo, hi, states, gates, candidates, read)
        weights = None if a is None else torch.softmax(a, -1)
        product = torch.empty_like(weights) if weights is not None else None
        W_reset, W_open, W_new = self.w.f_reset, self.w.f_open, 2 * self.w.f_new
        attended_feedback = a is not None and not self.plan.own_feedback
        rows = zip(states[:-1].unbind(0), states[1:].unbind(0), read.unbind(0), gates.unbind(0),
                   gates[:, 0].unbind(0), gates[:, 1].unbind(0), candidates.unbind(0), strict=True)
        for k, (own, after, s, gate, r, o, u) in enumerate(rows):
            if weights is not None and product is not None:
                torch.mul(weights, own.unsqueeze(1), out=product)
                torch.sum(product, -1, out=s)
            torch.mm(s, W_reset, out=r)
            torch.mm(s, W_open, out=o)
            gate.sigmoid_()
            half = torch.mm(r * s, W_new).sigmoid_()
            torch.add(self.minus_one, half, alpha=2, out=u)  # tanh(x) = 2σ(2x) − 1, faster than torch.tanh
            if attended_feedback:
                torch.addcmul(own, o * dt[k], u - s, out=after)
            else:
                torch.lerp(own, u, o * dt[k], out=after)
            self.read_and_observe(lo + k, after, first)
        if a is not None and weights is not None:
            out.attention = self.attention_step(a, weights, read, self.plan.schedule.dt[lo:hi])
        return out

    def read_and_observe(self, row: int, h: Tensor, first: bool) -> None:
        """Read h at the row's read points, then update it in place at the row's observations."""
        reads = self.plan.schedule.reads
        lo, hi = reads.offsets[row], reads.offsets[row + 1]
        if hi > lo and first:
            torch.index_select(h, 0, reads.series[lo:hi], out=self.reads[lo:hi])
        j = self.ordinal[row]
        if j >= 0:
            if first:
                self.jump(j, h.index_select(0, self.series[j]))
            h.index_copy_(0, self.series[j], self.after.rows[j])

    def jump(self, j: int, h: Tensor) -> None:
        """Compute the GRU-Bayes update of the j-th row with observations into the tables."""
        w, out = self.w, self.out.columns
        y = torch.addmm(w.hidden_bias, h, w.hidden, out=self.hidden.rows[j]).relu_()
        if self.dropout is not None:
            y.mul_(self.dropout[j])
        torch.addmm(self.out_bias[j], y, w.out, out=self.out.rows[j])
        out[3][j].mul_(torch.exp(out[0][j], out=self.inverse.rows[j]))  # x − μ becomes e
        v = torch.addmm(self.features_of_x[j], self.read_by_features[j], w.features[self.D:]).relu_()
        gru_input = torch.cat((v, h), 1, out=self.gru_input.rows[j])
        torch.addmm(w.cell_bias, gru_input, w.cell, out=self.cell.rows[j])
        self.gates[j].sigmoid_()
        r, z, n, own = (column[j] for column in self.cell.columns)
        torch.lerp(n.addcmul_(r, own).tanh_(), h, z, out=self.after.rows[j])

    def attention_step(self, a: Tensor, weights: Tensor, s: Tensor, dt: Tensor) -> AttentionStep:
        """Compute g's gates and candidate at the end of a window."""
        w, H, B = self.w, self.H, len(a)
        assert w.g_gates_in is not None
        assert w.g_new_in is not None
        tau = dt.sum(0)
        mean = (s * dt).sum(0) / tau.clamp(min=MIN_WINDOW)
        if w.g_gates is None or w.g_new is None:
            gates = (mean @ w.g_gates_in).sigmoid_()
            u = ((gates[:, :H] * mean) @ w.g_new_in).tanh_()
            return AttentionStep(a, weights, mean, tau, gates, u, gates[:, H:] * (u - mean))
        gates = torch.mm(a.view(-1, H), w.g_gates).view(B, H, 2 * H).add_((mean @ w.g_gates_in).unsqueeze(1)).sigmoid_()
        u = torch.mm((gates[..., :H] * a).view(-1, H), 2 * w.g_new).view(B, H, H)
        u.add_((mean @ w.g_new_in).unsqueeze(1), alpha=2).sigmoid_()
        return AttentionStep(a, weights, mean, tau, gates, torch.add(self.minus_one, u, alpha=2, out=u))

    def next_a(self, step: AttentionStep) -> Tensor:
        """Return a after its step."""
        if step.drift is not None:
            assert self.w.g_out is not None
            assert self.w.g_out_bias is not None
            rate = torch.addmm(self.w.g_out_bias, step.drift, self.w.g_out)
            return step.a + step.tau.unsqueeze(-1) * rate.view_as(step.a)
        return torch.lerp(step.a, step.u, 1 - self.decay(step))

    def decay(self, step: AttentionStep) -> Tensor:
        """Return the factor e^(−τ o) by which the step shrinks a − u."""
        return torch.exp(step.gates[..., self.H:] * -step.tau.unsqueeze(-1))


def _bytes(window: Window) -> float:
    tensors = [window.h, window.gates, window.u, *([] if window.attention is None else [window.s])]
    if window.attention is not None:
        tensors += [window.attention.a, window.attention.weights, window.attention.gates, window.attention.u]
    return float(sum(t.nbytes for t in tensors))
