"""Solve with adaptive steps per sample; the whole batch is still stepped at once.

Every sample has its own time, step size and error norm, so its result does not depend on the rest of the batch. A
sample whose step is rejected, or that has reached the end, keeps its state. Each step waits for the device once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from acenode.errors import RAISE_LIMIT, SolveError
from acenode.ode.diagnosis import share_of_tolerance, step_failure
from acenode.ode.options import Solver
from acenode.ode.runge_kutta import Evaluations, State, VectorField, combine, dense_weights, slopes_of
from acenode.ode.step_size import first_step_size, next_step_size, trial_step_size
from acenode.ode.tableaus import TABLEAUS, Tableau


class OutputPerSample:
    """Collect the first block at output times (B, T) of every sample's own, from each step as it is accepted."""

    def __init__(self, times: Tensor, h: Tensor) -> None:
        self.times = times.double()
        self.states = h.unsqueeze(1).expand(-1, times.shape[1], *h.shape[1:])  # h(t_0) until a step covers the time

    def add_step(self, t: Tensor, dt: Tensor, accepted: Tensor, last: Tensor, h: Tensor, ks: list[State],
                 tableau: Tableau) -> None:
        """Interpolate at the times that a step covers; the last step also covers the times after its end.

        Args:
            t: (B,) where every sample's step starts.
            dt: (B,) the step sizes.
            accepted: (B,) which samples took the step.
            last: (B,) which samples reach the end with it.
            h: (B, ...) the first block at t.
            ks: the stages of the step.
            tableau: the method.
        """
        start, end = t[:, None], (t + dt)[:, None]  # the next step starts at exactly this end, so no time is missed
        covered = accepted[:, None] & (self.times > start) & ((self.times <= end) | last[:, None])  # (B, T)
        x = torch.where(covered, (self.times - start) / dt[:, None], 0.0)
        weights = [w * dt[:, None] for w in dense_weights(x, tableau, len(ks))]
        W = torch.stack([torch.ones_like(x), *weights], dim=-1).to(h.dtype)  # (B, T, 1+stages)
        stages = torch.stack([h, *(k[0] for k in ks)], dim=1).flatten(2)  # (B, 1+stages, d)
        inside = torch.bmm(W, stages).unflatten(-1, h.shape[1:])
        self.states = torch.where(covered.view(*covered.shape, *[1] * (h.dim() - 1)), inside, self.states)


def solve_per_sample(field: VectorField, y: State, times: list[float], solver: Solver, cost: Evaluations,
                     output: OutputPerSample | None = None, costs: Sequence[Evaluations] | None = None) -> State:
    """Return every block (T, B, ...) at the times.

    Args:
        field: gets t as (B, 1, ...), one time per sample.
        y: blocks (B, ...) at times[0].
        times: increasing or decreasing.
        solver: an adaptive method and its tolerances.
        cost: counts evaluations of the whole batch and steps that any sample took.
        output: collects states at further times of every sample's own.
        costs: one a sample; each counts what the sample would have cost if it had been solved alone.

    Raises:
        SolveError: for some sample the state or its slope is not finite, the step size underflows, or `max_steps` are
            not enough.
    """
    tableau, rtol, atol = TABLEAUS[solver.method], solver.rtol, solver.atol
    assert tableau.error is not None
    start, end = times[0], times[-1]
    sign = math.copysign(1.0, end - start)
    h = y[0]

    def slope(t: Tensor, y: State) -> State:
        cost.forward += 1
        return slopes_of(field, _per_sample(t.to(h.dtype), h), y)

    if not all(bool(torch.isfinite(b).all()) for b in y):
        raise SolveError("the initial state is NaN or infinite", start, 0.0, "check what the ODE is started from")
    t = torch.full((h.shape[0],), start, dtype=torch.float64, device=h.device)  # (B,), as all that is per sample
    k1 = slope(t, y)
    slope_norm = _error_ratio(k1, y, y, rtol, atol)
    h0 = trial_step_size(_error_ratio(y, y, y, rtol, atol), slope_norm)
    k2 = slope(t + sign * h0, _move(y, sign * h0, k1))
    change_norm = _error_ratio(tuple(b - a for a, b in zip(k1, k2, strict=True)), y, y, rtol, atol)
    size = first_step_size(h0, slope_norm, change_norm, tableau.order)
    for each in costs or ():
        each.forward += 2
    rows = [y] + [tuple(torch.zeros_like(b) for b in y) for _ in times[1:]]
    ratio, previous = torch.zeros_like(t), k1  # the error of the last step
    inner = torch.tensor(times[1:-1], dtype=t.dtype, device=t.device)[:, None]  # (T-2, 1)

    for _ in range(solver.max_steps):
        rest = sign * (end - t)
        last = ~(size < rest)
        dt = sign * torch.where(last, rest, size)
        ks = [k1]
        for c, row in zip(tableau.c, tableau.a, strict=True):
            ks.append(slope(t + c * dt, _move(y, dt, _weighted_sum(row, ks))))
        y1 = _move(y, dt, _weighted_sum(tableau.b, ks))
        with torch.no_grad():
            error = _move(tuple(torch.zeros_like(b) for b in y), dt, _weighted_sum(tableau.error, ks))
        if not tableau.fsal:
            ks.append(slope(t + dt, y1))
        active = rest > 0
        stuck = active & (~torch.isfinite(size) | (t + dt == t))
        broken = stuck & ~(torch.isfinite(size) & torch.isfinite(ratio))
        ratio = _error_ratio(error, y, y1, rtol, atol)
        accepted = active & (ratio <= 1)  # False for NaN
        mean_dt = torch.where(accepted, dt, 0).sum() / accepted.sum().clamp(min=1)
        finished = ~(active & ~(accepted & last)).any()
        covered = accepted & (sign * (inner - t) > 0) & ((sign * (inner - (t + dt)) <= 0) | last)  # (T-2, B)
        flags = torch.stack((stuck.any().double(), accepted.any().double(), mean_dt, finished.double()))
        any_stuck, any_accepted, mean_size, all_finished, *any_covered = torch.cat(
            (flags, covered.any(1).double())).tolist()
        if any_stuck:
            i = int(stuck.nonzero()[0])
            y_i, share = tuple(b[i:i + 1] for b in y), tuple(e[i:i + 1] for e in previous)
            raise step_failure(bool(broken.any()), float(t[i]), float(dt[i]),
                               share_of_tolerance(share, y_i, rtol, atol), cost, sample=i)
        for n, s in enumerate(times[1:-1]):
            if any_covered[n]:
                x = torch.where(covered[n], (s - t) / dt, 0)
                inside = _move(y, dt, _weighted_sum(dense_weights(x, tableau, len(ks)), ks))
                rows[n + 1] = _choose(covered[n], inside, rows[n + 1])
        if output is not None:
            output.add_step(t, dt, accepted, last, y[0], ks, tableau)
        previous = error
        y, k1 = _choose(accepted, y1, y), _choose(accepted, ks[-1], k1)
        t = torch.where(accepted, torch.where(last, end, t + dt), t)
        if any_accepted:
            cost.step_sizes.append(mean_size)
        else:
            cost.rejected += 1
        if costs is not None:
            _count_step(costs, active, accepted, dt, tableau)
        if all_finished:
            return tuple(torch.stack(block) for block in zip(*rows[:-1], y, strict=True))
        size = next_step_size(dt, ratio, accepted, tableau.order)
    raise SolveError(f"the step limit of {solver.max_steps} was reached", float((sign * t).min() * sign),
                     sign * float(size[sign * (end - t) > 0].min()), RAISE_LIMIT)


def _count_step(costs: Sequence[Evaluations], active: Tensor, accepted: Tensor, dt: Tensor, tableau: Tableau) -> None:
    """Count a step for the samples that had not reached the end before it."""
    for each, is_active, is_accepted, size in zip(costs, active.tolist(), accepted.tolist(), dt.tolist(), strict=True):
        if not is_active:
            continue
        each.forward += len(tableau.a)
        if not is_accepted:
            each.rejected += 1
            continue
        each.step_sizes.append(size)
        each.forward += not tableau.fsal  # the slope at the end of the step


def _per_sample(v: Tensor, like: Tensor) -> Tensor:
    """Shape one number per sample, (B,), to broadcast against a block (B, ...)."""
    return v.view(-1, *[1] * (like.dim() - 1))


def _move(y: State, dt: Tensor, k: State) -> State:
    """Return y + dt k, dt (B,)."""
    return tuple(b + _per_sample(dt.to(b.dtype), b) * s for b, s in zip(y, k, strict=True))


def _weighted_sum(weights: list[Tensor] | tuple[float, ...], ks: list[State]) -> State:
    """Return Σ w_i k_i; a weight is a number, or (B,)."""
    if isinstance(weights, tuple):
        return combine(tuple(torch.zeros_like(b) for b in ks[0]), weights, ks)
    total = tuple(torch.zeros_like(b) for b in ks[0])
    for w, k in zip(weights, ks, strict=True):
        total = _move(total, w, k)
    return total


def _choose(mask: Tensor, a: State, b: State) -> State:
    """Return a's samples where the mask (B,) is true, else b's."""
    return tuple(torch.where(_per_sample(mask, x), x, y) for x, y in zip(a, b, strict=True))


@torch.no_grad()
def _error_ratio(error: State, y0: State, y1: State, rtol: float, atol: float) -> Tensor:
    """Return every sample's error in units of the tolerance, (B,): the largest of its blocks' root mean squares."""
    ratios = [(e / torch.maximum(u.abs(), v.abs()).mul_(rtol).add_(atol)).flatten(1).square().mean(1).sqrt()
              for e, u, v in zip(error, y0, y1, strict=True)]
    return torch.stack(ratios).amax(0).double()
