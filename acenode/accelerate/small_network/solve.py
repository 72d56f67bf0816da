"""An adaptive Runge–Kutta solve in numpy that can be differentiated: the steps of `acenode.ode` on small arrays.

The rules for step sizes, the coefficients and the interpolation are those of `acenode.ode`; only the arrays differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from acenode.accelerate.small_network.fields import Array, SmallField
from acenode.errors import LOOSEN, RAISE_LIMIT, SolveError
from acenode.ode.options import Solver
from acenode.ode.runge_kutta import Evaluations, dense_weights
from acenode.ode.step_size import first_step_size, next_step_size, trial_step_size
from acenode.ode.tableaus import TABLEAUS, Tableau

Saved = tuple[Array, ...]  # what the backward pass of one evaluation needs


@dataclass(frozen=True)
class SmallStep:
    """An accepted step: where it starts, its stages, and which of the requested times it reaches.

    `inside` are (number of the time, weights of the stages); `at_end` are numbers of times at the step's end.
    """

    t: float
    dt: float
    stages: list[tuple[float, Saved]]  # of the second stage on: its time and what was saved
    inside: list[tuple[int, list[float]]]
    at_end: list[int]


class SmallSolve:
    """Integrates a field from the first of the times to the last; `states` (T, B, n) are those at the times."""

    def __init__(self, field: SmallField, y0: Array, times: Sequence[float], solver: Solver) -> None:
        self.field, self.solver, self.evaluations = field, solver, Evaluations()
        self.tableau: Tableau = TABLEAUS[solver.method]
        assert self.tableau.fsal
        assert self.tableau.error is not None
        self.states, self.steps = np.empty((len(times), *y0.shape), np.float32), list[SmallStep]()
        self.states[0] = y0
        self._integrate(y0, [float(t) for t in times])

    def _rate(self, t: float, y: Array) -> tuple[Array, Saved]:
        self.evaluations.forward += 1
        return self.field.forward(y, t)

    def _norm(self, error: Array, y0: Array, y1: Array) -> float:
        """Return the error in units of the tolerance: the largest of the blocks' root mean squares."""
        ratio = error / (self.solver.atol + self.solver.rtol * np.maximum(np.abs(y0), np.abs(y1)))
        return max(math.sqrt(float(np.mean(ratio[:, block] ** 2))) for block in self.field.blocks)

    def _first_step(self, t: float, y: Array, k1: Array) -> float:
        slope_norm = self._norm(k1, y, y)
        h0 = trial_step_size(self._norm(y, y, y), slope_norm)
        if not 0 < h0 < math.inf:
            return math.nan
        k2, _ = self._rate(t + h0, y + np.float32(h0) * k1)
        return first_step_size(h0, slope_norm, self._norm(k2 - k1, y, y), self.tableau.order)

    def _integrate(self, y: Array, times: list[float]) -> None:
        tableau, t, end, reached = self.tableau, times[0], times[-1], 1
        k1, self.first = self._rate(t, y)
        size, ratio = self._first_step(t, y, k1), 0.0
        for _ in range(self.solver.max_steps):
            last = not size < end - t
            dt = end - t if last else size
            if not math.isfinite(size) or t + dt == t:
                broken = not math.isfinite(size) or not math.isfinite(ratio)
                raise SolveError("the field gave NaN or infinity" if broken else "underflow in dt", t, dt, LOOSEN)
            ks, stages, yi = [k1], list[tuple[float, Saved]](), y
            for c, row in zip(tableau.c, tableau.a, strict=True):
                yi = combined(y, dt, row, ks)
                k, saved = self._rate(t + c * dt, yi)
                ks.append(k)
                stages.append((t + c * dt, saved))
            ratio = self._norm(combined(np.zeros_like(y), dt, tableau.error or (), ks), y, yi)
            accepted = ratio <= 1  # False for NaN
            if accepted:
                self.evaluations.step_sizes.append(dt)
                reached = self._keep(t, dt, y, yi, ks, stages, times, reached)
                if last:
                    return
                t, y, k1 = t + dt, yi, ks[-1]
            else:
                self.evaluations.rejected += 1
            size = next_step_size(dt, ratio, accepted, tableau.order)
        raise SolveError(f"the step limit of {self.solver.max_steps} was reached", t, size, RAISE_LIMIT)

    def _keep(self, t: float, dt: float, y0: Array, y1: Array, ks: list[Array], stages: list[tuple[float, Saved]],
              times: list[float], reached: int) -> int:
        """Record an accepted step and the states at the times that it reaches; return how many times are reached."""
        step = SmallStep(t, dt, stages, [], [])
        near = 4 * math.ulp(max(abs(t), abs(t + dt)))
        while reached < len(times) and times[reached] <= t + dt + near:
            if times[reached] < t + dt - near:
                weights = dense_weights((times[reached] - t) / dt, self.tableau, len(ks))
                self.states[reached] = combined(y0, dt, weights, ks)
                step.inside.append((reached, weights))
            else:
                self.states[reached] = y1
                step.at_end.append(reached)
            reached += 1
        self.steps.append(step)
        return reached

    def backward(self, g: Array) -> Array:
        """Return dL/dy(t₀) from dL/dy (T, B, n) at the times; the field's networks collect the parameters' part."""
        tableau, count = self.tableau, len(self.tableau.b)
        gy, g_last = np.zeros_like(g[0]), np.zeros_like(g[0])  # of a step's end, and of its last slope
        for step in reversed(self.steps):
            for n in step.at_end:
                gy = gy + g[n]
            g0, gk = np.zeros_like(gy), [np.zeros_like(gy) for _ in range(count)]
            gk[-1] = g_last
            for n, weights in step.inside:
                g0 = g0 + g[n]
                for i, w in enumerate(weights):
                    if w:
                        gk[i] = gk[i] + np.float32(step.dt * w) * g[n]
            for i in range(count - 1, 0, -1):  # the last stage's state is the step's end
                at, saved = step.stages[i - 1]
                gi = self.field.backward(at, saved, gk[i]) + (gy if i == count - 1 else 0)
                g0 = g0 + gi
                for j, w in enumerate(tableau.a[i - 1]):
                    if w:
                        gk[j] = gk[j] + np.float32(step.dt * w) * gi
            gy, g_last = g0, gk[0]  # the first slope is the last one of the step before
        return gy + self.field.backward(self.start, self.first, g_last) + g[0]

    @property
    def start(self) -> float:
        return self.steps[0].t


def combined(y: Array, dt: float, weights: Sequence[float], ks: Sequence[Array]) -> Array:
    """Return y + dt Σ w_i k_i."""
    for w, k in zip(weights, ks, strict=False):
        if w:
            y = y + np.float32(dt * w) * k
    return y
