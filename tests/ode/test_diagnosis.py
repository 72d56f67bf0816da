"""A step size that underflows is reported with time, sample, variable, evaluations and remedies."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import Tensor

from acenode import SolveError, Solver, solve

State = tuple[Tensor, ...]


def blow_up(t: Tensor, y: State) -> State:
    """y' = y² for one entry, infinite at t = 1/y(0) = 0.25, and y' = -y for the others."""
    grows = torch.zeros_like(y[0])
    grows[y[0] > 3] = 1.0
    return torch.where(grows > 0, y[0] ** 2, -y[0]), -y[1]


START = (torch.tensor([[0.1, 0.2, 0.3], [0.1, 0.2, 4.0]], dtype=torch.float64), torch.ones(2, 5, dtype=torch.float64))
REMEDIES = "loosen rtol and atol; then lower the learning rate; then use a fixed-step solver such as rk4"


@pytest.mark.parametrize("engine", ["auto", "reference"])
@pytest.mark.parametrize("per_sample", [False, True])
def test_underflow_names_time_sample_variable_evaluations_and_remedies(per_sample: bool, engine: str) -> None:
    solver = Solver(rtol=1e-4, atol=1e-4, max_steps=10_000, engine=engine)  # type: ignore[arg-type]
    with pytest.raises(SolveError) as caught:
        solve(blow_up, START, [0.0, 1.0], solver, per_sample=per_sample)
    error = caught.value
    assert error.t == pytest.approx(0.25, abs=1e-3)
    assert (error.sample, error.variable) == (1, "h[2]")
    assert error.evaluations is not None
    assert error.evaluations > 50
    assert str(error).endswith(f", in sample 1, in h[2], after {error.evaluations} evaluations: {REMEDIES}")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.sample, again.variable) == (str(error), 1, "h[2]")


@pytest.mark.parametrize("per_sample", [False, True])
def test_a_nan_names_the_entry_that_became_nan(per_sample: bool) -> None:
    def field(t: Tensor, y: State) -> State:
        bad = torch.zeros_like(y[1])
        bad[1 if len(bad) > 1 else 0, 3] = torch.nan
        return -y[0], torch.where(torch.as_tensor(t > 0.5), bad, 0.0) - y[1]

    with pytest.raises(SolveError, match="NaN or infinity at t=0.*in sample 1, in a.3., after") as caught:
        solve(field, START, [0.0, 1.0], Solver(rtol=1e-3, atol=1e-3), per_sample=per_sample)
    assert caught.value.variable == "a[3]"
