"""GRU-ODE-Bayes, and ACE's pairwise attention on it, as one node of the graph: all rows forward, then all backward.

Row by row (`acenode.models.forecast.gru_ode_bayes` has the equations):

    s ← h, or σ(a) h with attention                        what the gates read
    r, o = σ(s W), u = tanh((r ⊙ s) W')                    o = 1 − z: the sign is in the weights
    h ← h + dt o ⊙ (u − s)                                 or u − h
    h ← GRU(ReLU([x, p, e] F + b) ⊙ m, h) where observed   p = MLP(h), e = (x − μ)/σ
    a ← u_a + e^(−τ o_a) ⊙ (a − u_a)                       once in a window of rows, τ long, on the mean of s

Recorded operation by operation a row is some sixty nodes, and each adds to a weight's gradient; here that is one
product for a window, or for all observations. Of a window all is kept while there is room, else its start alone, and
its rows are taken again on the way back (`torch_backward`). Nothing asks the host. On a CPU compiled C takes
the same rows where there is a compiler (`compiled`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from acenode.accelerate.gru_ode_bayes import compiled as jump_native
from acenode.backend import ACCELERATED, COMPILED_C, TORCH_OPERATIONS, Backend
from acenode.data.schedule import StepSchedule
from acenode.models.forecast.jump_attention import SHORTEST

WINDOW = 64  # rows of one without attention
ROOM = 6e9  # bytes that may be kept for the way back
NOTHING = -1e9  # added to the features of what is not observed, so that the ReLU gives 0

Views = tuple[Tensor, ...]  # of a table, those of each row with jumps


class Weights(NamedTuple):
    """All as (inputs, outputs), those of the update gates with their sign turned."""

    f_reset: Tensor  # (H, H)
    f_open: Tensor
    f_new: Tensor
    hidden: Tensor  # (H, p) of MLP
    hidden_bias: Tensor
    out: Tensor  # (p, 4D): −log σ²/2, μ, log σ², −μ
    out_bias: Tensor
    features: Tensor  # (4D, D·P) of x, μ, log σ², e
    features_bias: Tensor
    cell: Tensor  # (D·P + H, 4H): gates r and z, the input's share of n, and h's
    cell_bias: Tensor
    g_gates: Tensor | None = None  # (H, 2H) of the rows of a
    g_new: Tensor | None = None
    g_gates_in: Tensor | None = None  # (H, 2H) of the mean of s
    g_new_in: Tensor | None = None


@dataclass(frozen=True)
class Plan:
    """What is given and not learned."""

    schedule: StepSchedule
    x: Tensor  # (N, D), by jump
    m: Tensor  # (N, D)
    kept: Tensor | None  # (N, p), what dropout leaves of the MLP's hidden layer
    every: int = WINDOW  # rows of a window
    own_feedback: bool = False
    detach: bool = False  # a is a constant in the gradient
    keep: bool = True  # whether there is a way back
    backend: Backend = ACCELERATED


@dataclass
class Turn:
    """Attention in one window, and its own step at the end."""

    a: Tensor  # (B, H, H)
    weights: Tensor  # σ(a)
    mean: Tensor  # of s, (B, H)
    tau: Tensor  # (1, 1) or (B, 1)
    gates: Tensor  # r, o: (B, H, 2H)
    u: Tensor


@dataclass
class Segment:
    """The rows of one window on their way: n of them, B series."""

    lo: int
    hi: int
    h: Tensor  # (n + 1, B, H)
    gates: Tensor  # r, o: (n, 2, B, H)
    u: Tensor
    s: Tensor  # h itself without attention
    turn: Turn | None = None


class Table:
    """A row an observation, with views of its columns for the observations of each row of the schedule."""

    def __init__(self, data: Tensor, sizes: list[int], *widths: int) -> None:
        self.data = data
        self.rows: Views = data.split(sizes) if sizes else ()
        self.columns: list[Views] = [part.split(sizes) if sizes else () for part in data.split(widths, 1)]


class JumpScan(torch.autograd.Function):
    """h(0), a(0) or None and the weights → p before the jumps (N, 2D), h after them (N, H) and at the reads (R, H)."""

    @staticmethod
    def forward(ctx: Any, plan: Plan, h0: Tensor, a0: Tensor | None, *weights: Tensor) -> tuple[Tensor, ...]:
        given = Weights(*(w.detach().contiguous() for w in weights))
        if jump_native.supports(plan, h0, a0, weights):
            plan.backend.report_series_by(COMPILED_C)
            ctx.scan = native = jump_native.Native(plan, given)
            return native.run(h0.detach(), None if a0 is None else a0.detach())
        plan.backend.report_series_by(TORCH_OPERATIONS)
        scan = Scan(plan, given)
        scan.run(h0.detach(), None if a0 is None else a0.detach().contiguous())
        ctx.scan = scan
        D = scan.D
        return scan.said.data[:, D:3 * D].clone(), scan.after.data.detach(), scan.reads  # none of them is kept here

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        from acenode.accelerate.gru_ode_bayes.torch_backward import Back

        if isinstance(ctx.scan, jump_native.Native):
            return None, *ctx.scan.back(grads, ctx.needs_input_grad[3:])
        return None, *Back(ctx.scan, grads, ctx.needs_input_grad[3:]).run()


class Scan:
    """One pass over a schedule, and what it leaves for the way back."""

    def __init__(self, plan: Plan, w: Weights) -> None:
        self.plan, self.w, jumps = plan, w, plan.schedule.observations
        D, H, N = plan.x.shape[1], len(w.f_new), len(plan.x)
        P = w.features.shape[1]
        self.D, self.H = D, H
        sizes = [hi - lo for lo, hi in pairwise(jumps.offsets)]
        places = iter(range(N))
        self.ordinal = [next(places) if size else -1 for size in sizes]  # of a row among those with jumps
        self.sizes = [size for size in sizes if size]
        self.who = jumps.series.split(self.sizes) if self.sizes else ()
        self.hidden, self.said = self.table(w.hidden.shape[1]), self.table(D, D, D, D)
        self.inverse, self.seen, self.cell = self.table(D), self.table(P, H), self.table(H, H, H, H)
        self.gates = self.columns(self.cell.data[:, :2 * H])
        self.told = self.columns(self.said.data[:, D:])  # μ, log σ², e
        self.after = self.table(H)
        self.dropped = None if plan.kept is None else self.columns(plan.kept)
        bias = w.out_bias.repeat(N, 1)
        bias[:, 3 * D:] += plan.x
        self.out_bias = self.columns(bias)
        unseen = (1 - plan.m).mul_(NOTHING).repeat_interleave(P // D, 1)
        self.share = self.columns(torch.addmm(w.features_bias, plan.x, w.features[:D]).add_(unseen))  # x's, in features
        self.reads = plan.x.new_empty(len(plan.schedule.reads), H)
        self.minus = plan.x.new_full((), -1.0)
        self.kept: list[Segment | tuple[Tensor, Tensor | None]] = []

    def table(self, *widths: int) -> Table:
        return Table(self.plan.x.new_empty(len(self.plan.x), sum(widths)), self.sizes, *widths)

    def columns(self, data: Tensor) -> Views:
        return data.split(self.sizes) if self.sizes else ()

    def windows(self) -> list[tuple[int, int]]:
        S, every = self.plan.schedule.rows, self.plan.every
        return [(lo, min(lo + every, S)) for lo in range(1, S, every)]

    def run(self, h: Tensor, a: Tensor | None) -> None:
        h = h.clone()
        self.halt(0, h, first=True)
        room = ROOM
        for lo, hi in self.windows():
            segment = self.segment(lo, hi, h, a, first=True)
            room -= _bytes(segment)
            if self.plan.keep:
                self.kept.append(segment if room > 0 else (h.clone(), a))
            h = segment.h[-1]
            if segment.turn is not None:
                a = self.turned(segment.turn)
        self.end = h

    def segment(self, lo: int, hi: int, h: Tensor, a: Tensor | None, first: bool) -> Segment:
        """The rows of a window from h on; not for the first time, the jumps are known."""
        n, B, H, dt = hi - lo, len(h), self.H, self.plan.schedule.dt[lo:hi].unbind(0)
        new = h.new_empty
        states, gates, news = new(n + 1, B, H), new(n, 2, B, H), new(n, B, H)
        reading = states[:-1] if a is None else new(n, B, H)
        states[0] = h
        out = Segment(lo, hi, states, gates, news, reading)
        weights = None if a is None else torch.softmax(a, -1)
        product = torch.empty_like(weights) if weights is not None else None
        W_reset, W_open, W_new = self.w.f_reset, self.w.f_open, 2 * self.w.f_new
        literal = a is not None and not self.plan.own_feedback
        rows = zip(states[:-1].unbind(0), states[1:].unbind(0), reading.unbind(0), gates.unbind(0),
                   gates[:, 0].unbind(0), gates[:, 1].unbind(0), news.unbind(0), strict=True)
        for k, (own, after, s, gate, r, o, u) in enumerate(rows):
            if weights is not None and product is not None:
                torch.mul(weights, own.unsqueeze(1), out=product)
                torch.sum(product, -1, out=s)
            torch.mm(s, W_reset, out=r)
            torch.mm(s, W_open, out=o)
            gate.sigmoid_()
            half = torch.mm(r * s, W_new).sigmoid_()
            torch.add(self.minus, half, alpha=2, out=u)  # tanh, at a lower price than its own
            if literal:
                torch.addcmul(own, o * dt[k], u - s, out=after)
            else:
                torch.lerp(own, u, o * dt[k], out=after)
            self.halt(lo + k, after, first)
        if a is not None and weights is not None:
            out.turn = self.turn(a, weights, reading, self.plan.schedule.dt[lo:hi])
        return out

    def halt(self, row: int, h: Tensor, first: bool) -> None:
        """Reads, then jumps of a row, in place."""
        reads = self.plan.schedule.reads
        lo, hi = reads.offsets[row], reads.offsets[row + 1]
        if hi > lo and first:
            torch.index_select(h, 0, reads.series[lo:hi], out=self.reads[lo:hi])
        j = self.ordinal[row]
        if j >= 0:
            if first:
                self.jump(j, h.index_select(0, self.who[j]))
            h.index_copy_(0, self.who[j], self.after.rows[j])

    def jump(self, j: int, h: Tensor) -> None:
        w, said = self.w, self.said.columns
        y = torch.addmm(w.hidden_bias, h, w.hidden, out=self.hidden.rows[j]).relu_()
        if self.dropped is not None:
            y.mul_(self.dropped[j])
        torch.addmm(self.out_bias[j], y, w.out, out=self.said.rows[j])
        said[3][j].mul_(torch.exp(said[0][j], out=self.inverse.rows[j]))  # x − μ becomes e
        v = torch.addmm(self.share[j], self.told[j], w.features[self.D:]).relu_()
        seen = torch.cat((v, h), 1, out=self.seen.rows[j])
        torch.addmm(w.cell_bias, seen, w.cell, out=self.cell.rows[j])
        self.gates[j].sigmoid_()
        r, z, n, own = (column[j] for column in self.cell.columns)
        torch.lerp(n.addcmul_(r, own).tanh_(), h, z, out=self.after.rows[j])

    def turn(self, a: Tensor, weights: Tensor, s: Tensor, dt: Tensor) -> Turn:
        """Attention at a window's end: what its step is made of."""
        w, H, B = self.w, self.H, len(a)
        assert w.g_gates is not None
        assert w.g_new is not None
        assert w.g_gates_in is not None
        assert w.g_new_in is not None
        tau = dt.sum(0)
        mean = (s * dt).sum(0) / tau.clamp(min=SHORTEST)
        gates = torch.mm(a.view(-1, H), w.g_gates).view(B, H, 2 * H).add_((mean @ w.g_gates_in).unsqueeze(1)).sigmoid_()
        u = torch.mm((gates[..., :H] * a).view(-1, H), 2 * w.g_new).view(B, H, H)
        u.add_((mean @ w.g_new_in).unsqueeze(1), alpha=2).sigmoid_()
        return Turn(a, weights, mean, tau, gates, torch.add(self.minus, u, alpha=2, out=u))

    def turned(self, turn: Turn) -> Tensor:
        """a after its step."""
        return torch.lerp(turn.a, turn.u, 1 - self.stays(turn))

    def stays(self, turn: Turn) -> Tensor:
        """What is left of a − u after its step."""
        return torch.exp(turn.gates[..., self.H:] * -turn.tau.unsqueeze(-1))


def _bytes(segment: Segment) -> float:
    tensors = [segment.h, segment.gates, segment.u, *([] if segment.turn is None else [segment.s])]
    if segment.turn is not None:
        tensors += [segment.turn.a, segment.turn.weights, segment.turn.gates, segment.turn.u]
    return float(sum(t.nbytes for t in tensors))
