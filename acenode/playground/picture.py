"""What the page shows of a network: paths of the points, the field that they find, their attention, and a sentence or
two about them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from acenode.errors import SolveError
from acenode.playground.learner import Learner
from acenode.playground.problems import Problem, Targets

FRAMES = 25  # times of a path, k/24: those of every problem are among them
FIELD_EVERY = 2  # every second of them has a field
GRID = {1: 13, 2: 11}  # arrows in a row, by the number of coordinates
WIDER = 1.25  # the view grows in such steps, so that it seldom changes
WIDEST = 6.0  # times the problem's reach
VISIBLE = 0.02  # a smaller distance is not seen


@dataclass(frozen=True)
class Picture:
    """Arrays of one network; T times, B points, d visible coordinates, S points whose view of the field is drawn."""

    h: np.ndarray  # (T, B, D), D = d, or more with appended coordinates
    weights: np.ndarray | None  # (T, B, …), φ(a) or softmax(a)
    attended: np.ndarray | None  # (T, B, d), h′
    places: np.ndarray  # (N, d), where the field is drawn
    rates: np.ndarray  # (S, F, N, d), dh/dt at the places at every second time; S is 1 if all points find the same
    reach: float  # the view is the problem's centre ± reach
    arrived: np.ndarray  # (B,), whether a point has reached its goal


@dataclass(frozen=True)
class NetworkFrame:
    """One network at one step: its picture, if it can be solved, its losses by step, and its numbers."""

    name: str
    parameters: int
    evaluations: int
    error: str
    loss_steps: list[int]
    losses: list[float]
    picture: Picture | None


@torch.no_grad()
def take_picture(learner: Learner, problem: Problem) -> Picture | None:
    """Solve from t = 0 to 1 and return what is drawn; None if the solve fails."""
    network = learner.network
    try:
        trajectory = network.layer(problem.h0, [k / (FRAMES - 1) for k in range(FRAMES)])
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


def describe(network: NetworkFrame, problem: Problem) -> str:
    """Describe a network's picture; an error says what to do."""
    if network.error:
        return network.error
    if network.picture is None:
        return "The solve failed. Lower the learning rate and rewind."
    return _line(network.name, network.picture) if problem.d == 1 else _plane(network, network.picture, problem)


def _line(name: str, picture: Picture) -> str:
    """Describe two points on a line."""
    h = picture.h[..., 0]  # (T, 2)
    ends = f"Blue ends at {_number(h[-1, 0])}, orange at {_number(h[-1, 1])}."
    if name == "node" and (h[:, 1] - h[:, 0]).min() < -VISIBLE:
        return f"{ends} Only the solver's error lets these paths cross: lower the tolerance, and they cannot."
    if name == "node":
        return f"{ends} Neither overtakes the other: where two paths of a NODE meet, they are the same path."
    if picture.weights is not None and picture.weights.ndim == 4:
        return (f"{ends} The softmax of a single score is always 100%, so h′ = h, and ACE-NODE with pairwise "
                "attention is a NODE here. Choose elementwise attention.")
    gap = h[:, 1] - h[:, 0]
    if gap[-1] > -VISIBLE:  # the order of the points has not changed for good and visibly
        together = " They end at the same place." if abs(gap[-1]) < VISIBLE else ""
        return f"{ends} The points have not swapped.{together}"
    if not picture.arrived.all():
        return f"{ends} The points have crossed, but are not at their rings yet."
    at = int(np.flatnonzero(gap >= 0)[-1])
    t = (at + float(gap[at] / (gap[at] - gap[at + 1]))) / (len(h) - 1)
    place = f"{ends} The points have swapped. Their paths cross in h₁ at t = {t:.2f}"
    if picture.weights is None:
        return (f"{place}, where h₂ is {_number(picture.h[at, 0, 1])} for blue and {_number(picture.h[at, 1, 1])} for "
                "orange: in the plane (h₁, h₂) they go around each other.")
    low, high = (f"{100 * float(picture.weights[at, p, 0]):.0f}%" for p in (0, 1))
    return (f"{place}, where attention passes {low} of h to f for blue and {high} for orange: f reads different h′ at "
            "the same h, so the points can move in opposite directions there.")


def _plane(network: NetworkFrame, picture: Picture, problem: Problem) -> str:
    """Describe points in the plane."""
    arrived, count = int(picture.arrived.sum()), len(picture.arrived)
    if isinstance(problem.goal, Targets):
        found = f"{arrived} of {count} points end where their path ends."
        if network.losses:
            found += f" Root mean squared distance from the paths: {math.sqrt(network.losses[-1]):.2f}."
    else:
        found = f"{arrived} of {count} points end on their side of the dashed line."
    if network.evaluations:
        found += f" A solve evaluates f {network.evaluations} times."
    if picture.weights is not None:
        low, high = 100 * float(picture.weights[-1].min()), 100 * float(picture.weights[-1].max())
        return f"{found} At t = 1, weights of attention are between {low:.0f}% and {high:.0f}%."
    if picture.h.shape[-1] > problem.d:
        extra = picture.h[-1, :, problem.d]
        return f"{found} The appended h₃ ends between {_number(extra.min())} and {_number(extra.max())}."
    return found


def _number(x: float) -> str:
    return f"{float(x):z.2f}".replace("-", "−")
