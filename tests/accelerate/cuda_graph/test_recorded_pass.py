"""The mathematics of recorded passes, computed directly instead of recorded, so that no GPU is needed."""

from __future__ import annotations

import dataclasses
import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from eager_recorder import train
from graph_training import gradients
from problems import co_evolving, hasten, relative
from torch import Tensor, nn

from acenode import ACENODE, Elementwise, SolveError, Solver, solve
from acenode.accelerate.cuda_graph.engine import GraphEngine
from acenode.accelerate.cuda_graph.fields import CompiledField, LayerKernels, field_function
from acenode.accelerate.cuda_graph.passes import MAX_KEPT
from acenode.accelerate.cuda_graph.step_control import RUNNING, SolveStatus, StepOperations
from acenode.accelerate.cuda_graph.steps import DeviceSteps
from acenode.device.torch_private import add_all
from acenode.models.image import ConvAttention, ConvField
from acenode.models.layers import initialise
from acenode.ode.tableaus import TABLEAUS
from acenode.training.passes import OptimiserGroup


def march(steps: DeviceSteps, field: nn.Module, y: tuple[Tensor, ...], extra: int = 0) -> SolveStatus:
    """Solve to the end, and attempt some more steps, which must have no effect."""
    steps.begin(field, y)
    while True:
        steps.attempt(field)
        steps.control.send_to_host()
        status = steps.control.read()
        if status.status != RUNNING:
            break
    for _ in range(extra):
        steps.attempt(field)
    return status


@pytest.mark.parametrize("solver", [
    Solver("dopri5", 1e-7, 1e-7), Solver("tsit5", 1e-5, 1e-5), Solver("bosh3", 1e-4, 1e-4),
    Solver("fehlberg2", 1e-3, 1e-3), Solver("dopri8", 1e-6, 1e-6), Solver("rk4", step_size=0.3),
    Solver("euler", step_size=0.1), Solver("midpoint")], ids=lambda solver: solver.method)
def test_device_steps_equal_the_steps_of_solve(solver: Solver) -> None:
    layer = co_evolving("elementwise", solver, d=3)
    h0 = 2 * torch.randn(4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    field, state = layer.system(h0, False)
    y = tuple(b.detach().requires_grad_() for b in state)
    expected = solve(field, y, [0.0, 2.0], solver)
    gradients = torch.autograd.grad(expected.states[0][-1].sin().sum(), (*y, *field.parameters()))

    steps = DeviceSteps(tuple(b.detach() for b in y), (0.0, 2.0), solver, StepOperations(h0.device))
    status = march(steps, field, tuple(b.detach() for b in y), extra=2)
    end = steps.end_state()[0].requires_grad_()
    parameters = list(field.parameters())
    total = [torch.zeros_like(p) for p in parameters]
    steps.begin_backward((*torch.autograd.grad(end.sin().sum(), end), None))
    for _ in status.step_sizes:
        steps.step_back(field, parameters, lambda found: add_all(total, found))
    start = steps.back_to_start(field, parameters, lambda found: add_all(total, found))

    assert status.step_sizes == pytest.approx(expected.evaluations.step_sizes, rel=1e-12)
    more = 0 if TABLEAUS[solver.method].adaptive else 1  # the slope at the very end
    assert steps.evaluations(status, 0).forward == expected.evaluations.forward + more
    assert relative(end, expected.states[0][-1]) < 1e-12
    for found, exact in zip((*start, *total), gradients, strict=True):
        assert relative(found, exact) < 1e-10


class BlowsUp(nn.Module):
    """y' = y², which reaches infinity at t = 1; with a NaN factor NaN at once."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, t: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (self.factor * state[0].square(),)


PLACE = re.compile(r", in sample \d+, in h\[\d+\], after \d+ evaluations")  # a recorded pass does not know it


@pytest.mark.parametrize(("factor", "start", "settings"), [
    (1.0, 1.0, {"rtol": 1e-4}), (float("nan"), 1.0, {}), (float("inf"), 1.0, {}), (1.0, float("inf"), {}),
    (1.0, 0.5, {"max_steps": 4}), (1.0, 1e200, {"method": "rk4", "step_size": 0.5}),
    (1.0, 1e10, {"method": "euler", "step_size": 0.2})])
def test_errors_have_the_words_of_solve(factor: float, start: float, settings: dict[str, Any]) -> None:
    y, solver = (torch.tensor([[start]], dtype=torch.float64),), Solver(**{"rtol": 1e-8, "atol": 1e-8} | settings)
    with pytest.raises(SolveError) as expected:
        solve(BlowsUp(factor), y, [0.0, 2.0], solver)
    steps = DeviceSteps(y, (0.0, 2.0), solver, StepOperations(y[0].device), capacity=2000)
    with pytest.raises(SolveError) as found:
        march(steps, BlowsUp(factor), y).check(steps.span)
    assert str(found.value) == PLACE.sub("", str(expected.value))


@pytest.mark.parametrize("channels", [64, 69])
def test_the_compiled_function_equals_the_field(channels: int) -> None:
    field = ConvField(channels)
    initialise(field, 0)
    field.double()
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(3, channels, 5, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    t, made = torch.tensor(0.3, dtype=torch.float64), CompiledField(field, h.detach())
    expected, found = field(h, t), field_function(h, t, made.inside, made.norms, made.shapes, made.convs)
    assert relative(found, expected) < 1e-12
    gradients = [torch.autograd.grad(y.sin().sum(), (h, *field.parameters())) for y in (expected, found)]
    for exact, mine in zip(*gradients, strict=True):
        assert relative(mine, exact) < 1e-12


def test_kernels_replace_the_fields_of_a_system_and_not_of_the_layer() -> None:
    layer = ACENODE(ConvField(4), ConvField(4), ConvAttention(4), attend=Elementwise(), solver=Solver("euler"))
    f, g, h0 = layer.f, layer.g, torch.zeros(2, 4, 3, 3)
    kernels = LayerKernels(layer, (h0, h0), stages=1, kernels=False, compiles=False)
    assert (kernels.fields, kernels.fields_by) == ([f, g], "torch")
    kernels.implementations = {f: lambda h, t: torch.full_like(h, 2.0), g: lambda h, t: torch.full_like(h, 3.0)}
    field, state = layer.system(h0, False)
    plain = list(field.parameters())
    for substituted in (kernels.substitute(field), _with_pair(kernels).substitute(layer.system(h0, False)[0])):
        assert [float(k.mean().detach()) for k in substituted(torch.zeros(()), state)] == [2.0, 3.0]
        assert all(a is b for a, b in zip(substituted.parameters(), plain, strict=True))
    assert (layer.f, layer.g) == (f, g)


def _with_pair(kernels: LayerKernels) -> LayerKernels:
    kernels.implementations = {}
    kernels.pair = SimpleNamespace(
        of_attended=lambda t, h, a, detach: (torch.full_like(h, 2.0), torch.full_like(a, 3.0)))
    return kernels


@pytest.mark.parametrize(("method", "settings"), [
    ("ace", {"initial": "correlation", "weight_decay": 1e-3}),
    ("ace", {"schedule": "joint", "gradient": "checkpointed"}),
    ("ace", {"detach_attention": True, "penalty": "l1"}), ("ace", {"attention": "fixed"}),
    ("ace", {"attention": "fixed", "initial": "conv", "gradient": "checkpointed"}),
    ("augmented", {"solver": "bosh3", "momentum": 0.0}),
    ("ace", {"solver": "rk4", "step_size": 0.4}),
    ("odenet", {"solver": "euler", "step_size": 0.05}), ("rknet", {"step_size": 1.0, "gradient": "backprop"}),
    ("ace", {"solver": "midpoint", "step_size": 0.5, "attention": "fixed", "initial": "conv",
             "gradient": "checkpointed"})])
def test_iterations_equal_those_without_the_engine(method: str, settings: dict[str, Any]) -> None:
    log: list[str] = []
    (plain, expected), (made, found) = (train(engine, method=method, log=log, **settings) for engine in (False, True))
    assert all("recorded in" in line for line in log), log
    adaptive = TABLEAUS[made.task.layer.solver.method].adaptive  # type: ignore[attr-defined]
    for name, tensor in plain.task.model.state_dict().items():
        assert relative(made.task.model.state_dict()[name], tensor) < 1e-4, name
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.keys() == theirs.keys()
        for key in ("L_h", "accuracy", "grad_h", "steps"):
            assert mine[key] == pytest.approx(theirs[key], rel=1e-3), key
        assert mine["nfe_forward"] - theirs["nfe_forward"] == (not adaptive)  # the slope at the very end
    assert made.main_optimiser.state_dict()["param_groups"] == plain.main_optimiser.state_dict()["param_groups"]
    states = [t.main_optimiser.state_dict()["state"] for t in (made, plain)]
    assert states[0].keys() == states[1].keys()


@pytest.mark.parametrize(("factor", "kept"), [(30, True), (400, False)])
def test_rejected_steps_are_not_differentiated(factor: float, kept: bool) -> None:
    """Neither among the first attempts, whose graphs are kept, nor among later ones."""
    settings = {"rtol": 1e-3, "atol": 1e-3, "learning_rate": 1e-12}
    (plain, expected), (made, found) = (train(engine, 3, "odenet", factor=factor, **settings)
                                        for engine in (False, True))
    assert found[-1]["rejected"]
    assert (found[-1]["nfe_backward"] == 1) == kept
    assert [r["steps"] for r in found] == [r["steps"] for r in expected]
    assert relative(gradients(made), gradients(plain)) < 1e-2


def test_attempts_after_the_end_update_no_average() -> None:
    """Fixed attention averages correlations; a replay may attempt more steps than the solve needs."""
    (plain, _), (made, _) = (train(engine, 1, attention="fixed") for engine in (False, True))
    assert isinstance(made.engine, GraphEngine)
    made.engine.passes["one"].expected += 2
    for trainer in (plain, made):
        trainer.train_batch()
    seen = [trainer.task.model.ode.q.seen for trainer in (plain, made)]
    assert float(seen[0].sum()) > 0
    assert torch.equal(*seen)


@pytest.mark.parametrize(("first", "then", "disabled"), [(1, 200, False), (200, 10, True), (2000, 1, True)])
def test_correlations_are_averaged_in_order(first: float, then: float, disabled: bool) -> None:
    """By attempts whose graphs are kept; a solve that takes more, the first or a later one, disables the engine."""
    settings = {"attention": "fixed", "rtol": 1e-3, "atol": 1e-3, "learning_rate": 1e-12}
    log: list[str] = []
    plain, made = (train(engine, 1, log=log, factor=first, **settings)[0] for engine in (False, True))
    for trainer in (plain, made):
        hasten(trainer.task.layer, then)  # type: ignore[attr-defined]
        record = trainer.train_batch()
        assert (record["steps"] + record["rejected"] > MAX_KEPT) == disabled
    assert isinstance(made.engine, GraphEngine)
    assert made.engine.disabled == disabled
    assert ("graph engine not used: fixed attention can average correlations only in solves of at most 16 steps; "
            "training without it"
            in log) == disabled
    for name, tensor in plain.task.layer.named_buffers():  # type: ignore[attr-defined]
        assert relative(dict(made.task.layer.named_buffers())[name], tensor) < 1e-4, name  # type: ignore[attr-defined]


@pytest.mark.parametrize(("settings", "by_graph"), [
    ({"momentum": 0.9, "nesterov": True}, True), ({"momentum": 0.9, "maximize": True}, True),
    ({"momentum": 0.9, "dampening": 0.5}, False)])
def test_sgd_updates_equal_those_of_torch(settings: dict[str, Any], by_graph: bool) -> None:
    log: list[str] = []
    found = []
    for engine in (False, True):
        trainer = train(engine, 0, "odenet", log=log)[0]
        (group,) = trainer.phase_one.groups
        optimiser = torch.optim.SGD(group.parameters, lr=1e-3, **settings)
        trainer.main_optimiser = optimiser
        groups = (OptimiserGroup(group.parameters, optimiser),)
        trainer.phase_one = dataclasses.replace(trainer.phase_one, groups=groups)
        for _ in range(3):
            trainer.train_batch()
        found.append(torch.cat([p.detach().flatten() for p in trainer.task.model.parameters()]))
    assert relative(*found) < 1e-5
    assert ("graph engine not used: the optimiser is not plain SGD; training without it" in log) != by_graph
