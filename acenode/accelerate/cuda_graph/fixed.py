"""Steps from one time of a grid to the next, on the device: a control that has nothing to choose."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from acenode.accelerate.cuda_graph.control import ARRIVED, BROKEN, DT, NAMED, RUNNING, STATUS, TRIED, Control, Span, T


class FixedControl(Control):
    """A step is accepted where the state after it is finite. All steps are known before, so they stand in tables."""

    def __init__(self, grid: list[float], c: tuple[float, ...], numels: tuple[int, ...], dtype: torch.dtype,
                 device: torch.device) -> None:
        n = len(grid) - 1
        super().__init__(Span(grid[0], grid[-1], order=0, max_steps=n, places=n), c, numels, dtype, device)
        starts = torch.tensor(grid[:-1], dtype=torch.float64, device=device)
        sizes = torch.tensor([end - t for t, end in pairwise(grid)], dtype=torch.float64, device=device)
        tries = torch.arange(n, dtype=torch.float64, device=device)
        self.at_first = torch.cat((self.facts[:NAMED], sizes, starts, tries))
        self.plans = torch.stack((starts, sizes.abs(), sizes), dim=1)  # of every step T, SIZE and DT
        self.stage_times = (starts[:, None] + self.c * sizes[:, None]).to(dtype)  # and the times of its stages
        self.after = torch.tensor([RUNNING] * n + [ARRIVED], device=device)  # the status, by the number of steps taken

    def start(self) -> None:
        self.facts.copy_(self.at_first)
        self.place.zero_()
        self._plan_step()

    def judge(self, squares: Tensor) -> None:
        """By sums of squares that are finite where the state after the step is."""
        running = self.running()
        accepted = running & torch.isfinite(squares.sum())
        self.place[:1].add_(accepted)
        self.facts[TRIED].add_(running)
        after = torch.where(accepted, self.after[self.place[:1]][0], BROKEN)
        self._set(STATUS, torch.where(running, after, self.facts[STATUS]))
        self._plan_step()

    def _plan_step(self) -> None:
        """The step that follows those taken; after the last one that again, which comes to nothing."""
        here = self.place[:1].clamp(max=self.span.places - 1)
        self.facts[T:DT + 1].copy_(self.plans[here][0])
        self.times.copy_(self.stage_times[here][0])
