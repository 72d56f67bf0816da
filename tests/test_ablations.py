"""Every method and every ablation value trains on the bundled digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from acenode import experiments
from acenode.config import FIXED_STEP
from acenode.execute import Outcome
from acenode.solver import METHODS

ONE_STEP: dict[str, Any] = {"batch_size": 1151, "solver": "rk4", "step_size": 0.5}
VALUES: list[dict[str, Any]] = [
    {"attention": "fixed"}, {"attention": "none"}, {"attention": "fixed", "initial": "conv"},
    {"attention": "fixed", "initial": "dense"}, {"initial": "correlation"}, {"initial": "dense"}, {"q_layers": 2},
    {"f_layers": 2}, {"schedule": "joint"}, {"schedule": "epoch", "epochs": 2}, {"penalty": "l1"}, {"penalty": "none"},
    {"penalty_weight": 0.0}, {"detach_attention": True}, {"size": "large"}, {"gradient": "checkpointed"},
    {"gradient": "adjoint"}, {"weight_decay": 1e-4}, {"stem_padding": 0}, {"engine": "reference"},
]


def ident(given: dict[str, Any]) -> str:
    return ",".join(f"{k}={v}" for k, v in given.items())


@pytest.mark.parametrize("experiment", experiments.EXPERIMENTS)
@pytest.mark.parametrize("method", experiments.get("mnist").methods)
def test_every_method(experiment: str, method: str, train: Callable[..., Outcome]) -> None:
    given = {"batch_size": 1151} | ({} if method in ("resnet", "rknet") else ONE_STEP)
    outcome = train(method, experiment, **given)
    assert outcome.state == "finished", outcome.error


@pytest.mark.parametrize("given", VALUES, ids=ident)
def test_every_ablation_value(given: dict[str, Any], train: Callable[..., Outcome]) -> None:
    outcome = train("ace", **{**ONE_STEP, **given})
    assert outcome.state == "finished", outcome.error
    last = outcome.run.metrics()[0][0]
    assert ("L_a" in last) == (given.get("attention", "evolving") == "evolving" and given.get("schedule") != "epoch")


@pytest.mark.parametrize("solver", METHODS)
def test_every_solver(solver: str) -> None:
    """One loss and its gradient; the multistep and SciPy ones by the adjoint."""
    given: dict[str, Any] = {"solver": solver, "batch_size": 16}
    if solver in FIXED_STEP:
        given["step_size"] = 0.25
    if solver == "scipy_solver":
        given["gradient"] = "adjoint"
    experiment = experiments.get("mnist")
    task = experiment.make(experiment.configure("ace", **given), None, torch.device("cpu"))  # type: ignore[arg-type]
    loss = task.loss(task.batch(0, 0), detach_attention=False)
    loss.task.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in task.model.parameters())


def test_seminorm(train: Callable[..., Outcome]) -> None:
    outcome = train("ace", batch_size=1151, gradient="adjoint", seminorm=True)
    assert outcome.state == "finished", outcome.error


def test_fixed_attention_is_the_correlations_by_default() -> None:
    assert experiments.get("mnist").configure("ace", attention="fixed").initial == "correlation"


def test_an_adaptive_solver_lets_batch_mates_move_a_prediction_within_its_tolerance_only() -> None:
    """The step size is shared by a batch; nothing else of the mates is felt. With the default solver and tolerance."""
    experiment = experiments.get("mnist")
    config = experiment.configure("ace")
    task = experiment.make(config, None, torch.device("cpu"))  # type: ignore[arg-type]
    task.model.eval()
    x, _ = task.batch(0, 0)
    with torch.no_grad():
        alone = torch.cat([task.model(image[None]) for image in x[:8]])
        together = task.model(x)[:8]
    assert (alone - together).abs().max() < (config.atol or 0) * 3


def test_a_prediction_of_a_trained_model_does_not_depend_on_its_batch() -> None:
    experiment = experiments.get("mnist")
    for initial in ("conv", "correlation"):
        task = experiment.make(experiment.configure("ace", initial=initial, solver="rk4", batch_size=64),
                               None, torch.device("cpu"))  # type: ignore[arg-type]
        task.model.train()
        task.loss(task.batch(0, 0), detach_attention=False)  # the running average has seen something
        task.model.eval()
        x, _ = task.batch(0, 1)
        with torch.no_grad():
            alone, together = task.model(x[:1]), task.model(x)[:1]
        assert torch.allclose(alone, together, atol=1e-5)
