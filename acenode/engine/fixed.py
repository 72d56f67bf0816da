"""Steps from one time of a grid to the next, on the device: a control that has nothing to choose."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from acenode.engine.control import ARRIVED, BROKEN, DT, RUNNING, STATUS, TRIED, Control, Span, T


class FixedControl(Control):
    """Each step is planned from the grid, and accepted where the state after it is finite."""

    def __init__(self, grid: list[float], order: int, c: tuple[float, ...], numels: tuple[int, ...], dtype: torch.dtype,
                 device: torch.device) -> None:
        steps = len(grid) - 1
        super().__init__(Span(grid[0], grid[-1], order, steps, steps), c, numels, dtype, device)
        self.starts = torch.tensor(grid[:-1], dtype=torch.float64, device=device)
        self.sizes = torch.tensor([end - t for t, end in pairwise(grid)], dtype=torch.float64, device=device)

    def start(self) -> None:
        super().start()
        self._plan_from(self.place[0])

    def judge(self, state: Tensor) -> None:
        """By the sums of squares of the state after the step."""
        running = self.running()
        accepted = running & torch.isfinite(self._norm(state))
        n = self._note(accepted)
        self.facts[TRIED].add_(running)
        after = torch.where(accepted, torch.where(n >= self.span.places, ARRIVED, RUNNING), BROKEN)
        self._set(STATUS, torch.where(running, after, self.facts[STATUS]))
        self._plan_from(n.clamp(max=self.span.places - 1))

    def _plan_from(self, n: Tensor) -> None:
        """The step after so many."""
        here = n.reshape(1)
        self._set(T, self.starts[here][0])
        self._set(DT, self.sizes[here][0])
        self._times(self.facts[T])
