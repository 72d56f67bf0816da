"""Say in a sentence or two what a network has done with its points."""

from __future__ import annotations

import math

import numpy as np

from acenode.playground.picture import Picture
from acenode.playground.problems import Problem, Targets
from acenode.playground.session import NetworkFrame

VISIBLE = 0.02  # a smaller distance is not seen


def describe(network: NetworkFrame, problem: Problem) -> str:
    """Describe a network's picture; an error says what to do."""
    if network.error:
        return network.error
    if network.picture is None:
        return "The solve failed. Lower the learning rate and rewind."
    if problem.d == 1:
        return _line(network.name, network.picture)
    return _plane(network, network.picture, problem)


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
    meeting = _meeting(h)
    if meeting is None:
        together = " They end at the same place." if abs(h[-1, 1] - h[-1, 0]) < VISIBLE else ""
        return f"{ends} The points have not swapped.{together}"
    if not picture.arrived.all():
        return f"{ends} The points have crossed, but are not at their rings yet."
    at, t = meeting
    place = f"{ends} The points have swapped. Their paths cross in h₁ at t = {t:.2f}"
    if picture.weights is None:
        return (f"{place}, where h₂ is {_number(picture.h[at, 0, 1])} for blue and {_number(picture.h[at, 1, 1])} for "
                "orange: in the plane (h₁, h₂) they go around each other.")
    low, high = (f"{100 * float(picture.weights[at, p, 0]):.0f}%" for p in (0, 1))
    return (f"{place}, where attention passes {low} of h to f for blue and {high} for orange: f reads different h′ at "
            "the same h, so the points can move in opposite directions there.")


def _meeting(h: np.ndarray) -> tuple[int, float] | None:
    """Return the frame and time at which the order of two points changes for good and visibly, or None."""
    gap = h[:, 1] - h[:, 0]
    if gap[-1] > -VISIBLE:
        return None
    at = int(np.flatnonzero(gap >= 0)[-1])
    return at, (at + float(gap[at] / (gap[at] - gap[at + 1]))) / (len(h) - 1)


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
        return f"{found} {_attention(picture.weights)}"
    if picture.h.shape[-1] > problem.d:
        extra = picture.h[-1, :, problem.d]
        return f"{found} The appended h₃ ends between {_number(extra.min())} and {_number(extra.max())}."
    return found


def _attention(weights: np.ndarray) -> str:
    """Say how much the points' attention differs at t = 1."""
    low, high = 100 * float(weights[-1].min()), 100 * float(weights[-1].max())
    return f"At t = 1, weights of attention are between {low:.0f}% and {high:.0f}%."


def _number(x: float) -> str:
    return f"{float(x):z.2f}".replace("-", "−")
