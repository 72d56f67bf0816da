"""The operations of a Runge–Kutta step and the control of its size, on the device, so that no step waits for the host.

These are plain tensor operations, for any device; `step_kernels` does the same in few Triton kernels. The rules for
step sizes are those of `ode.stepping`. The state of the control is in three tensors of fixed address, so that it can
be recorded:

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
from acenode.ode.runge_kutta import State
from acenode.ode.stepping import first_step_size, next_step_size, trial_step_size

# Named values: t, the next step's size |dt|, dt, the last error ratio, whether the step is the last one, the status,
# the number of attempts, the norm of the first slope, and the size of the trial step.
T, SIZE, DT, RATIO, LAST, STATUS, ATTEMPTS, D1, H0 = range(9)
TABLES = 16  # where the tables begin
RUNNING, FINISHED, UNDERFLOW, STEP_LIMIT, STORE_FULL, BAD_START, DIVERGED = range(7)  # values of the status


@dataclass(frozen=True)
class SolveSpan:
    """The interval of a solve, the method's order, the step limit, and the number of steps that can be stored."""

    start: float
    end: float
    order: int
    max_steps: int
    capacity: int

    @property
    def sign(self) -> float:
        return math.copysign(1.0, self.end - self.start)


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

    def check(self, span: SolveSpan) -> None:
        """Raise the error that a solve on the host would raise, if this one failed."""
        if self.status == BAD_START:
            raise SolveError("the initial state is NaN or infinite", span.start, 0.0,
                             "check what the ODE is started from")
        if self.status == UNDERFLOW:
            broken = not math.isfinite(self.size) or not math.isfinite(self.ratio)
            raise SolveError("the field gave NaN or infinity" if broken else "underflow in dt", self.t, self.dt, LOOSEN)
        if self.status == STEP_LIMIT:
            raise SolveError(f"the step limit of {span.max_steps} was reached", self.t, span.sign * self.size,
                             RAISE_LIMIT)
        if self.status == DIVERGED:
            raise SolveError("the state became NaN or infinite", self.t, self.dt, SMALLER_STEPS)


class StepControl:
    """Adaptive step sizes for states of the shapes of `like`, by a method with the stage times c."""

    def __init__(self, span: SolveSpan, c: tuple[float, ...], like: State) -> None:
        self.span, self.numels, device = span, tuple(b.numel() for b in like), like[0].device
        self.values = torch.zeros(TABLES + 3 * span.capacity, dtype=torch.float64, device=device)
        self.counts = torch.zeros(2, dtype=torch.int64, device=device)
        self.times = torch.zeros(len(c) + 1, dtype=like[0].dtype, device=device)
        self.c = torch.tensor((0.0, *c), dtype=torch.float64, device=device)
        self.one = torch.ones((), dtype=torch.float64, device=device)
        self.dt = self.values[DT]
        self.host = [torch.zeros(x.shape, dtype=x.dtype, pin_memory=x.is_cuda) for x in (self.values, self.counts)]

    def start(self) -> None:
        """Reset to the start of the span, before any attempt."""
        self.values.zero_()
        self.values[T].fill_(self.span.start)
        self.counts.zero_()
        self.times.fill_(self.span.start)

    def running(self) -> Tensor:
        return self.values[STATUS] == RUNNING

    def trial_step(self, state: Tensor, slope: Tensor) -> None:
        """Set `dt` and `times` to the trial step of `ode.stepping`, from sums of squares of state and slope."""
        d0, d1 = self._norm(state), self._norm(slope)
        h0 = trial_step_size(d0, d1)
        self._set(STATUS, torch.where(torch.isfinite(d0), RUNNING, BAD_START))
        self._set(D1, d1)
        self._set(H0, h0)
        self._set(DT, self.span.sign * h0)
        self.times.copy_(self.span.start + self.span.sign * h0)

    def first_step(self, change: Tensor) -> None:
        """Choose and plan the first step, from the sums of squares of the slope's change over the trial step."""
        h0, d1 = self.values[H0], self.values[D1]
        self._set(SIZE, first_step_size(h0, d1, self._norm(change), self.span.order))
        self._plan()

    def accept_or_reject(self, error: Tensor) -> None:
        """Accept or reject the step by the sums of squares of its error, then choose and plan the next step."""
        span, running = self.span, self.running()
        t, dt, last = self.values[T].clone(), self.values[DT].clone(), self.values[LAST] > 0
        ratio = self._norm(error)
        accepted = running & (ratio <= 1)  # False for NaN
        size = next_step_size(dt, ratio, accepted, span.order)
        n = self.counts[:1]
        for table, value in enumerate((dt, t, self.values[ATTEMPTS].clone())):
            row = n.clamp(max=span.capacity - 1) + TABLES + table * span.capacity
            self.values.index_copy_(0, row, torch.where(accepted, value, self.values[row]))
        n.add_(accepted)
        finished = accepted & last
        self._set(T, torch.where(accepted & ~last, t + dt, t))
        self._set(SIZE, torch.where(running & ~finished, size, self.values[SIZE]))
        self._set(RATIO, torch.where(running, ratio, self.values[RATIO]))
        self.values[ATTEMPTS].add_(running)
        full = torch.where(n[0] >= span.capacity, STORE_FULL, RUNNING)
        after = torch.where(finished, FINISHED, torch.where(self.values[ATTEMPTS] >= span.max_steps, STEP_LIMIT, full))
        self._set(STATUS, torch.where(running, after, self.values[STATUS]))
        self._plan()

    def begin_backward(self) -> None:
        """Let the backward pass visit all accepted steps."""
        self.counts[1:].copy_(self.counts[:1])

    def previous_step(self) -> None:
        """Set `dt` and `times` to the last step that the backward pass has not visited."""
        n = self.counts[1:].sub_(1).clamp_(min=0)
        self._set(DT, self.values[n + TABLES][0])
        self._set_times(self.values[n + TABLES + self.span.capacity][0])

    def rewind_times(self) -> None:
        """Set `times` to the start of the span, for the very first stage."""
        self.times.fill_(self.span.start)

    def _plan(self) -> None:
        """Set `dt` and `times` of the next step, which ends at the end of the span at the latest."""
        t, size, running = self.values[T], self.values[SIZE], self.running()
        rest = (self.span.end - t).abs()
        last = ~(size < rest)
        dt = self.span.sign * torch.where(last, rest, size)
        underflow = ~torch.isfinite(size) | (t + dt == t)
        self._set(STATUS, torch.where(running & underflow, UNDERFLOW, self.values[STATUS]))
        self._set(LAST, torch.where(running, last, self.values[LAST] > 0))
        self._set(DT, torch.where(running, dt, self.values[DT]))
        self._set_times(t)

    def _set_times(self, t: Tensor) -> None:
        self.times.copy_(t + self.c * self.values[DT])

    def _norm(self, squares: Tensor) -> Tensor:
        """Return the larger of the blocks' root mean squares, from their sums of squares, (blocks, parts)."""
        means = [squares[i].sum().sqrt() / math.sqrt(max(n, 1)) for i, n in enumerate(self.numels)]
        return torch.stack(means).max().double()

    def _set(self, name: int, value: Tensor) -> None:
        self.values[name].copy_(value)

    # On the host --------------------------------------------------------------------------------------------------

    def send_to_host(self) -> None:
        """Copy the state to the host without waiting; `read` may be called once the device has got this far."""
        for target, source in zip(self.host, (self.values, self.counts), strict=True):
            target.copy_(source, non_blocking=True)

    def read(self) -> SolveStatus:
        """Return the state that was sent to the host."""
        values, n = self.host[0].tolist(), int(self.host[1][0])
        attempts = TABLES + 2 * self.span.capacity
        return SolveStatus(int(values[STATUS]), int(values[ATTEMPTS]), values[TABLES:TABLES + n],
                           [int(x) for x in values[attempts:attempts + n]], values[T], values[SIZE], values[DT],
                           values[RATIO])


class FixedStepControl(StepControl):
    """Takes the steps of a grid, which are in tables from the beginning; accepts a step that ends in a finite state."""

    def __init__(self, grid: list[float], c: tuple[float, ...], like: State) -> None:
        n, device = len(grid) - 1, like[0].device
        super().__init__(SolveSpan(grid[0], grid[-1], order=0, max_steps=n, capacity=n), c, like)
        starts = torch.tensor(grid[:-1], dtype=torch.float64, device=device)
        sizes = torch.tensor([end - t for t, end in pairwise(grid)], dtype=torch.float64, device=device)
        attempts = torch.arange(n, dtype=torch.float64, device=device)
        self.initial_values = torch.cat((self.values[:TABLES], sizes, starts, attempts))
        self.plans = torch.stack((starts, sizes.abs(), sizes), dim=1)  # T, SIZE and DT of every step
        self.stage_times = (starts[:, None] + self.c * sizes[:, None]).to(self.times.dtype)
        self.status_after = torch.tensor([RUNNING] * n + [FINISHED], device=device)  # by the number of steps taken

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
        after = torch.where(accepted, self.status_after[self.counts[:1]][0], DIVERGED)
        self._set(STATUS, torch.where(running, after, self.values[STATUS]))
        self._plan()

    def _plan(self) -> None:
        """Plan the step after those taken; after the last one plan it again, without effect."""
        row = self.counts[:1].clamp(max=self.span.capacity - 1)
        self.values[T:DT + 1].copy_(self.plans[row][0])
        self.times.copy_(self.stage_times[row][0])


class StateStore:
    """States and their slopes in numbered rows; the row number is a tensor on the device."""

    def __init__(self, like: State, rows: int) -> None:
        self.like = like
        self.blocks = [b.new_zeros(rows, *b.shape) for b in like * 2]

    def write_after(self, row: Tensor, y: State, k: State) -> None:
        """Write a state and its slope to the row after the given one."""
        for stored, block in zip(self.blocks, y + k, strict=True):
            stored.index_copy_(0, row.reshape(1) + 1, block.unsqueeze(0))

    def read(self, row: Tensor) -> tuple[State, State]:
        found = tuple(stored.index_select(0, row.reshape(1))[0] for stored in self.blocks)
        return found[:len(self.like)], found[len(self.like):]


class StepOperations:
    """Combinations of stages and their norms; a coefficient is dt w_i with dt read on the device."""

    name = "torch"
    control: type[StepControl] = StepControl
    store: type[StateStore] = StateStore

    def __init__(self, device: torch.device) -> None:
        self.device = device
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
                       rtol: float, atol: float) -> Tensor:
        """Return sums of squares of Σ dt w_i k_i in units of the tolerance, (blocks, parts)."""
        error = self.combine(None, dt, weights, ks)
        scaled = [e / torch.maximum(u.abs(), v.abs()).mul_(rtol).add_(atol)
                  for e, u, v in zip(error, y0, y1, strict=True)]
        return torch.stack([torch.linalg.vector_norm(s).square().reshape(1) for s in scaled])


def nonzero_terms(weights: Sequence[float], ks: Sequence[State]) -> tuple[list[State], tuple[float, ...]]:
    """Return the stages whose weights are not zero, and these weights."""
    pairs = [(k, float(w)) for k, w in zip(ks, weights, strict=False) if w != 0]
    return [k for k, _ in pairs], tuple(w for _, w in pairs)
