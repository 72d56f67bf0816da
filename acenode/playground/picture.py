"""What the page draws of a network: paths of the points, the field that they find, and their attention."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from acenode.errors import SolveError
from acenode.playground.learner import Learner
from acenode.playground.problems import Problem

FRAMES = 25  # times of a path, k/24: those of every problem are among them
FIELD_EVERY = 2  # every second of them has a field
GRID = {1: 13, 2: 11}  # arrows in a row, by the number of coordinates
WIDER = 1.25  # the view grows in such steps, so that it seldom changes
WIDEST = 6.0  # times the problem's reach


@dataclass(frozen=True)
class Picture:
    """Arrays of one network; T times, B points, d visible coordinates, S points whose view of the field is drawn.

    Args:
        h: (T, B, D), D = d, or more with appended coordinates.
        weights: (T, B, …), φ(a) or softmax(a); None without attention.
        attended: (T, B, d), h′; None without attention.
        places: (N, d), where the field is drawn.
        rates: (S, F, N, d), dh/dt at the places at every second time; S is 1 if all points find the same.
        reach: the view is the problem's centre ± reach.
        arrived: (B,), whether a point has reached its goal.
    """

    h: np.ndarray
    weights: np.ndarray | None
    attended: np.ndarray | None
    places: np.ndarray
    rates: np.ndarray
    reach: float
    arrived: np.ndarray


@torch.no_grad()
def take_picture(learner: Learner, problem: Problem) -> Picture | None:
    """Solve from t = 0 to 1 and return what is drawn; None if the solve fails."""
    network = learner.network
    try:
        trajectory = learner.fast.small.trajectory(problem.h0, [k / (FRAMES - 1) for k in range(FRAMES)])
    except SolveError:
        return None
    if not bool(torch.isfinite(trajectory.h).all()):
        return None
    visible = trajectory.h[..., :problem.d]
    reach = view(visible - problem.centre, problem.reach)
    places = grid(problem.d, problem.centre, reach)
    probes = problem.probes if network.sees_alone else problem.probes[:1]
    rates = torch.stack([network.field(places, trajectory, range(0, FRAMES, FIELD_EVERY), p) for p in probes])
    at_goal = [round(t * (FRAMES - 1)) for t in problem.times[1:]]
    attention = network.attention(trajectory)
    weights, attended = (x.numpy() for x in attention) if attention else (None, None)
    return Picture(trajectory.h.numpy(), weights, attended, places.numpy(), rates.numpy(), reach,
                   problem.goal.arrived(visible[at_goal]).numpy())


def view(h: Tensor, least: float) -> float:
    """Return how far the picture has to reach to show all of h, in steps, so that the view seldom changes."""
    most = float(h.abs().max()) * 1.05
    steps = math.ceil(math.log(most / least) / math.log(WIDER)) if most > least else 0
    return min(least * WIDER**steps, least * WIDEST)


def grid(d: int, centre: float, reach: float) -> Tensor:
    """Return places (N, d) evenly spread over the view."""
    n = GRID[d]
    line = (torch.arange(n) + 0.5) / n * 2 * reach - reach + centre
    return line[:, None] if d == 1 else torch.cartesian_prod(line, line)
