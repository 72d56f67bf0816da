"""Step control on the device for fixed-step methods: from one time of a grid to the next."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from acenode.accelerate.cuda_graph.step_control import (
    ATTEMPTS,
    DIVERGED,
    DT,
    FINISHED,
    RUNNING,
    STATUS,
    TABLES,
    SolveSpan,
    StepControl,
    T,
)


class FixedStepControl(StepControl):
    """Takes the steps of a grid, which are in tables from the beginning; accepts a step that ends in a finite state."""

    def __init__(self, grid: list[float], c: tuple[float, ...], numels: tuple[int, ...], dtype: torch.dtype,
                 device: torch.device) -> None:
        n = len(grid) - 1
        super().__init__(SolveSpan(grid[0], grid[-1], order=0, max_steps=n, capacity=n), c, numels, dtype, device)
        starts = torch.tensor(grid[:-1], dtype=torch.float64, device=device)
        sizes = torch.tensor([end - t for t, end in pairwise(grid)], dtype=torch.float64, device=device)
        attempts = torch.arange(n, dtype=torch.float64, device=device)
        self.initial_values = torch.cat((self.values[:TABLES], sizes, starts, attempts))
        self.plans = torch.stack((starts, sizes.abs(), sizes), dim=1)  # T, SIZE and DT of every step
        self.stage_times = (starts[:, None] + self.c * sizes[:, None]).to(dtype)
        self.status_after = torch.tensor([RUNNING] * n + [FINISHED], device=device)  # by the number of steps taken

    def start(self) -> None:
        self.values.copy_(self.initial_values)
        self.counts.zero_()
        self._plan_step()

    def accept_or_reject(self, squares: Tensor) -> None:
        """Accept the step if `squares`, sums of squares of the state after it, are finite; plan the next step."""
        running = self.running()
        accepted = running & torch.isfinite(squares.sum())
        self.counts[:1].add_(accepted)
        self.values[ATTEMPTS].add_(running)
        after = torch.where(accepted, self.status_after[self.counts[:1]][0], DIVERGED)
        self._set(STATUS, torch.where(running, after, self.values[STATUS]))
        self._plan_step()

    def _plan_step(self) -> None:
        """Plan the step after those taken; after the last one plan it again, without effect."""
        row = self.counts[:1].clamp(max=self.span.capacity - 1)
        self.values[T:DT + 1].copy_(self.plans[row][0])
        self.times.copy_(self.stage_times[row][0])
