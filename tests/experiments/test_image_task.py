"""The image experiments on the bundled digits: every method, every ablation value, samples that do not interact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from acenode import experiments
from acenode.config import FIXED_STEP
from acenode.experiments.image_task import ImageTask
from acenode.ode.options import METHODS

ONE_STEP: dict[str, Any] = {"solver": "rk4", "step_size": 0.5}
VALUES: list[dict[str, Any]] = [  # besides those of same_numbers.py
    {"attention": "fixed", "initial": "conv"}, {"attention": "fixed", "initial": "dense"}, {"initial": "correlation"},
    {"q_layers": 2}, {"f_layers": 2},
]


def ident(given: dict[str, Any]) -> str:
    return ",".join(f"{k}={v}" for k, v in given.items())


def task(method: str = "ace", experiment: str = "mnist", **given: Any) -> ImageTask:
    entry = experiments.get(experiment)
    made = entry.make(entry.configure(method, **given), Path(), torch.device("cpu"))
    assert isinstance(made, ImageTask)
    return made


def check_gradients(made: ImageTask) -> None:
    made.loss(made.batch(0, 0), detach_attention=False).task.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in made.model.parameters())


@pytest.mark.parametrize("given", VALUES, ids=ident)
def test_every_ablation_value_has_gradients(given: dict[str, Any]) -> None:
    check_gradients(task(batch_size=16, **{**ONE_STEP, **given}))


@pytest.mark.parametrize("solver", METHODS)
def test_every_solver_has_gradients(solver: str) -> None:
    """SciPy's solver needs the adjoint, and dopri5 is tested with it too."""
    given: dict[str, Any] = {"solver": solver, "batch_size": 16}
    if solver in ("dopri5", "scipy_solver"):
        given |= {"gradient": "adjoint", "seminorm": True}
    check_gradients(task(**given, **({"step_size": 0.25} if solver in FIXED_STEP else {})))


@pytest.mark.parametrize("given", [
    {}, {"initial": "correlation"}, {"attention": "fixed"}, {"attention": "none"}, {"gradient": "adjoint"},
    {"gradient": "checkpointed"}, {"solver": "bosh3"}, {"solver": "dopri8"}, {"solver": "rk4"}], ids=ident)
def test_a_prediction_does_not_depend_on_its_batch(given: dict[str, Any]) -> None:
    """With the default solver and tolerance, and with every setting that could make samples interact."""
    made = task(**given)
    made.model.train()
    made.loss(made.batch(0, 0), detach_attention=False)  # fills the running average
    x, _ = made.batch(0, 1)
    x[8:] *= 3  # other samples of the batch need smaller steps
    made.model.eval()
    with torch.no_grad():
        alone = torch.cat([made.model(image[None]) for image in x[:8]])
        assert torch.allclose(alone, made.model(x)[:8], atol=2e-5)
        if not given:  # the batch shares its steps in training: the test can fail
            assert (made.model.train()(x[:1]) - made.model(x)[:1]).abs().max() > 1e-4
