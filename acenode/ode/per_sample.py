"""Adaptive steps of each sample's own, the whole batch stepped at once.

Every sample has its time, its step size and its error norm, so what it becomes does not depend on its batch mates. A
sample whose step is refused, or that has arrived, is carried along unchanged. One read of the device a pass.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from acenode.errors import LOOSEN, RAISE_LIMIT, SolveError
from acenode.ode.native import VectorField
from acenode.ode.options import Solver
from acenode.ode.runge_kutta import GROW, SAFETY, SHRINK, Evaluations, State, combine, dense_weights
from acenode.ode.tableaus import TABLEAUS, Tableau


class OwnTimes:
    """The first block at times of every sample's own, (B, T), taken from each step as it is accepted."""

    def __init__(self, times: Tensor, h: Tensor) -> None:
        self.times, self.h0 = times.double(), h
        self.rows = h.unsqueeze(1).expand(-1, times.shape[1], *h.shape[1:])  # at the start until a step covers it

    def take(self, t: Tensor, dt: Tensor, took: Tensor, last: Tensor, h: Tensor, ks: list[State],
             tableau: Tableau) -> None:
        """From a step that the samples `took`; what lies after the last one is answered by that one."""
        start, end = t[:, None], (t + dt)[:, None]  # the next step starts at just this end: no time falls between
        here = took[:, None] & (self.times > start) & ((self.times <= end) | last[:, None])
        x = torch.where(here, (self.times - start) / dt[:, None], 0.0)
        weights = [w * dt[:, None] for w in dense_weights(x, tableau, len(ks))]
        W = torch.stack([torch.ones_like(x), *weights], dim=-1).to(h.dtype)  # (B, T, 1+stages)
        stages = torch.stack([h, *(k[0] for k in ks)], dim=1).flatten(2)  # (B, 1+stages, d)
        inside = torch.bmm(W, stages).unflatten(-1, h.shape[1:])
        self.rows = torch.where(here.view(*here.shape, *[1] * (h.dim() - 1)), inside, self.rows)


def solve_per_sample(field: VectorField, y: State, times: list[float], solver: Solver, cost: Evaluations,
                     own: OwnTimes | None = None) -> State:
    """The state at the times; the first axis of every block is the batch. `cost` counts evaluations of the batch."""
    tableau, rtol, atol = TABLEAUS[solver.method], solver.rtol, solver.atol
    assert tableau.error is not None
    start, end = times[0], times[-1]
    sign = math.copysign(1.0, end - start)
    h = y[0]

    def rate(t: Tensor, y: State) -> State:
        cost.forward += 1
        return tuple(field(_along(t.to(h.dtype), h), y))

    if not all(bool(torch.isfinite(b).all()) for b in y):
        raise SolveError("the initial state is NaN or infinite", start, 0.0, "check what the ODE is started from")
    t = torch.full((h.shape[0],), start, dtype=torch.float64, device=h.device)
    k1 = rate(t, y)
    h0, d1 = _guess(y, k1, rtol, atol)
    k2 = rate(t + sign * h0, _move(y, sign * h0, k1))
    size = _first_size(y, k1, k2, h0, d1, tableau.order, rtol, atol)
    rows = [y] + [tuple(torch.zeros_like(b) for b in y) for _ in times[1:]]
    ratio = torch.zeros_like(t)
    inner = torch.tensor(times[1:-1], dtype=t.dtype, device=t.device)[:, None]  # (times between, 1)

    for _ in range(solver.max_steps):
        rest = sign * (end - t)
        last = ~(size < rest)
        dt = sign * torch.where(last, rest, size)
        ks = [k1]
        for c, row in zip(tableau.c, tableau.a, strict=True):
            ks.append(rate(t + c * dt, _move(y, dt, _slope(row, ks))))
        y1 = _move(y, dt, _slope(tableau.b, ks))
        with torch.no_grad():
            error = _move(tuple(torch.zeros_like(b) for b in y), dt, _slope(tableau.error, ks))
        if not tableau.fsal:
            ks.append(rate(t + dt, y1))
        active = rest > 0
        stuck = active & (~torch.isfinite(size) | (t + dt == t))
        broken = stuck & ~(torch.isfinite(size) & torch.isfinite(ratio))
        ratio = _ratio(error, y, y1, rtol, atol)
        accepted = active & (ratio <= 1)  # False for NaN
        mean = torch.where(accepted, dt, 0).sum() / accepted.sum().clamp(min=1)
        over = ~(active & ~(accepted & last)).any()
        here = accepted & (sign * (inner - t) > 0) & ((sign * (inner - (t + dt)) <= 0) | last)  # (times between, B)
        facts = torch.stack((stuck.any().double(), accepted.any().double(), mean, over.double()))
        seen = torch.cat((facts, here.any(1).double())).tolist()
        if seen[0]:
            i = int(stuck.nonzero()[0])
            reason = "the field gave NaN or infinity" if bool(broken.any()) else "underflow in dt"
            raise SolveError(reason, float(t[i]), float(dt[i]), LOOSEN)
        for n, s in enumerate(times[1:-1]):
            if seen[4 + n]:
                x = torch.where(here[n], (s - t) / dt, 0)
                inside = _move(y, dt, _slope(dense_weights(x, tableau, len(ks)), ks))
                rows[n + 1] = _choose(here[n], inside, rows[n + 1])
        if own is not None:
            own.take(t, dt, accepted, last, y[0], ks, tableau)
        y, k1 = _choose(accepted, y1, y), _choose(accepted, ks[-1], k1)
        t = torch.where(accepted, torch.where(last, end, t + dt), t)
        if seen[1]:
            cost.step_sizes.append(seen[2])
        else:
            cost.rejected += 1
        if seen[3]:
            return tuple(torch.stack(block) for block in zip(*rows[:-1], y, strict=True))
        size = _next_size(dt.abs(), ratio, accepted, tableau.order)
    raise SolveError(f"the step limit of {solver.max_steps} was reached", float((sign * t).min() * sign),
                     sign * float(size[sign * (end - t) > 0].min()),
                     RAISE_LIMIT)


def _along(v: Tensor, like: Tensor) -> Tensor:
    """One number a sample, shaped to broadcast against a block."""
    return v.view(-1, *[1] * (like.dim() - 1))


def _move(y: State, dt: Tensor, k: State) -> State:
    return tuple(b + _along(dt.to(b.dtype), b) * s for b, s in zip(y, k, strict=True))


def _slope(weights: list[Tensor] | tuple[float, ...], ks: list[State]) -> State:
    """Σ w_i k_i, each w a number or one a sample."""
    if isinstance(weights, tuple):
        return combine(tuple(torch.zeros_like(b) for b in ks[0]), weights, ks)
    total = tuple(torch.zeros_like(b) for b in ks[0])
    for w, k in zip(weights, ks, strict=True):
        total = _move(total, w, k)
    return total


def _choose(mask: Tensor, a: State, b: State) -> State:
    return tuple(torch.where(_along(mask, x), x, y) for x, y in zip(a, b, strict=True))


@torch.no_grad()
def _ratio(error: State, y0: State, y1: State, rtol: float, atol: float) -> Tensor:
    """Every sample's error in units of the tolerance: the larger of its blocks' root mean squares."""
    ratios = [(e / torch.maximum(u.abs(), v.abs()).mul_(rtol).add_(atol)).flatten(1).square().mean(1).sqrt()
              for e, u, v in zip(error, y0, y1, strict=True)]
    return torch.stack(ratios).amax(0).double()


@torch.no_grad()
def _guess(y: State, k1: State, rtol: float, atol: float) -> tuple[Tensor, Tensor]:
    d0, d1 = _ratio(y, y, y, rtol, atol), _ratio(k1, y, y, rtol, atol)
    return torch.where(torch.minimum(d0, d1) < 1e-5, 1e-6, 0.01 * d0 / d1), d1


@torch.no_grad()
def _first_size(y: State, k1: State, k2: State, h0: Tensor, d1: Tensor, order: int, rtol: float,
                atol: float) -> Tensor:
    """A first step size (Hairer, Nørsett & Wanner, Solving ODEs I, II.4)."""
    d2 = _ratio(tuple(b - a for a, b in zip(k1, k2, strict=True)), y, y, rtol, atol) / h0
    steepest = torch.maximum(d1, d2)
    h1 = torch.where(steepest <= 1e-15, (h0 * 1e-3).clamp(min=1e-6), (0.01 / steepest) ** (1 / order))
    return torch.minimum(100 * h0, h1)


@torch.no_grad()
def _next_size(dt: Tensor, ratio: Tensor, accepted: Tensor, order: int) -> Tensor:
    least = torch.where(accepted, 1.0, SHRINK)
    factor = torch.maximum(SAFETY * ratio.clamp(min=1e-30) ** (-1 / order), least).clamp(max=GROW)
    return dt * torch.where(torch.isfinite(ratio), factor, SHRINK)
