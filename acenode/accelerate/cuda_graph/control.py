"""The step-size control of `runge_kutta.adaptive_steps` on the device: no step waits for the host.

All that it knows is in a few tensors of fixed place, so that it can be recorded: `facts`, numbers in double precision
under the names below, then of every accepted step its size, where it began and which try it was; `place`, how many
steps were accepted and how many of them are still to be gone back over; `times`, at which the stages of the step in
hand stand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from acenode.errors import LOOSEN, RAISE_LIMIT, SMALLER_STEPS, SolveError
from acenode.ode.step_size import first_step_size, next_step_size, trial_step_size

T, SIZE, DT, RATIO, LAST, STATUS, TRIED, D1, H0 = range(9)
NAMED = 16  # numbers before the sizes
RUNNING, ARRIVED, STUCK, LIMIT, FULL, BAD_START, BROKEN = range(7)


@dataclass(frozen=True)
class Span:
    """From where to where, by which order, in how many steps at most, and how many can be kept."""

    start: float
    end: float
    order: int
    max_steps: int
    places: int

    @property
    def sign(self) -> float:
        return math.copysign(1.0, self.end - self.start)


@dataclass(frozen=True)
class Told:
    """What the host reads of a solve."""

    status: int
    tried: int
    sizes: list[float]
    tries: list[int]  # which of the tries were accepted, counted from 0
    t: float
    size: float
    dt: float
    ratio: float

    def check(self, span: Span) -> None:
        """The error that the reference would raise, in its words."""
        if self.status == BAD_START:
            raise SolveError("the initial state is NaN or infinite", span.start, 0.0,
                             "check what the ODE is started from")
        if self.status == STUCK:
            broken = not math.isfinite(self.size) or not math.isfinite(self.ratio)
            raise SolveError("the field gave NaN or infinity" if broken else "underflow in dt", self.t, self.dt, LOOSEN)
        if self.status == LIMIT:
            raise SolveError(f"the step limit of {span.max_steps} was reached", self.t, span.sign * self.size,
                             RAISE_LIMIT)
        if self.status == BROKEN:
            raise SolveError("the state became NaN or infinite", self.t, self.dt, SMALLER_STEPS)


class Control:
    """The control in plain tensor operations, for any device."""

    def __init__(self, span: Span, c: tuple[float, ...], numels: tuple[int, ...], dtype: torch.dtype,
                 device: torch.device) -> None:
        self.span, self.numels = span, numels
        self.facts = torch.zeros(NAMED + 3 * span.places, dtype=torch.float64, device=device)
        self.place = torch.zeros(2, dtype=torch.int64, device=device)
        self.times = torch.zeros(len(c) + 1, dtype=dtype, device=device)  # of the stages, the first at the start
        self.c = torch.tensor((0.0, *c), dtype=torch.float64, device=device)
        self.one = torch.ones((), dtype=torch.float64, device=device)
        pinned = device.type == "cuda"
        self.host = torch.zeros(self.facts.shape, dtype=torch.float64, pin_memory=pinned)
        self.host_place = torch.zeros(2, dtype=torch.int64, pin_memory=pinned)

    @property
    def dt(self) -> Tensor:
        return self.facts[DT]

    # On the device ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """At the start of the span, nothing tried yet."""
        self.facts.zero_()
        self.facts[T].fill_(self.span.start)
        self.place.zero_()
        self.times.fill_(self.span.start)

    def guess(self, state: Tensor, slope: Tensor) -> None:
        """A first guess h0 of the step size (Hairer, Nørsett & Wanner, Solving ODEs I, II.4), as `dt` and `times`."""
        d0, d1 = self._norm(state), self._norm(slope)
        h0 = trial_step_size(d0, d1)
        self._set(STATUS, torch.where(torch.isfinite(d0), RUNNING, BAD_START))
        self._set(D1, d1)
        self._set(H0, h0)
        self._set(DT, self.span.sign * h0)
        self.times.copy_(self.span.start + self.span.sign * h0)

    def first(self, change: Tensor) -> None:
        """The first step size, from how much the slope changed over h0; then plan the step."""
        h0, d1 = self.facts[H0], self.facts[D1]
        self._set(SIZE, first_step_size(h0, d1, self._norm(change), self.span.order))
        self._plan(self.running())

    def judge(self, error: Tensor) -> None:
        """Accept the step or not, choose the next size, and plan the next step."""
        span, running = self.span, self.running()
        t, dt, last = self.facts[T].clone(), self.facts[DT].clone(), self.facts[LAST] > 0
        ratio = self._norm(error)
        accepted = running & (ratio <= 1)  # False for NaN
        size = next_step_size(dt, ratio, accepted, span.order)
        n = self.place[:1]
        for row, value in enumerate((dt, t, self.facts[TRIED].clone())):
            here = n.clamp(max=span.places - 1) + NAMED + row * span.places
            self.facts.index_copy_(0, here, torch.where(accepted, value, self.facts[here]))
        n.add_(accepted)
        arrived = accepted & last
        self._set(T, torch.where(accepted & ~last, t + dt, t))
        self._set(SIZE, torch.where(running & ~arrived, size, self.facts[SIZE]))
        self._set(RATIO, torch.where(running, ratio, self.facts[RATIO]))
        self.facts[TRIED].add_(running)
        full = torch.where(n[0] >= span.places, FULL, RUNNING)
        after = torch.where(arrived, ARRIVED, torch.where(self.facts[TRIED] >= span.max_steps, LIMIT, full))
        self._set(STATUS, torch.where(running, after, self.facts[STATUS]))
        self._plan(self.running())

    def running(self) -> Tensor:
        """Whether the end is still to be reached."""
        return self.facts[STATUS] == RUNNING

    def turn(self) -> None:
        """All accepted steps are to be gone back over."""
        self.place[1:].copy_(self.place[:1])

    def back(self) -> None:
        """To the last step that has not been gone back over: its `dt` and `times`."""
        n = self.place[1:].sub_(1).clamp_(min=0)
        self._set(DT, self.facts[n + NAMED][0])
        self._times(self.facts[n + NAMED + self.span.places][0])

    def restart(self) -> None:
        """`times` at the start of the span, for the very first stage."""
        self.times.fill_(self.span.start)

    def _plan(self, running: Tensor) -> None:
        t, size, end = self.facts[T], self.facts[SIZE], self.span.end
        rest = (end - t).abs()
        last = ~(size < rest)
        dt = self.span.sign * torch.where(last, rest, size)
        stuck = ~torch.isfinite(size) | (t + dt == t)
        self._set(STATUS, torch.where(running & stuck, STUCK, self.facts[STATUS]))
        self._set(LAST, torch.where(running, last, self.facts[LAST] > 0))
        self._set(DT, torch.where(running, dt, self.facts[DT]))
        self._times(t)

    def _times(self, t: Tensor) -> None:
        self.times.copy_(t + self.c * self.facts[DT])

    def _norm(self, squares: Tensor) -> Tensor:
        """The larger of the blocks' root mean squares, from their sums of squares, (blocks, parts)."""
        means = [squares[i].sum().sqrt() / math.sqrt(max(n, 1)) for i, n in enumerate(self.numels)]
        return torch.stack(means).max().double()

    def _set(self, name: int, value: Tensor) -> None:
        self.facts[name].copy_(value)

    # On the host ------------------------------------------------------------------------------------------------

    def send(self) -> None:
        """Towards the host; it may read when the device has come this far."""
        self.host.copy_(self.facts, non_blocking=True)
        self.host_place.copy_(self.place, non_blocking=True)

    def read(self) -> Told:
        """What was sent."""
        facts, n = self.host.tolist(), int(self.host_place[0])
        tries = NAMED + 2 * self.span.places
        return Told(int(facts[STATUS]), int(facts[TRIED]), facts[NAMED:NAMED + n],
                    [int(x) for x in facts[tries:tries + n]], facts[T], facts[SIZE], facts[DT], facts[RATIO])
