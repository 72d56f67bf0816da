"""The operations of a Runge–Kutta step and the control of its size, on the device, so that no step waits for the host.

A solve goes from 0 to 1. These are plain tensor operations, for any device; `step_kernels` does the same in few Triton
kernels. The rules for step sizes are those of `ode.stepping`. The state of the control is in three tensors of fixed
address, so that it can be recorded:

    values  double precision: the named values below, then three tables with an entry for every accepted step: its
            size, the time it started at, and the number of its attempt
    counts  how many steps were accepted, and how many of them the backward pass has still to visit
    times   the times of the stages of the current step
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from acenode.errors import LOOSEN, RAISE_LIMIT, SMALLER_STEPS, SolveError
from acenode.ode.options import Solver
from acenode.ode.runge_kutta import State
from acenode.ode.stepping import first_step_size, in_tolerances, next_step_size, trial_step_size

# Named values: t, the next step's size, dt, the last error ratio, whether the step is the last one, the status, the
# number of attempts, the norm of the first slope, and the size of the trial step.
T, SIZE, DT, RATIO, LAST, STATUS, ATTEMPTS, D1, H0 = range(9)
TABLES = 16  # where the tables begin
RUNNING, FINISHED, UNDERFLOW, STEP_LIMIT, STORE_FULL, BAD_START, DIVERGED = range(7)  # values of the status


@dataclass(frozen=True)
class SolveStatus:
    """The state of a solve as the host reads it."""

    status: int
    attempts: int
    step_sizes: list[float]  # of the accepted steps
    accepted: list[int]  # the numbers of the accepted attempts, from 0
    t: float
    size: float
    dt: float
    ratio: float

    def check(self, max_steps: int) -> None:
        """Raise the error that a solve on the host would raise, if this one failed."""
        if self.status == BAD_START:
            raise SolveError("the initial state is NaN or infinite", 0.0, 0.0, "check what the ODE is started from")
        if self.status == UNDERFLOW:
            broken = not math.isfinite(self.size) or not math.isfinite(self.ratio)
            raise SolveError("the field gave NaN or infinity" if broken else "underflow in dt", self.t, self.dt, LOOSEN)
        if self.status == STEP_LIMIT:
            raise SolveError(f"the step limit of {max_steps} was reached", self.t, self.size, RAISE_LIMIT)
        if self.status == DIVERGED:
            raise SolveError("the state became NaN or infinite", self.t, self.dt, SMALLER_STEPS)


class StepControl:
    """Adaptive step sizes for states of the shapes of `like`, by a method of some order with the stage times c.

    A solve may take `max_steps` attempts, and `capacity` accepted steps.
    """

    def __init__(self, order: int, max_steps: int, capacity: int, c: tuple[float, ...], like: State) -> None:
        self.order, self.max_steps, self.capacity = order, max_steps, capacity
        self.numels, device = tuple(b.numel() for b in like), like[0].device
        self.values = torch.zeros(TABLES + 3 * capacity, dtype=torch.float64, device=device)
        self.counts = torch.zeros(2, dtype=torch.int64, device=device)
        self.times = torch.zeros(len(c) + 1, dtype=like[0].dtype, device=device)
        self.c = torch.tensor((0.0, *c), dtype=torch.float64, device=device)
        self.dt = self.values[DT]
        self.host = [torch.zeros(x.shape, dtype=x.dtype, pin_memory=x.is_cuda) for x in (self.values, self.counts)]

    def start(self) -> None:
        """Reset to t = 0, before any attempt."""
        for x in (self.values, self.counts, self.times):
            x.zero_()

    def running(self) -> Tensor:
        return self.values[STATUS] == RUNNING

    def trial_step(self, state: Tensor, slope: Tensor) -> None:
        """Set `dt` and `times` to the trial step of `ode.stepping`, from sums of squares of state and slope."""
        d0, d1 = self._norm(state), self._norm(slope)
        h0 = trial_step_size(d0, d1)
        self.values[STATUS].copy_(torch.where(torch.isfinite(d0), RUNNING, BAD_START))
        for name, value in ((D1, d1), (H0, h0), (DT, h0)):
            self.values[name].copy_(value)
        self.times.copy_(h0)

    def first_step(self, change: Tensor) -> None:
        """Choose and plan the first step, from the sums of squares of the slope's change over the trial step."""
        h0, d1 = self.values[H0], self.values[D1]
        self.values[SIZE].copy_(first_step_size(h0, d1, self._norm(change), self.order))
        self._plan()

    def accept_or_reject(self, error: Tensor) -> None:
        """Accept or reject the step by the sums of squares of its error, then choose and plan the next step."""
        running, last = self.running(), self.values[LAST] > 0
        t, dt = self.values[T].clone(), self.values[DT].clone()
        ratio = self._norm(error)
        accepted = running & (ratio <= 1)  # False for NaN
        n = self.counts[:1]
        for table, value in enumerate((dt, t, self.values[ATTEMPTS].clone())):
            row = n.clamp(max=self.capacity - 1) + TABLES + table * self.capacity
            self.values.index_copy_(0, row, torch.where(accepted, value, self.values[row]))
        n.add_(accepted)
        finished = accepted & last
        self._set_if(accepted & ~last, T, t + dt)
        self._set_if(running & ~finished, SIZE, next_step_size(dt, ratio, accepted, self.order))
        self._set_if(running, RATIO, ratio)
        self.values[ATTEMPTS].add_(running)
        full = torch.where(n[0] >= self.capacity, STORE_FULL, RUNNING)
        after = torch.where(finished, FINISHED, torch.where(self.values[ATTEMPTS] >= self.max_steps, STEP_LIMIT, full))
        self._set_if(running, STATUS, after)
        self._plan()

    def begin_backward(self) -> None:
        """Let the backward pass visit all accepted steps."""
        self.counts[1:].copy_(self.counts[:1])

    def previous_step(self) -> None:
        """Set `dt` and `times` to the last step that the backward pass has not visited."""
        self._load(self.counts[1:].sub_(1).clamp_(min=0))

    def _load(self, n: Tensor) -> None:
        """Set t, `dt` and `times` to those of step n (1,) in the tables."""
        self.values[DT].copy_(self.values[n + TABLES][0])
        self.values[T].copy_(self.values[n + TABLES + self.capacity][0])
        self._set_times()

    def _plan(self) -> None:
        """Set `dt` and `times` of the next step, which ends at 1 at the latest."""
        t, size, running = self.values[T], self.values[SIZE], self.running()
        rest = 1 - t
        last = ~(size < rest)
        dt = torch.where(last, rest, size)
        underflow = ~torch.isfinite(size) | (t + dt == t)
        self._set_if(running & underflow, STATUS, UNDERFLOW)
        self._set_if(running, LAST, last)
        self._set_if(running, DT, dt)
        self._set_times()

    def _set_times(self) -> None:
        self.times.copy_(self.values[T] + self.c * self.values[DT])

    def _norm(self, squares: Tensor) -> Tensor:
        """Return the larger of the blocks' root mean squares, from their sums of squares, (blocks, parts)."""
        means = [squares[i].sum().sqrt() / math.sqrt(max(n, 1)) for i, n in enumerate(self.numels)]
        return torch.stack(means).max().double()

    def _set_if(self, condition: Tensor, name: int, value: Tensor | int) -> None:
        self.values[name].copy_(torch.where(condition, value, self.values[name]))

    # On the host --------------------------------------------------------------------------------------------------

    def send_to_host(self) -> None:
        """Copy the state to the host without waiting; `read` may be called once the device has got this far."""
        for target, source in zip(self.host, (self.values, self.counts), strict=True):
            target.copy_(source, non_blocking=True)

    def read(self) -> SolveStatus:
        """Return the state that was sent to the host."""
        values, n = self.host[0].tolist(), int(self.host[1][0])
        attempts = TABLES + 2 * self.capacity
        return SolveStatus(int(values[STATUS]), int(values[ATTEMPTS]), values[TABLES:TABLES + n],
                           [int(x) for x in values[attempts:attempts + n]], values[T], values[SIZE], values[DT],
                           values[RATIO])


class FixedStepControl(StepControl):
    """Takes the steps of a grid, which are in tables from the beginning; accepts a step that ends in a finite state."""

    def __init__(self, grid: list[float], c: tuple[float, ...], like: State) -> None:
        n, device = len(grid) - 1, like[0].device
        super().__init__(0, n, n, c, like)
        sizes = [end - t for t, end in pairwise(grid)]
        tables = torch.tensor([*sizes, *grid[:-1], *range(n)], dtype=torch.float64, device=device)
        self.initial_values = torch.cat((self.values[:TABLES], tables))

    def start(self) -> None:
        self.values.copy_(self.initial_values)
        self.counts.zero_()
        self._plan()

    def accept_or_reject(self, squares: Tensor) -> None:
        """Accept the step if `squares`, sums of squares of the state after it, are finite; plan the next step."""
        running = self.running()
        accepted = running & torch.isfinite(squares.sum())
        self.counts[:1].add_(accepted)
        self.values[ATTEMPTS].add_(running)
        after = torch.where(self.counts[0] == self.capacity, FINISHED, RUNNING)
        self._set_if(running, STATUS, torch.where(accepted, after, DIVERGED))
        self._plan()

    def _plan(self) -> None:
        """Plan the step after those taken; after the last one plan it again, without effect."""
        self._load(self.counts[:1].clamp(max=self.capacity - 1))


class StateStore:
    """States and their slopes in numbered rows; the row number is a tensor on the device."""

    def __init__(self, like: State, rows: int) -> None:
        self.like = like * 2
        self.sizes = [b.numel() for b in self.like]
        self.rows = like[0].new_zeros(rows, sum(self.sizes))

    def write_after(self, row: Tensor, y: State, k: State) -> None:
        """Write a state and its slope to the row after the given one."""
        flat = [with_layout(b, like).as_strided((b.numel(),), (1,)) for b, like in zip(y + k, self.like, strict=True)]
        self.rows.index_copy_(0, row.reshape(1) + 1, torch.cat(flat).unsqueeze(0))

    def read(self, row: Tensor) -> tuple[State, State]:
        parts = self.rows.index_select(0, row.reshape(1))[0].split(self.sizes)
        found = tuple(part.as_strided(like.shape, like.stride()) for part, like in zip(parts, self.like, strict=True))
        return found[:len(found) // 2], found[len(found) // 2:]


def with_layout(block: Tensor, like: Tensor) -> Tensor:
    """Return the block in the memory layout of another one, which is dense."""
    return block if block.stride() == like.stride() else torch.empty_like(like).copy_(block)


class StepOperations:
    """Combinations of stages and their norms; a coefficient is dt w_i with dt read on the device."""

    name = "torch"
    control: type[StepControl] = StepControl

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.one = torch.ones((), dtype=torch.float64, device=device)  # for dt, where the weights are coefficients
        self.tables: dict[tuple[float, ...], Tensor] = {}

    def table(self, weights: tuple[float, ...]) -> Tensor:
        """Return weights as a tensor on the device; made once, before anything is recorded."""
        if weights not in self.tables:
            self.tables[weights] = torch.tensor(weights, dtype=torch.float64, device=self.device)
        return self.tables[weights]

    def arrange(self, y: State) -> State:
        """Return the blocks in the memory layout that all other operations expect."""
        return tuple(b.contiguous() for b in y)

    def combine(self, base: State | None, dt: Tensor, weights: Sequence[float], ks: Sequence[State],
                out: State | None = None) -> State:
        """Return base + Σ dt w_i k_i without the zero weights; `out` may be any of the operands."""
        used, chosen = nonzero_terms(weights, ks)
        coefficients = (dt * self.table(chosen)).to(used[0][0].dtype)
        found = []
        for n in range(len(used[0])):
            total = torch.zeros_like(used[0][n]) if base is None else base[n]
            for i, k in enumerate(used):
                total = torch.addcmul(total, k[n], coefficients[i])
            found.append(total)
        if out is None:
            return tuple(found)
        for a, b in zip(out, found, strict=True):
            a.copy_(b)
        return out

    def scaled_squares(self, dt: Tensor, weights: Sequence[float], ks: Sequence[State], y0: State, y1: State,
                       solver: Solver) -> Tensor:
        """Return sums of squares of Σ dt w_i k_i in units of the tolerance, (blocks, parts)."""
        scaled = in_tolerances(self.combine(None, dt, weights, ks), y0, y1, solver)
        return torch.stack([torch.linalg.vector_norm(s).square().reshape(1) for s in scaled])


def nonzero_terms(weights: Sequence[float], ks: Sequence[State]) -> tuple[list[State], tuple[float, ...]]:
    """Return the stages whose weights are not zero, and these weights."""
    pairs = [(k, float(w)) for k, w in zip(ks, weights, strict=False) if w != 0]
    return [k for k, _ in pairs], tuple(w for _, w in pairs)
