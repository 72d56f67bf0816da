"""Evaluate one solve at different times for every sample: the dense output of many steps in one matrix product."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.polynomial import Polynomial
from torch import Tensor

from acenode.device.gpu import send
from acenode.errors import UserError
from acenode.ode.options import Solver
from acenode.ode.runge_kutta import Evaluations, State, Step, VectorField, dense_weights, with_end_slope
from acenode.ode.runge_kutta_solve import OutputPerSample, solve_per_sample
from acenode.ode.solve import checked_state, integrate, transforms_explained
from acenode.ode.stepping import Attempt, CountedField, steps_of
from acenode.ode.tableaus import TABLEAUS, Tableau

SPAN_TOLERANCE = 1e-5  # how far rounded times may leave the span, relative to its largest number
STEPS_PER_PRODUCT = 16  # bounds the memory of the weights


@dataclass(frozen=True)
class SampledSolution:
    """A solve evaluated at every sample's own times.

    `h` is the state's first block at those times, (B, T, ...); `end` has every block at the end of the span.
    """

    h: Tensor
    end: State
    evaluations: Evaluations


def solve_at(field: VectorField, state: Sequence[Tensor], span: tuple[float, float], times: Tensor,
             solver: Solver | None = None, *, per_sample: bool = False,
             attempt: Attempt | None = None) -> SampledSolution:
    """Integrate over the span and evaluate the first block at times (B, T) within it, in any order.

    Our own Runge–Kutta steps are interpolated for all times of all samples together. With gradient "adjoint" or
    "checkpointed", or with engine "reference", an ordinary solve returns the states at all distinct times instead.

    The blocks of the state are (B, ...) at the start of the span. With `per_sample` every sample has its own adaptive
    steps, if the solver allows it; `attempt` computes the adaptive steps of the whole batch, as in `steps_of`.

    Raises:
        UserError: the span runs backward, or the times have no row per sample, leave the span, or need a gradient.
        SolveError: the solve failed.
    """
    solver = solver or Solver()
    y, cost = checked_state(state), Evaluations()
    start, end = (float(t) for t in span)
    if not start < end:
        raise UserError(f"the span must go forward in time, not from {start:g} to {end:g}")
    check_rows(times, y[0].shape[0])
    with transforms_explained(solver):
        _check_within(times, start, end)
        if per_sample and solver.steps_per_sample:
            output = OutputPerSample(times, y[0])
            blocks = solve_per_sample(field, y, [start, end], solver, cost, output)
            return SampledSolution(output.states, tuple(b[-1] for b in blocks), cost)
        if solver.native and (solver.gradient == "backprop" or not torch.is_grad_enabled()):
            tableau, F = TABLEAUS[solver.method], CountedField(field, y, cost)
            chosen = solver.step_size is not None or tableau.adaptive  # others step from one time to the next
            grid = [start, end] if chosen else _distinct_times(start, end, times)
            steps = [with_end_slope(F, tableau, s) for s in steps_of(F, y, grid, solver, attempt)]
            return SampledSolution(_interpolate(steps, tableau, times), steps[-1].y1, cost)
        distinct = _distinct_times(start, end, times)
        solution = integrate(field, y, distinct, solver)
        ends = torch.tensor(distinct, dtype=torch.float64, device=times.device)
        index = torch.searchsorted(ends, times.double().contiguous()).clamp(max=len(distinct) - 1)
        states = solution.states[0].transpose(0, 1)  # (B, T_distinct, ...)
        picked = states[torch.arange(len(states), device=times.device)[:, None], index]
        return SampledSolution(picked, tuple(b[-1] for b in solution.states), solution.evaluations)


def interpolate_between(grid: Sequence[float], h: Tensor, slopes: Tensor, times: Tensor) -> Tensor:
    """Return h at every sample's own times (B, T), by cubics between the ends of steps.

    Steps end at the N + 1 times of the grid, where h is (N + 1, B, ...) and `slopes` is dh/dt.
    """
    with torch.no_grad():
        ends = send([torch.tensor(grid, dtype=torch.float64)], times.device)[0]
        index = (torch.searchsorted(ends, times.double().contiguous()) - 1).clamp(0, len(grid) - 2)  # of the step
        dt = ends[index + 1] - ends[index]
        x = (times - ends[index]) / dt
        square = x * x
        end = square * (3 - 2 * x)
        W = torch.zeros(*times.shape, 2, len(grid), dtype=torch.float64, device=times.device)
        W[..., 0, :].scatter_(-1, index.unsqueeze(-1), (1 - end).unsqueeze(-1))
        W[..., 0, :].scatter_(-1, index.unsqueeze(-1) + 1, end.unsqueeze(-1))
        W[..., 1, :].scatter_(-1, index.unsqueeze(-1), (dt * x * (1 - x) ** 2).unsqueeze(-1))
        W[..., 1, :].scatter_(-1, index.unsqueeze(-1) + 1, (dt * square * (x - 1)).unsqueeze(-1))
    ends_of_steps = torch.cat((h, slopes)).flatten(2).transpose(0, 1)  # (B, 2 (N + 1), d)
    return torch.bmm(W.flatten(2).to(h.dtype), ends_of_steps).unflatten(-1, h.shape[2:])


def check_rows(times: Tensor, samples: int) -> None:
    if times.dim() != 2 or len(times) != samples:
        raise UserError(f"each of {samples} samples needs a row of times, ({samples}, T), not {tuple(times.shape)}")


def _check_within(times: Tensor, start: float, end: float) -> None:
    """Raise a UserError for times outside the span, where the solution is not known, and for times with a gradient."""
    if times.requires_grad:
        raise UserError("h cannot be differentiated with respect to the times: detach them")
    if not times.numel():
        return
    first, last = torch.stack(torch.aminmax(times)).tolist()
    margin = max(SPAN_TOLERANCE, torch.finfo(times.dtype).eps) * max(abs(start), abs(end), end - start)
    if not (start - margin <= first and last <= end + margin):  # False for NaN
        raise UserError(f"times from {first:g} to {last:g} leave the span from {start:g} to {end:g}: pass "
                        f"span=({min(start, first):g}, {max(end, last):g})")


def _interpolate(steps: list[Step], tableau: Tableau, times: Tensor) -> Tensor:
    """Return y0 + Σ dt w_i(x) k_i of the step that contains each time, (B, T, ...)."""
    h, parts = steps[0].y0[0], []
    for first in range(0, len(steps), STEPS_PER_PRODUCT):
        chosen = steps[first:first + STEPS_PER_PRODUCT]
        with torch.no_grad():
            W = _weights(chosen, tableau, times, chosen[0] is steps[0], chosen[-1] is steps[-1])
        blocks = [b for step in chosen for b in (step.y0[0], *(k[0] for k in step.ks))]
        stages = torch.stack(blocks, dim=1).flatten(2)  # (B, S·(1+stages), d)
        parts.append(torch.bmm(W.to(h.dtype), stages))
    return (parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)).unflatten(-1, h.shape[1:])


def _weights(steps: list[Step], tableau: Tableau, times: Tensor, first: bool, last: bool) -> Tensor:
    """Return the weights of y0 and each stage of S steps at the times, (B, T, S·(1+stages)), zero outside a step.

    With `first`, the first step also covers earlier times; with `last`, the last step also covers later times.
    """
    t, dt = [s.t for s in steps], [s.dt for s in steps]
    begin, end = [-math.inf if first else t[0], *t[1:]], [*t[1:], math.inf if last else t[-1] + dt[-1]]
    scale = [[1.0, *[d] * len(steps[0].ks)] for d in dt]
    numbers = [torch.tensor(x, dtype=torch.float64) for x in (t, dt, begin, end, scale)]
    t_, dt_, begin_, end_, scale_, basis = send([*numbers, _polynomials(tableau, len(steps[0].ks))], times.device)
    s = times.double().unsqueeze(-1)  # (B, T, 1)
    x = (s - t_) / dt_  # (B, T, S)
    square = x * x
    powers = torch.stack((torch.ones_like(x), x, square, square * x, square * square), -1)
    weights = (powers @ basis) * scale_  # (B, T, S, 1+stages)
    inside = (s > begin_) & (s <= end_)
    return torch.where(inside.unsqueeze(-1), weights, 0.0).flatten(2).to(times.dtype)


@cache
def _polynomials(tableau: Tableau, stages: int) -> Tensor:
    """Return the coefficients of 1, x, …, x⁴ in the weights of y0 and each stage, (5, 1+stages)."""
    weights = [Polynomial([1.0]), *dense_weights(Polynomial([0.0, 1.0]), tableau, stages)]
    rows = [w.coef if isinstance(w, Polynomial) else np.array([w]) for w in weights]
    return torch.from_numpy(np.stack([np.pad(row, (0, 5 - len(row))) for row in rows], 1))


def _distinct_times(start: float, end: float, times: Tensor) -> list[float]:
    inner = torch.unique(times.double()).tolist()
    return [start, *(t for t in inner if start < t < end), end]
