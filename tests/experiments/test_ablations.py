"""Every method and every ablation value trains on the bundled digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from acenode import experiments
from acenode.config import FIXED_STEP
from acenode.execution.execute import Outcome
from acenode.ode.options import METHODS

ONE_STEP: dict[str, Any] = {"batch_size": 288, "solver": "rk4", "step_size": 0.5}
VALUES: list[dict[str, Any]] = [
    {"attention": "fixed"}, {"attention": "none"}, {"attention": "fixed", "initial": "conv"},
    {"attention": "fixed", "initial": "dense"}, {"initial": "correlation"}, {"initial": "dense"}, {"q_layers": 2},
    {"f_layers": 2}, {"schedule": "joint"}, {"schedule": "epoch", "epochs": 2}, {"penalty": "l1"}, {"penalty": "none"},
    {"penalty_weight": 0.0}, {"detach_attention": True}, {"size": "large"}, {"gradient": "checkpointed"},
    {"gradient": "adjoint"}, {"weight_decay": 1e-4}, {"engine": "reference"},
]


def ident(given: dict[str, Any]) -> str:
    return ",".join(f"{k}={v}" for k, v in given.items())


@pytest.mark.parametrize("experiment", ["mnist", "svhn", "cifar10"])
@pytest.mark.parametrize("method", experiments.get("mnist").methods)
def test_every_method_trains(experiment: str, method: str, train: Callable[..., Outcome]) -> None:
    given = {"batch_size": 288} | ({} if method in ("resnet", "rknet") else ONE_STEP)
    outcome = train(method, experiment, **given)
    assert outcome.state == "finished", outcome.error


@pytest.mark.parametrize("given", VALUES, ids=ident)
def test_every_ablation_value_trains(given: dict[str, Any], train: Callable[..., Outcome]) -> None:
    outcome = train("ace", **{**ONE_STEP, **given})
    assert outcome.state == "finished", outcome.error
    last = outcome.run.metrics()[0][0]
    assert ("L_a" in last) == (given.get("attention", "evolving") == "evolving" and given.get("schedule") != "epoch")


@pytest.mark.parametrize("solver", METHODS)
def test_every_solver_gives_finite_gradients(solver: str) -> None:
    """Compute one loss and its gradient; SciPy's solver needs the adjoint, and dopri5 is tested with it too."""
    given: dict[str, Any] = {"solver": solver, "batch_size": 16}
    if solver == "dopri5":
        given |= {"gradient": "adjoint", "seminorm": True}
    if solver in FIXED_STEP:
        given["step_size"] = 0.25
    if solver == "scipy_solver":
        given["gradient"] = "adjoint"
    experiment = experiments.get("mnist")
    task = experiment.make(experiment.configure("ace", **given), None, torch.device("cpu"))  # type: ignore[arg-type]
    loss = task.loss(task.batch(0, 0), detach_attention=False)
    loss.task.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in task.model.parameters())


def test_fixed_attention_uses_the_correlation_by_default() -> None:
    assert experiments.get("mnist").configure("ace", attention="fixed").get("initial") == "correlation"


@pytest.mark.parametrize("given", [
    {}, {"initial": "correlation"}, {"attention": "fixed"}, {"attention": "none"}, {"gradient": "adjoint"},
    {"gradient": "checkpointed"}, {"solver": "tsit5"}, {"solver": "bosh3"}, {"solver": "dopri8"}, {"solver": "rk4"},
], ids=ident)
def test_a_prediction_does_not_depend_on_its_batch(given: dict[str, Any]) -> None:
    """With the default solver and tolerance, and with every setting that could make samples interact."""
    experiment = experiments.get("mnist")
    task = experiment.make(experiment.configure("ace", **given), None, torch.device("cpu"))  # type: ignore[arg-type]
    task.model.train()
    task.loss(task.batch(0, 0), detach_attention=False)  # fills the running average
    x, _ = task.batch(0, 1)
    x[8:] *= 3  # other samples of the batch need smaller steps
    task.model.eval()
    with torch.no_grad():
        alone = torch.cat([task.model(image[None]) for image in x[:8]])
        together = task.model(x)[:8]
    assert torch.allclose(alone, together, atol=2e-5), (alone - together).abs().max()


def test_in_training_mode_a_prediction_depends_on_its_batch() -> None:
    """The step size is shared by the batch then; shows that the test above can fail."""
    experiment = experiments.get("mnist")
    task = experiment.make(experiment.configure("ace"), None, torch.device("cpu"))  # type: ignore[arg-type]
    x, _ = task.batch(0, 1)
    x[8:] *= 3
    with torch.no_grad():
        assert (task.model.train()(x[:1]) - task.model(x)[:1]).abs().max() > 1e-4
