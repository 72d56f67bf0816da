"""Passes in one recording, for ResNet and for fixed steps with adjoint gradients; without a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from eager_recorder import train
from graph_training import gradients
from problems import co_evolving, relative

from acenode import Solver, solve
from acenode.accelerate.cuda_graph.step_control import StepOperations
from acenode.accelerate.cuda_graph.steps import AdjointSteps, can_record_adjoint
from acenode.device.torch_private import add_all


@pytest.mark.parametrize("solver", [
    Solver("rk4", gradient="adjoint"), Solver("rk4", step_size=0.3, gradient="adjoint"),
    Solver("euler", step_size=0.125, gradient="adjoint"), Solver("heun2", step_size=0.5, gradient="adjoint")], ids=str)
def test_adjoint_steps_equal_those_of_torchdiffeq(solver: Solver) -> None:
    assert can_record_adjoint(solver)
    layer = co_evolving("elementwise", solver, d=3)
    h0 = 2 * torch.randn(4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    field, state = layer.system(h0, False)
    y = tuple(b.detach().requires_grad_() for b in state)
    expected = solve(field, y, [0.0, 1.0], solver)
    exact = torch.autograd.grad(expected.states[0][-1].sin().sum(), (*y, *field.parameters()))

    steps = AdjointSteps(tuple(b.detach() for b in y), (0.0, 1.0), solver, StepOperations(h0.device))
    end = steps.forward(field, tuple(b.detach() for b in y))
    h1 = end[0].clone().requires_grad_()
    (grad,) = torch.autograd.grad(h1.sin().sum(), h1)
    parameters = list(field.parameters())
    total = [torch.zeros_like(p) for p in parameters]
    start = steps.backward(field, end, (grad, torch.zeros_like(end[1])), parameters,
                           lambda found: add_all(total, found))
    assert relative(end[0], expected.states[0][-1]) < 1e-12
    for mine, theirs in zip((*start, *total), exact, strict=True):
        assert relative(mine, theirs) < 1e-10
    cost, theirs = steps.evaluations(), expected.evaluations
    assert (cost.forward, cost.backward) == (theirs.forward, theirs.backward)
    assert cost.step_sizes == pytest.approx(theirs.step_sizes)


@pytest.mark.parametrize(("solver", "recorded"), [
    (Solver("rk4", step_size=1.0, gradient="adjoint"), True), (Solver("dopri5", gradient="adjoint"), False),
    (Solver("rk4", step_size=0.01, gradient="adjoint"), False), (Solver("rk4", step_size=1.0), False),
    (Solver("midpoint", gradient="adjoint"), False),  # its first stage has no weight
    (Solver("rk4", step_size=1.0, gradient="adjoint", engine="reference"), False)], ids=str)
def test_which_adjoint_solves_are_recorded(solver: Solver, recorded: bool) -> None:
    assert can_record_adjoint(solver) == recorded


@pytest.mark.parametrize(("method", "settings"), [
    ("resnet", {}), ("resnet", {"weight_decay": 1e-3, "momentum": 0.0}), ("rknet", {}), ("rknet", {"step_size": 0.4}),
    ("ace", {"solver": "rk4", "step_size": 0.5, "gradient": "adjoint", "initial": "correlation"}),
    ("ace", {"solver": "euler", "step_size": 0.25, "gradient": "adjoint", "detach_attention": True}),
    ("augmented", {"solver": "rk4", "step_size": 1.0, "gradient": "adjoint"})])
def test_iterations_equal_those_without_the_engine(method: str, settings: dict[str, Any]) -> None:
    log: list[str] = []
    (plain, expected), (made, found) = (train(engine, 3, method, log, **settings) for engine in (False, True))
    assert log
    assert all("recorded in" in line and "as one graph" in line for line in log), log
    assert len(found) == len(expected) == 3
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.keys() == theirs.keys()
        assert mine == pytest.approx(theirs, rel=1e-3, abs=1e-6)
    assert relative(gradients(made), gradients(plain)) < 1e-3
    for name, tensor in plain.task.model.state_dict().items():
        assert relative(made.task.model.state_dict()[name], tensor) < 1e-4, name


def test_a_pass_in_one_recording_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass is tried out before it is recorded; what the trial changed is undone, and training goes on without."""
    def refuses(self: object, work: object) -> None:
        raise RuntimeError("no such operation")

    monkeypatch.setattr("eager_recorder.ImmediateRecorder.record", refuses)
    log: list[str] = []
    (plain, _), (made, _) = train(False, method="resnet"), train(True, method="resnet", log=log)
    assert log == ["graph engine not used: RuntimeError: no such operation; training without it"]
    for name, tensor in plain.task.model.state_dict().items():
        assert torch.equal(made.task.model.state_dict()[name], tensor), name
