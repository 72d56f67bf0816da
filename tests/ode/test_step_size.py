"""The step-size rules: closed forms, and the same result for numbers and for tensors."""

from __future__ import annotations

import math

import pytest
import torch

from acenode.ode.step_size import GROW, SAFETY, SHRINK, first_step_size, next_step_size, trial_step_size

NORMS = [0.0, 1e-16, 1e-6, 1e-5, 0.3, 1.0, 250.0, 1e8]


def double(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_first_step_of_exponential_decay() -> None:
    """y' = -y from y = 1 with a tolerance of 1e-4: norms of state and slope are 1e4, the slope's change h0 · 1e4."""
    h0 = trial_step_size(1e4, 1e4)
    assert h0 == pytest.approx(0.01)
    assert first_step_size(h0, 1e4, 0.01 * 1e4, order=5) == pytest.approx((0.01 / 1e4) ** (1 / 5))


def test_first_step_grows_at_most_a_hundredfold_from_the_trial_step() -> None:
    assert first_step_size(1e-6, 1e-12, 0.0, order=5) == pytest.approx(1e-4)
    assert first_step_size(0.01, 0.0, 0.0, order=5) == pytest.approx(1e-5)  # a constant solution


@pytest.mark.parametrize("order", [2, 3, 5, 8])
def test_next_step_follows_the_error_within_its_bounds(order: int) -> None:
    assert next_step_size(0.1, 0.5, True, order) == pytest.approx(0.1 * max(1.0, SAFETY * 0.5 ** (-1 / order)))
    assert next_step_size(-0.1, 2.0, False, order) == pytest.approx(0.1 * SAFETY * 2.0 ** (-1 / order))
    assert next_step_size(0.1, 0.0, True, order) == pytest.approx(0.1 * GROW)
    assert next_step_size(0.1, 1e30, False, order) == pytest.approx(0.1 * SHRINK)
    assert next_step_size(0.1, math.nan, False, order) == pytest.approx(0.1 * SHRINK)
    assert next_step_size(0.1, 0.99, True, order) == pytest.approx(0.1)  # never smaller after an accepted step


def test_numbers_and_tensors_get_the_same_sizes() -> None:
    pairs = [(x, y) for x in NORMS for y in NORMS]
    x, y = double(*(a for a, _ in pairs)), double(*(b for _, b in pairs))
    h0 = trial_step_size(x, y)
    assert h0.tolist() == pytest.approx([trial_step_size(*pair) for pair in pairs], rel=1e-14)
    first = first_step_size(h0, y, x, 5)
    assert first.tolist() == pytest.approx(
        [first_step_size(h, b, a, 5) for h, (a, b) in zip(h0.tolist(), pairs, strict=True)], rel=1e-14)
    ratios = [*NORMS, math.inf, math.nan]
    sizes = next_step_size(torch.full((len(ratios),), -0.1, dtype=torch.float64), double(*ratios),
                           double(*ratios) <= 1, 5)
    assert sizes.tolist() == pytest.approx([next_step_size(-0.1, r, r <= 1, 5) for r in ratios], rel=1e-7)


@pytest.mark.parametrize("h0", [0.0, math.inf, math.nan])
def test_an_invalid_trial_step_gives_no_first_step(h0: float) -> None:
    assert math.isnan(first_step_size(double(h0), double(1.0), double(1.0), 5))
