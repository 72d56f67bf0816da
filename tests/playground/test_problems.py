"""The problems of the playground: points, goals, and drawn paths."""

from __future__ import annotations

import math

import pytest
import torch

from acenode.playground.picture import FRAMES
from acenode.playground.problems import PROBLEMS, drawn
from acenode.playground.settings import PROBLEM_NAMES


def test_every_problem_has_a_name_that_a_page_can_ask_for() -> None:
    assert tuple(PROBLEMS) == PROBLEM_NAMES


@pytest.mark.parametrize("name", PROBLEM_NAMES)
def test_points_start_in_view_and_away_from_their_goal(name: str) -> None:
    problem = PROBLEMS[name]()
    assert len(problem.colour) == len(problem.h0)
    assert float((problem.h0 - problem.centre).abs().max()) < problem.reach
    stay = problem.h0.expand(len(problem.times) - 1, *problem.h0.shape)
    assert not bool(problem.goal.arrived(stay).all())
    assert float(problem.goal.loss(stay)) > 0.3
    assert all(math.isclose(t * (FRAMES - 1), round(t * (FRAMES - 1))) for t in problem.times)  # pictures have them


def test_the_loss_is_zero_where_every_point_has_arrived() -> None:
    problem = PROBLEMS["swap"]()
    swapped = problem.h0.flip(0)[None]
    assert float(problem.goal.loss(swapped)) == 0
    assert problem.goal.arrived(swapped).tolist() == [True, True]
    middle = torch.full_like(swapped, problem.centre)
    assert float(problem.goal.loss(middle)) == pytest.approx(0.25)  # the best that a NODE can do


def test_sides_of_the_line() -> None:
    problem = PROBLEMS["circles"]()
    side = torch.tensor([1.0 if k else -1.0 for k in problem.colour])
    apart = torch.stack((side, torch.zeros_like(side)), -1)[None]
    assert bool(problem.goal.arrived(apart).all())
    assert not bool(problem.goal.arrived(-apart).any())
    assert float(problem.goal.loss(apart)) < 0.05 < 1 < float(problem.goal.loss(-apart))


def test_a_point_follows_its_drawn_path_at_constant_speed() -> None:
    problem = drawn([[(0.0, 0.0), (0.1, 0.0), (1.0, 0.0), (1.0, 0.5)]])  # length 1.5, unevenly drawn
    assert problem.h0.tolist() == [[0.0, 0.0]]
    targets = problem.goal.targets[:, 0]  # type: ignore[attr-defined]
    expected = torch.tensor([[0.25, 0], [0.5, 0], [0.75, 0], [1, 0], [1, 0.25], [1, 0.5]])
    assert torch.allclose(targets, expected, atol=1e-5)
