"""Series to forecast in batches: what is read, what is to be said, in the set's own unit of time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from acenode.data.course import Course
from acenode.data.points import Points
from acenode.transfer import send_all


@dataclass(frozen=True)
class Sporadic:
    """B series. In training the targets are the points themselves, each to be said before it is read."""

    seen: Points
    target: Points
    horizon: float
    seed: int = 0  # of everything a model draws for this batch
    course: Course | None = None  # for a model that steps from point to point

    @property
    def training(self) -> bool:
        return self.target is self.seen

    def to(self, device: torch.device) -> Sporadic:
        """The same batch there, in one transfer."""
        course = self.course
        parts = [self.seen, self.target, *(() if course is None else (course, course.jumps, course.reads))]
        moved = send_all(parts, device)
        seen = moved(self.seen)
        return replace(self, seen=seen, target=seen if self.training else moved(self.target),
                       course=course and moved(course, jumps=moved(course.jumps), reads=moved(course.reads)))


class Draws:
    """What a model draws for a batch: the same for the same seed, whatever else is drawn beside it."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.generator = torch.Generator(device).manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, device=self.generator.device)

    def kept(self, share: float, *shape: int) -> Tensor:
        """Zeros with the probability `share`, the others raised so that the mean is one."""
        drawn = torch.rand(shape, generator=self.generator, device=self.generator.device)
        return (drawn >= share).to(drawn) / (1 - share)
