"""The state at times of every sample's own, from one solve: the dense output of many steps in one product."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.polynomial import Polynomial
from torch import Tensor

from acenode.errors import UserError
from acenode.ode.native import Counted, VectorField, steps_of
from acenode.ode.options import Solver
from acenode.ode.per_sample import OwnTimes, solve_per_sample
from acenode.ode.runge_kutta import Evaluations, State, Step, dense_weights, with_end_slope
from acenode.ode.solve import solve
from acenode.ode.tableaus import TABLEAUS, Tableau
from acenode.transfer import send

TOGETHER = 16  # steps in one product, which bounds what the weights take


@dataclass(frozen=True)
class Answers:
    """The state's first block at every sample's times, (B, T, ...), all blocks at the end, and what they cost."""

    h: Tensor
    end: State
    evaluations: Evaluations


def solve_at(field: VectorField, state: Sequence[Tensor], span: tuple[float, float], times: Tensor,
             solver: Solver | None = None, *, per_sample: bool = False) -> Answers:
    """Integrate over `span` and return the first block at `times` (B, T), which lie within it, in any order.

    Native steps answer for all times of all samples together. Where the gradient asks for something else, every
    distinct time is a time of an ordinary solve.
    """
    solver = solver or Solver()
    y, cost = tuple(state), Evaluations()
    start, end = (float(t) for t in span)
    if not start < end:
        raise UserError(f"solve_at goes forward in time, not from {start:g} to {end:g}")
    if times.shape[:1] != y[0].shape[:1] or times.dim() != 2:
        raise UserError(f"solve_at needs a row of times for each of {y[0].shape[0]} samples, not {tuple(times.shape)}")
    if per_sample and solver.own_steps:
        own = OwnTimes(times, y[0])
        blocks = solve_per_sample(field, y, [start, end], solver, cost, own)
        return Answers(own.rows, tuple(b[-1] for b in blocks), cost)
    if (solver.native and solver.gradient == "backprop") or (solver.native and not torch.is_grad_enabled()):
        tableau, F = TABLEAUS[solver.method], Counted(field, y, cost)
        grid = _coarse(start, end, times, solver)
        steps = [with_end_slope(F, tableau, s) for s in steps_of(F, tableau, y, grid, solver)]
        return Answers(_combine(steps, tableau, times), steps[-1].y1, cost)
    return _by_union(field, y, start, end, times, solver)


def _coarse(start: float, end: float, times: Tensor, solver: Solver) -> list[float]:
    """Where a fixed-step method without a step size steps: at the distinct times, like an ordinary solve."""
    if solver.step_size is not None or TABLEAUS[solver.method].adaptive:
        return [start, end]
    return _union(start, end, times)


def _combine(steps: list[Step], tableau: Tableau, times: Tensor) -> Tensor:
    """y0 + Σ dt w_i(x) k_i of the step that holds each time, as products with the stages of many steps."""
    h, parts = steps[0].y0[0], []
    for first in range(0, len(steps), TOGETHER):
        chosen = steps[first:first + TOGETHER]
        with torch.no_grad():
            W = _weights(chosen, tableau, times, chosen[0] is steps[0], chosen[-1] is steps[-1])
        blocks = [b for step in chosen for b in (step.y0[0], *(k[0] for k in step.ks))]
        stages = torch.stack(blocks, dim=1).flatten(2)  # (B, S·(1+stages), d)
        parts.append(torch.bmm(W.to(h.dtype), stages))
    return (parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)).unflatten(-1, h.shape[1:])


def _weights(steps: list[Step], tableau: Tableau, times: Tensor, first: bool, last: bool) -> Tensor:
    """What y0 and each stage of each step add at the times it holds, (B, T, S·(1+stages)).

    A time before the first step of all is held by that one, a time after the last by that.
    """
    t, dt = [s.t for s in steps], [s.dt for s in steps]
    begin, end = [-math.inf if first else t[0], *t[1:]], [*t[1:], math.inf if last else t[-1] + dt[-1]]
    scale = [[1.0, *[d] * len(steps[0].ks)] for d in dt]
    told = [torch.tensor(x, dtype=torch.float64) for x in (t, dt, begin, end, scale)]
    t_, dt_, begin_, end_, scale_, basis = send([*told, _polynomials(tableau, len(steps[0].ks))], times.device)
    when = times.double().unsqueeze(-1)
    x = (when - t_) / dt_  # (B, T, S)
    square = x * x
    powers = torch.stack((torch.ones_like(x), x, square, square * x, square * square), -1)
    own = (powers @ basis) * scale_  # (B, T, S, 1+stages)
    here = (when > begin_) & (when <= end_)
    return torch.where(here.unsqueeze(-1), own, 0.0).flatten(2).to(times.dtype)


@cache
def _polynomials(tableau: Tableau, stages: int) -> Tensor:
    """The coefficients of 1, x, …, x⁴ in what y0 and each stage add, (5, 1+stages)."""
    weights = [Polynomial([1.0]), *dense_weights(Polynomial([0.0, 1.0]), tableau, stages)]
    rows = [w.coef if isinstance(w, Polynomial) else np.array([w]) for w in weights]
    return torch.from_numpy(np.stack([np.pad(row, (0, 5 - len(row))) for row in rows], 1))


def _union(start: float, end: float, times: Tensor) -> list[float]:
    inner = torch.unique(times.double()).tolist()
    return [start, *(t for t in inner if start < t < end), end]


def _by_union(field: VectorField, y: State, start: float, end: float, times: Tensor, solver: Solver) -> Answers:
    union = _union(start, end, times)
    solution = solve(field, y, union, solver)
    grid = torch.tensor(union, dtype=torch.float64, device=times.device)
    index = torch.searchsorted(grid, times.double().contiguous()).clamp(max=len(union) - 1)
    rows = solution.states[0].transpose(0, 1)  # (B, T_union, ...)
    picked = rows[torch.arange(len(rows), device=times.device)[:, None], index]
    return Answers(picked, tuple(b[-1] for b in solution.states), solution.evaluations)
