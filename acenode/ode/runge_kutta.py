"""Explicit Runge–Kutta steps over a tuple of tensors: one step, its dense output, and the step-size control.

The step sizes are Python numbers, so a step is a fixed sequence of tensor operations: it can be recorded by
autograd, or replayed from its start to be differentiated later (gradient "checkpointed").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from acenode.errors import LOOSEN, RAISE_LIMIT, SMALLER_STEPS, SolveError
from acenode.ode.tableaus import Tableau

State = tuple[Tensor, ...]
Field = Callable[[float, State], State]

SAFETY, GROW, SHRINK = 0.9, 10.0, 0.2


@dataclass
class Evaluations:
    """What a solve cost: evaluations of the field forward and backward, and the steps taken."""

    forward: int = 0
    backward: int = 0
    rejected: int = 0
    step_sizes: list[float] = field(default_factory=list)

    @property
    def accepted(self) -> int:
        return len(self.step_sizes)


class _Combine(torch.autograd.Function):
    """y + Σ w_i k_i in one pass a term and one node of the graph; linear, so nothing is saved."""

    @staticmethod
    def forward(ctx: Any, weights: Sequence[float], y: Tensor, *ks: Tensor) -> Tensor:
        ctx.weights = weights
        out = torch.add(y, ks[0], alpha=weights[0])
        for w, k in zip(weights[1:], ks[1:], strict=True):
            out.add_(k, alpha=w)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        return None, grad, *(grad * w if needed else None
                             for w, needed in zip(ctx.weights, ctx.needs_input_grad[2:], strict=True))


def combine(y: State, weights: Sequence[float], ks: Sequence[State]) -> State:
    """y + Σ w_i k_i for every block of the state, the zero weights left out."""
    used = [i for i, w in enumerate(weights) if w != 0]
    if not used:
        return y
    chosen = tuple(weights[i] for i in used)
    return tuple(_Combine.apply(chosen, y[n], *(ks[i][n] for i in used)) for n in range(len(y)))


def dense_weights(x: Any, tableau: Tableau, stages: int) -> list[Any]:
    """What each stage adds at the fraction x of a step, a number or a tensor of them."""
    if tableau.mid is not None:  # quartic through y0, y1, F0, F1 and the midpoint
        end, mid = x**2 * (-8 * x**2 + 14 * x - 5), 16 * x**2 * (x - 1) ** 2
        first, last = x * (1 + x * (-4 + x * (5 - 2 * x))), x**2 * (1 + x * (2 * x - 3))
    else:  # cubic Hermite
        end, mid = x**2 * (3 - 2 * x), 0.0
        first, last = x * (1 - x) ** 2, x**2 * (x - 1)
    weights: list[Any] = [0.0] * stages
    for i, b in enumerate(tableau.b):
        weights[i] += end * b + (mid * tableau.mid[i] if tableau.mid is not None else 0.0)
    weights[0] += first
    weights[-1] += last
    return weights


@dataclass(frozen=True)
class Step:
    """One step of a method: where it started, its stages and where it ended."""

    t: float
    dt: float
    y0: State
    ks: list[State]
    y1: State

    def dense(self, t: float, tableau: Tableau) -> State:
        """The state at t inside the step. Every interpolant is y0 plus a combination of the stages."""
        weights = dense_weights((t - self.t) / self.dt, tableau, len(self.ks))
        return combine(self.y0, [self.dt * w for w in weights], self.ks)


def take_step(F: Field, tableau: Tableau, t: float, dt: float, y: State, k1: State | None = None) -> Step:
    """One Runge–Kutta step; `k1` is F(t, y) where it is known already."""
    ks = [F(t, y) if k1 is None else k1]
    yi = y
    for c, row in zip(tableau.c, tableau.a, strict=True):
        yi = combine(y, [dt * w for w in row], ks)
        ks.append(F(t + c * dt, yi))
    y1 = yi if tableau.fsal else combine(y, [dt * w for w in tableau.b], ks)
    return Step(t, dt, y, ks, y1)


def with_end_slope(F: Field, tableau: Tableau, step: Step) -> Step:
    """The step with F at its end as the last stage, which dense output needs and some methods lack."""
    if tableau.fsal:
        return step
    return Step(step.t, step.dt, step.y0, [*step.ks, F(step.t + step.dt, step.y1)], step.y1)


def rms(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x) / math.sqrt(max(x.numel(), 1))


@torch.no_grad()
def scaled_norm(error: State, y0: State, y1: State, rtol: float, atol: float) -> float:
    """The larger of the blocks' root-mean-square errors, in units of the tolerance."""
    ratios = [rms(e / torch.maximum(u.abs(), v.abs()).mul_(rtol).add_(atol))
              for e, u, v in zip(error, y0, y1, strict=True)]
    return float(torch.stack(ratios).max())  # the one read of the device a step needs


@torch.no_grad()
def first_step(F: Field, t: float, y: State, k1: State, order: int, rtol: float, atol: float, sign: float) -> float:
    """A first step size (Hairer, Nørsett & Wanner, Solving ODEs I, II.4)."""
    d0 = scaled_norm(y, y, y, rtol, atol)
    d1 = scaled_norm(k1, y, y, rtol, atol)
    h0 = 1e-6 if min(d0, d1) < 1e-5 else 0.01 * d0 / d1
    if not 0 < h0 < math.inf:  # 0 where the slope is infinite
        return math.nan
    k2 = F(t + sign * h0, combine(y, [sign * h0], [k1]))
    d2 = scaled_norm(tuple(b - a for a, b in zip(k1, k2, strict=True)), y, y, rtol, atol) / h0
    steepest = max(d1, d2)
    h1 = max(1e-6, h0 * 1e-3) if steepest <= 1e-15 else (0.01 / steepest) ** (1 / order)
    return min(100 * h0, h1)


def adaptive_steps(F: Field, tableau: Tableau, y: State, t0: float, t1: float, *, rtol: float, atol: float,
                   max_steps: int, cost: Evaluations) -> Iterator[Step]:
    """Accepted steps from t0 to exactly t1, the size controlled by the embedded error estimate."""
    assert tableau.error is not None
    sign, t = math.copysign(1.0, t1 - t0), t0
    if not all(bool(torch.isfinite(b).all()) for b in y):
        raise SolveError("the initial state is NaN or infinite", t, 0.0, "check what the ODE is started from")
    k1 = F(t, y)
    size = first_step(F, t, y, k1, tableau.order, rtol, atol, sign)
    ratio = 0.0
    for _ in range(max_steps):
        rest = abs(t1 - t)
        last = not size < rest
        dt = sign * (rest if last else size)
        if not math.isfinite(size) or t + dt == t:
            broken = not math.isfinite(size) or not math.isfinite(ratio)
            raise SolveError(
                "the field gave NaN or infinity" if broken else "underflow in dt", t, dt,
                LOOSEN)
        step = take_step(F, tableau, t, dt, y, k1)
        error = combine(tuple(torch.zeros_like(b) for b in y), [dt * w for w in tableau.error],
                        [tuple(b.detach() for b in k) for k in step.ks])
        ratio = scaled_norm(error, y, step.y1, rtol, atol)
        accepted = ratio <= 1  # False for NaN
        if accepted:
            cost.step_sizes.append(dt)
            step = with_end_slope(F, tableau, step)
            yield step
            if last:
                return
            t, y, k1 = t + dt, step.y1, step.ks[-1]
        else:
            cost.rejected += 1
        if ratio == 0:
            size = abs(dt) * GROW
        elif math.isfinite(ratio):
            size = abs(dt) * min(GROW, max(SAFETY * ratio ** (-1 / tableau.order), 1.0 if accepted else SHRINK))
        else:
            size = abs(dt) * SHRINK
    raise SolveError(f"the step limit of {max_steps} was reached", t, sign * size,
                     RAISE_LIMIT)


def fixed_steps(F: Field, tableau: Tableau, y: State, grid: Sequence[float], cost: Evaluations) -> Iterator[Step]:
    """One step between each two neighbours of the grid."""
    for t, end in pairwise(grid):
        step = take_step(F, tableau, t, end - t, y)
        if not all(bool(torch.isfinite(b).all()) for b in step.y1):
            raise SolveError("the state became NaN or infinite", t, step.dt, SMALLER_STEPS)
        cost.step_sizes.append(step.dt)
        yield step
        y = step.y1
