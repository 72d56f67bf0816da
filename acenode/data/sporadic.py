"""Batches of series to forecast, and the random numbers drawn for them. Times are in the data set's own unit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from acenode.data.points import Points
from acenode.data.schedule import StepSchedule
from acenode.device.transfer import send_all


@dataclass(frozen=True)
class SporadicBatch:
    """B series. In training the targets are the seen points, each predicted before it is observed."""

    seen: Points
    target: Points
    horizon: float
    seed: int = 0  # of all random numbers a model draws for this batch
    schedule: StepSchedule | None = None  # for GRU-ODE-Bayes, which steps from point to point

    @property
    def training(self) -> bool:
        return self.target is self.seen

    def to(self, device: torch.device) -> SporadicBatch:
        """Copy the batch to a device in one transfer."""
        schedule = self.schedule
        parts = [self.seen, self.target]
        if schedule is not None:
            parts += [schedule, schedule.observations, schedule.reads]  # type: ignore[list-item]
        moved = send_all(parts, device)
        seen = moved(self.seen)
        if schedule is not None:
            schedule = moved(schedule, observations=moved(schedule.observations), reads=moved(schedule.reads))
        return replace(self, seen=seen, target=seen if self.training else moved(self.target), schedule=schedule)


class NoiseSource:
    """Random numbers for one batch, which depend on its seed only."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.generator = torch.Generator(device).manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, device=self.generator.device)

    def dropout_mask(self, rate: float, *shape: int) -> Tensor:
        """Draw a mask that is 0 with probability `rate` and 1/(1 − rate) otherwise."""
        drawn = torch.rand(shape, generator=self.generator, device=self.generator.device)
        return (drawn >= rate).to(drawn) / (1 - rate)
