"""Training in the playground: who swaps the points, rewinding, and settings that act at once."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from acenode.playground.history import MOST, History
from acenode.playground.picture import take_picture
from acenode.playground.settings import PlaygroundSettings
from acenode.playground.side_by_side import SideBySide
from acenode.playground.words import _line, _meeting

STEPS = 60


@pytest.fixture(scope="module")
def trained() -> SideBySide:
    """Train two points to swap, from seed 0."""
    found = SideBySide(PlaygroundSettings())
    for _ in range(STEPS):
        found.step()
    return found


def test_the_node_fails_and_the_others_swap_the_points(trained: SideBySide) -> None:
    node, augmented, ace = trained.learners
    assert node.losses.last == pytest.approx(0.25, abs=0.01)  # both points in the middle
    assert augmented.losses.last < 0.01
    assert ace.losses.last < 0.01
    pictures = [take_picture(learner, trained.problem) for learner in trained.learners]
    assert [p is not None and p.arrived.all() for p in pictures] == [False, True, True]
    gaps = [p.h[:, 1, 0] - p.h[:, 0, 0] for p in pictures if p is not None]
    assert gaps[0].min() > -0.02  # the order is kept, but for the solver's error
    assert gaps[1][-1] < -0.8
    assert gaps[2][-1] < -0.8
    plane = pictures[1].h  # type: ignore[union-attr]
    assert ((plane[:, 0] - plane[:, 1]) ** 2).sum(-1).min() > 0.01  # they go around each other


def test_where_the_paths_of_ace_cross_the_attention_differs(trained: SideBySide) -> None:
    picture = take_picture(trained.learners[2], trained.problem)
    assert picture is not None
    assert picture.weights is not None
    assert picture.attended is not None
    meeting = _meeting(picture.h[..., 0])
    assert meeting is not None
    at, t = meeting
    assert 0 < t < 1
    assert abs(picture.weights[at, 0, 0] - picture.weights[at, 1, 0]) > 0.2
    assert picture.attended == pytest.approx(picture.h * picture.weights)


def test_points_that_have_not_swapped_are_described_so() -> None:
    """Training need not get there, as on the problem across zero, so the words do not promise it."""
    found = SideBySide(PlaygroundSettings())
    picture = take_picture(found.learners[1], found.problem)
    assert picture is not None
    assert _line("augmented", picture).endswith("The points have not swapped.")


def test_points_that_have_crossed_but_not_arrived_are_described_so(trained: SideBySide) -> None:
    picture = take_picture(trained.learners[1], trained.problem)
    assert picture is not None
    assert _meeting(picture.h[..., 0]) is not None
    short = dataclasses.replace(picture, arrived=np.array([True, False]))
    assert _line("augmented", short).endswith("The points have crossed, but are not at their rings yet.")


@pytest.mark.parametrize("end", [[-1e-6, -2e-6], [2e-3, -2e-3]])
def test_points_that_end_together_have_not_crossed(trained: SideBySide, end: list[float]) -> None:
    picture = take_picture(trained.learners[2], trained.problem)
    assert picture is not None
    h = np.linspace([-1.0, 1.0], end, len(picture.h))[..., None]
    short = dataclasses.replace(picture, h=h, arrived=np.array([False, False]))
    assert _line("ace", short) == (
        "Blue ends at 0.00, orange at 0.00. The points have not swapped. They end at the same place.")


def test_rewinding_repeats_the_numbers() -> None:
    found = SideBySide(PlaygroundSettings(problem="circles", attention="pairwise"))

    def losses() -> list[list[float]]:
        for _ in range(4):
            found.step()
        return [learner.losses.points()[1] for learner in found.learners]

    first = losses()
    found.rewind()
    assert found.steps == 0
    torch.manual_seed(5)  # the global generator has no part in it
    assert losses() == first


def test_rates_tolerances_and_penalties_act_at_once_and_sizes_start_again() -> None:
    found = SideBySide(PlaygroundSettings())
    found.step()
    before = [learner.network for learner in found.learners]
    found.change(found.settings.changed({"learning_rate": 0.05, "tolerance": 1e-4, "penalty_weight": 0.02}))
    evaluations = [learner.evaluations for learner in found.learners]
    found.step()
    assert [learner.network for learner in found.learners] == before
    assert found.steps == 2
    for learner, then in zip(found.learners, evaluations, strict=True):
        assert learner.trainer.main_optimiser.param_groups[0]["lr"] == 0.05
        assert learner.evaluations > then  # a smaller tolerance takes more steps
    assert found.learners[2].trainer.phase_two.penalty_weight == 0.02
    found.change(found.settings.changed({"hidden": 5}))
    assert found.steps == 0
    assert found.learners[0].network.parameters == 5 * 4 + 1


def test_a_network_that_diverges_stops_alone() -> None:
    found = SideBySide(PlaygroundSettings())
    with torch.no_grad():
        found.learners[1].network.layer.f.write.bias.fill_(float("nan"))
    for _ in range(2):
        found.step()
    assert [bool(learner.error) for learner in found.learners] == [False, True, False]
    assert "rewind" in found.learners[1].error
    assert take_picture(found.learners[1], found.problem) is None
    found.rewind()
    assert not found.learners[1].error


def test_a_long_history_keeps_few_points_and_the_newest() -> None:
    history = History()
    assert history.points() == ([], [])
    for step in range(1, 5001):
        history.append(float(step))
    steps, values = history.points()
    assert len(steps) <= MOST + 2
    assert steps == values
    assert (steps[0], steps[-1]) == (1, 5000)
