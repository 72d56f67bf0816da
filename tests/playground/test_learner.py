"""The mathematics behind the playground, and training in it: who swaps the points, rewinding, changed settings."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from acenode import Solver
from acenode.playground.learner import MOST, History, SideBySide, build
from acenode.playground.picture import FRAMES, NetworkFrame, describe, take_picture
from acenode.playground.problems import PROBLEMS, drawn
from acenode.playground.settings import PROBLEM_NAMES, PlaygroundSettings

EXACT = Solver("dopri5", rtol=1e-8, atol=1e-8, per_sample=False)
STEPS = 60


@pytest.fixture(scope="module")
def trained() -> SideBySide:
    """Train two points to swap, from seed 0."""
    found = SideBySide(PlaygroundSettings())
    for _ in range(STEPS):
        found.step()
    return found


def words(made: SideBySide, index: int, **changes: np.ndarray) -> str:
    """Describe a network's picture with some of its arrays changed."""
    learner = made.learners[index]
    picture = take_picture(learner, made.problem)
    assert picture is not None
    return describe(NetworkFrame(learner.network.name, 0, 0, "", [], [], dataclasses.replace(picture, **changes)),
                    made.problem)


@pytest.mark.parametrize(("attention", "place", "differ"), [
    ("elementwise", 1.0, True), ("pairwise", 1.0, False), ("elementwise", 0.0, False)])
def test_attention_of_one_coordinate(attention: str, place: float, differ: bool) -> None:
    """Elementwise attention gives two points different fields at one place but 0; the softmax of one score is one."""
    ace = build(1, 16, 0.01, attention, 0)[2]
    h = torch.full((2, 1), place)
    a = torch.tensor([-3.0, 3.0]).reshape(2, *[1] * (1 if attention == "elementwise" else 2))
    rates = ace.rates(h, torch.tensor(0.5), [h, a])
    assert (float((rates[0] - rates[1]).abs().max().detach()) > 0.01) == differ


@pytest.mark.parametrize("attention", ["elementwise", "pairwise"])
@pytest.mark.parametrize("name", ["swap", "circles"])
def test_the_field_that_a_point_finds_where_it_is_moves_it(name: str, attention: str) -> None:
    problem = PROBLEMS[name]()
    step = 1e-3
    for network in build(problem.d, 8, 0.01, attention, 1):
        layer = network.layer.double()
        layer.solver = EXACT
        with torch.no_grad():
            trajectory = layer(problem.h0.double(), [0.0, 0.5 - step, 0.5, 0.5 + step])
            moved = (trajectory.h[3, 1] - trajectory.h[1, 1])[:problem.d] / (2 * step)
            found = network.field(trajectory.h[2, 1:2, :problem.d], trajectory, range(2, 3), 1)
        assert found.shape == (1, 1, problem.d)
        assert torch.allclose(found[0, 0], moved, atol=1e-5)


@pytest.mark.parametrize("name", PROBLEM_NAMES)
def test_points_start_in_view_and_away_from_their_goal(name: str) -> None:
    problem = PROBLEMS[name]()
    assert problem.name == name
    assert len(problem.colour) == len(problem.h0)
    assert float((problem.h0 - problem.centre).abs().max()) < problem.reach
    stay = problem.h0.expand(len(problem.times) - 1, *problem.h0.shape)
    assert not bool(problem.goal.arrived(stay).all())
    assert float(problem.goal.loss(stay)) > 0.3
    assert all(math.isclose(t * (FRAMES - 1), round(t * (FRAMES - 1))) for t in problem.times)  # pictures have them


def test_goals_are_reached_by_swapping_and_by_separating() -> None:
    problem = PROBLEMS["swap"]()
    swapped = problem.h0.flip(0)[None]
    assert float(problem.goal.loss(swapped)) == 0
    assert problem.goal.arrived(swapped).tolist() == [True, True]
    middle = torch.full_like(swapped, problem.centre)
    assert float(problem.goal.loss(middle)) == pytest.approx(0.25)  # the best that a NODE can do
    rings = PROBLEMS["circles"]()
    side = torch.tensor([1.0 if k else -1.0 for k in rings.colour])
    apart = torch.stack((side, torch.zeros_like(side)), -1)[None]
    assert bool(rings.goal.arrived(apart).all())
    assert not bool(rings.goal.arrived(-apart).any())
    assert float(rings.goal.loss(apart)) < 0.05 < 1 < float(rings.goal.loss(-apart))


def test_a_point_follows_its_drawn_path_at_constant_speed() -> None:
    problem = drawn([[(0.0, 0.0), (0.1, 0.0), (1.0, 0.0), (1.0, 0.5)]])  # length 1.5, unevenly drawn
    assert problem.h0.tolist() == [[0.0, 0.0]]
    expected = torch.tensor([[0.25, 0], [0.5, 0], [0.75, 0], [1, 0], [1, 0.25], [1, 0.5]])
    assert torch.allclose(problem.goal.targets[:, 0], expected, atol=1e-5)  # type: ignore[union-attr]


def test_the_node_fails_and_the_others_swap_the_points(trained: SideBySide) -> None:
    node, augmented, ace = trained.learners
    assert node.losses.last == pytest.approx(0.25, abs=0.01)  # both points in the middle
    assert max(augmented.losses.last, ace.losses.last) < 0.01
    pictures = [take_picture(learner, trained.problem) for learner in trained.learners]
    assert [p is not None and p.arrived.all() for p in pictures] == [False, True, True]
    gaps = [p.h[:, 1, 0] - p.h[:, 0, 0] for p in pictures if p is not None]
    assert gaps[0].min() > -0.02  # the order is kept, but for the solver's error
    assert max(gaps[1][-1], gaps[2][-1]) < -0.8
    plane = pictures[1].h  # type: ignore[union-attr]
    assert ((plane[:, 0] - plane[:, 1]) ** 2).sum(-1).min() > 0.01  # they go around each other
    own = pictures[2]
    assert own is not None
    assert own.weights is not None
    at = int(np.flatnonzero(gaps[2] >= 0)[-1])  # where the paths cross, the attention differs
    assert abs(own.weights[at, 0, 0] - own.weights[at, 1, 0]) > 0.2
    assert own.attended == pytest.approx(own.h * own.weights)


def test_pictures_are_described_by_what_is_in_them(trained: SideBySide) -> None:
    """Training need not get there, as on the problem across zero, so the words do not promise it."""
    assert words(SideBySide(PlaygroundSettings()), 1).endswith("The points have not swapped.")
    assert "Neither overtakes the other" in words(trained, 0)
    assert "they go around each other" in words(trained, 1)
    assert "f reads different h′ at the same h" in words(trained, 2)
    short = words(trained, 1, arrived=np.array([True, False]))
    assert short.endswith("The points have crossed, but are not at their rings yet.")
    h = np.linspace([-1.0, 1.0], [2e-3, -2e-3], FRAMES)[..., None]
    assert words(trained, 2, h=h, arrived=np.array([False, False])) == (
        "Blue ends at 0.00, orange at 0.00. The points have not swapped. They end at the same place.")
    plane = SideBySide(PlaygroundSettings(problem="circles"))
    assert "of 150 points end on their side of the dashed line" in words(plane, 0)
    assert "weights of attention are between" in words(plane, 2)


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
    assert (len(steps) <= MOST + 2, steps == values, steps[0], steps[-1]) == (True, True, 1, 5000)
