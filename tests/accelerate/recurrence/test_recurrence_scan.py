"""Recurrent cells as one autograd node on a CPU, compared with the plain loop and with central differences."""

from __future__ import annotations

import pytest
import torch
from scan_problems import CELLS, make
from torch import Tensor

from acenode.accelerate.recurrence.scan import scan
from acenode.backend import ACCELERATED


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize(("B", "T", "size"), [(5, 9, 4), (1, 1, 3), (3, 6, 1)])
def test_states_and_gradients_equal_those_of_the_plain_loop(name: str, B: int, T: int, size: int) -> None:
    problem = make(name, B, T, size)
    for found, exact in zip(problem.by_scan(), problem.by_loop(), strict=True):
        assert torch.allclose(found, exact, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", CELLS)
def test_gradients_agree_with_central_differences(name: str) -> None:
    problem = make(name, 3, 4, 2, units=3)

    def states(*_: Tensor) -> Tensor:  # gradcheck changes the leaves in place
        return scan(ACCELERATED, problem.cell, problem.mask, problem.start, problem.rows, problem.weights)

    assert torch.autograd.gradcheck(states, problem.leaves())


@pytest.mark.parametrize("name", CELLS)
def test_the_state_stays_where_the_mask_is_false(name: str) -> None:
    problem = make(name, 4, 6, 3)
    states = problem.by_scan()[0]
    before = torch.cat((problem.start.detach()[:, None], states[:, :-1]), 1)
    assert torch.equal(states[~problem.mask], before[~problem.mask])
    assert not torch.isclose(states[problem.mask], before[problem.mask]).any()
