"""Step-size control on the device, so that no step waits for the host; the rules are those of `ode.step_size`.

Its state is in three tensors of fixed address, so that it can be recorded:

    values  double precision: the named values below, then three tables with an entry for every accepted step: its
            size, the time it started at, and the number of its attempt
    counts  how many steps were accepted, and how many of them the backward pass has still to visit
    times   the times of the stages of the current step
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from acenode.errors import LOOSEN, RAISE_LIMIT, SMALLER_STEPS, SolveError
from acenode.ode.step_size import first_step_size, next_step_size, trial_step_size

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
    """Adaptive step-size control in plain tensor operations, for any device."""

    def __init__(self, span: SolveSpan, c: tuple[float, ...], numels: tuple[int, ...], dtype: torch.dtype,
                 device: torch.device) -> None:
        self.span, self.numels = span, numels
        self.values = torch.zeros(TABLES + 3 * span.capacity, dtype=torch.float64, device=device)
        self.counts = torch.zeros(2, dtype=torch.int64, device=device)
        self.times = torch.zeros(len(c) + 1, dtype=dtype, device=device)
        self.c = torch.tensor((0.0, *c), dtype=torch.float64, device=device)
        self.one = torch.ones((), dtype=torch.float64, device=device)
        pinned = device.type == "cuda"
        self.host_values = torch.zeros(self.values.shape, dtype=torch.float64, pin_memory=pinned)
        self.host_counts = torch.zeros(2, dtype=torch.int64, pin_memory=pinned)

    @property
    def dt(self) -> Tensor:
        return self.values[DT]

    # On the device ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Reset to the start of the span, before any attempt."""
        self.values.zero_()
        self.values[T].fill_(self.span.start)
        self.counts.zero_()
        self.times.fill_(self.span.start)

    def trial_step(self, state: Tensor, slope: Tensor) -> None:
        """Set `dt` and `times` to the trial step of `ode.step_size`, from sums of squares of state and slope."""
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
        self._plan(self.running())

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
        self._plan(self.running())

    def running(self) -> Tensor:
        """Return, as a tensor, whether the solve goes on."""
        return self.values[STATUS] == RUNNING

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

    def _plan(self, running: Tensor) -> None:
        """Set `dt` and `times` of the next step, which ends at the end of the span at the latest."""
        t, size, end = self.values[T], self.values[SIZE], self.span.end
        rest = (end - t).abs()
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

    # On the host ------------------------------------------------------------------------------------------------

    def send_to_host(self) -> None:
        """Copy the state to the host without waiting; `read` may be called once the device has got this far."""
        self.host_values.copy_(self.values, non_blocking=True)
        self.host_counts.copy_(self.counts, non_blocking=True)

    def read(self) -> SolveStatus:
        """Return the state that was sent to the host."""
        values, n = self.host_values.tolist(), int(self.host_counts[0])
        attempts = TABLES + 2 * self.span.capacity
        return SolveStatus(int(values[STATUS]), int(values[ATTEMPTS]), values[TABLES:TABLES + n],
                           [int(x) for x in values[attempts:attempts + n]], values[T], values[SIZE], values[DT],
                           values[RATIO])
