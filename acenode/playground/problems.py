"""The problems of the playground: where points start, and where they have to be at which times."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

Stroke = Sequence[tuple[float, float]]  # a path drawn in the plane

MARGIN = 0.5  # points of a class are asked to end at least so far from the line h₁ = 0
CENTRE = 0.02  # weight of the mean squared distance from the origin at t = 1
CLOSE = 0.25  # a point has arrived if it is that close to its target
PATH_TIMES = 6  # times at which a point is compared with its drawn path
FIRST_STROKES: tuple[Stroke, ...] = (  # two straight paths that cross at (0.5, 0.3), half-way
    ((-0.5, -0.7), (1.5, 1.3)), ((-0.5, 1.3), (1.5, -0.7)))


@dataclass(frozen=True)
class Targets:
    """Be at the targets (K, B, d) at the times: L is the mean squared distance."""

    targets: Tensor

    def loss(self, h: Tensor) -> Tensor:
        return (h - self.targets).square().sum(-1).mean()

    def arrived(self, h: Tensor) -> Tensor:
        return (h[-1] - self.targets[-1]).norm(dim=-1) < CLOSE


@dataclass(frozen=True)
class Sides:
    """End on one side of the line h₁ = 0: `side` (B,) is −1 or 1.

    L is a squared hinge with a margin, and a small weight on the distance from the origin keeps the points in view.
    """

    side: Tensor

    def loss(self, h: Tensor) -> Tensor:
        hinge = (MARGIN - self.side * h[-1, :, 0]).clamp(min=0).square().mean() / MARGIN**2
        return hinge + CENTRE * h[-1].square().sum(-1).mean()

    def arrived(self, h: Tensor) -> Tensor:
        return self.side * h[-1, :, 0] > 0


@dataclass(frozen=True)
class Problem:
    """Points with a goal."""

    name: str
    h0: Tensor  # (B, d), the points at t = 0
    colour: tuple[int, ...]  # (B,), the class of each point, from 0 on
    times: tuple[float, ...]  # t = 0 and the K times after it at which the goal looks at the points, h (K, B, d)
    goal: Targets | Sides
    reach: float  # the picture shows at least centre ± reach
    centre: float = 0.0

    @property
    def d(self) -> int:
        """The number of coordinates."""
        return self.h0.shape[-1]

    @property
    def probes(self) -> list[int]:
        """The first point of each of the first two classes: the picture draws the field as these points see it."""
        return [self.colour.index(k) for k in sorted(set(self.colour))[:2]]


def circles() -> Problem:
    """Return a circle inside a ring, two points thick, to be separated by a straight line."""
    inner, outer = _ring(30, 0.35), torch.cat((_ring(60, 0.95), _ring(60, 1.15, 0.5)))
    return _sides("circles", inner, outer)


def spirals() -> Problem:
    """Return two spirals around each other, to be separated by a straight line."""
    turn = torch.linspace(0.0, 1.0, 36).sqrt() * 2 * math.pi  # evenly spaced along the arm
    radius = 0.15 + 1.05 * turn / turn[-1]
    arm = torch.stack((radius * torch.cos(turn), radius * torch.sin(turn)), -1)
    return _sides("spirals", arm, -arm)


def drawn(strokes: Sequence[Stroke] = FIRST_STROKES) -> Problem:
    """Return one point for each drawn path; it has to follow the path at constant speed."""
    times = [k / PATH_TIMES for k in range(PATH_TIMES + 1)]
    paths = torch.stack([_along(torch.tensor(stroke, dtype=torch.float32), times) for stroke in strokes], 1)
    return Problem("drawn", paths[0], tuple(range(len(strokes))), tuple(times), Targets(paths[1:]), 1.6)


def _swap(name: str, low: float, high: float, reach: float) -> Problem:
    """Return two points on a line that have to swap places."""
    h0 = torch.tensor([[low], [high]])
    return Problem(name, h0, (0, 1), (0.0, 1.0), Targets(h0.flip(0)[None]), reach, (low + high) / 2)


def _sides(name: str, left: Tensor, right: Tensor) -> Problem:
    side = torch.cat((-torch.ones(len(left)), torch.ones(len(right))))
    colour = tuple(int(s > 0) for s in side.tolist())
    return Problem(name, torch.cat((left, right)), colour, (0.0, 1.0), Sides(side), 1.6)


def _ring(count: int, radius: float, shift: float = 0.0) -> Tensor:
    angle = (torch.arange(count) + shift) * (2 * math.pi / count)
    return radius * torch.stack((torch.cos(angle), torch.sin(angle)), -1)


def _along(path: Tensor, shares: Sequence[float]) -> Tensor:
    """Return the places at these shares of a path's length; path (n, 2)."""
    lengths = (path[1:] - path[:-1]).norm(dim=-1)
    reached = torch.cat((torch.zeros(1), lengths.cumsum(0)))  # (n,)
    found = []
    for share in shares:
        s = share * float(reached[-1])
        k = min(int((reached[1:] < s - 1e-9).sum()), len(lengths) - 1)
        part = (s - float(reached[k])) / max(float(lengths[k]), 1e-9)
        found.append(torch.lerp(path[k], path[k + 1], min(part, 1.0)))
    return torch.stack(found)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "swap": partial(_swap, "swap", 0.5, 1.5, 1.1),  # the paper's figure on crossing trajectories
    "zero": partial(_swap, "zero", -1.0, 1.0, 1.6),  # across zero, where elementwise attention has no effect
    "circles": circles, "spirals": spirals, "drawn": drawn}
