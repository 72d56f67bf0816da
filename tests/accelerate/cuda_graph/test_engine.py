"""The graph engine's mathematics, done at once instead of recorded, so that it can be checked without a GPU."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from at_once import train
from graph_training import gradients
from problems import co_evolving, hasten, relative
from torch import Tensor, nn

from acenode import SolveError, Solver, solve
from acenode.accelerate.cuda_graph.compiled import CompiledField, whole
from acenode.accelerate.cuda_graph.control import RUNNING, Told
from acenode.accelerate.cuda_graph.graph import GraphEngine
from acenode.accelerate.cuda_graph.graphed import REMEMBERED
from acenode.accelerate.cuda_graph.operations import Operations
from acenode.accelerate.cuda_graph.steps import Steps
from acenode.accelerate.torch_private import add_all
from acenode.models.image.model import ConvField
from acenode.models.initialise import initialise
from acenode.ode.tableaus import TABLEAUS
from acenode.training.passes import OptimiserGroup


def march(steps: Steps, field: nn.Module, y: tuple[Tensor, ...], beyond: int = 0) -> Told:
    """To the end, and some tries more, of which nothing must come."""
    steps.begin(field, y)
    while True:
        steps.attempt(field)
        steps.control.send()
        told = steps.control.read()
        if told.status != RUNNING:
            break
    for _ in range(beyond):
        steps.attempt(field)
    return told


@pytest.mark.parametrize("solver", [
    Solver("dopri5", 1e-7, 1e-7), Solver("tsit5", 1e-5, 1e-5), Solver("bosh3", 1e-4, 1e-4),
    Solver("fehlberg2", 1e-3, 1e-3), Solver("dopri8", 1e-6, 1e-6), Solver("rk4", step_size=0.3),
    Solver("euler", step_size=0.1), Solver("midpoint")], ids=lambda solver: solver.method)
def test_steps_on_the_device_are_those_of_the_reference(solver: Solver) -> None:
    layer = co_evolving("elementwise", solver, d=3)
    h0 = 2 * torch.randn(4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    field, state = layer.system(h0, False)
    y = tuple(b.detach().requires_grad_() for b in state)
    expected = solve(field, y, [0.0, 2.0], solver)
    gradients = torch.autograd.grad(expected.states[0][-1].sin().sum(), (*y, *field.parameters()))

    steps = Steps(tuple(b.detach() for b in y), (0.0, 2.0), solver, Operations(h0.device))
    told = march(steps, field, tuple(b.detach() for b in y), beyond=2)
    end = steps.end()[0].requires_grad_()
    parameters = list(field.parameters())
    total = [torch.zeros_like(p) for p in parameters]
    steps.turn((*torch.autograd.grad(end.sin().sum(), end), None))
    for _ in told.sizes:
        steps.back(field, parameters, lambda found: add_all(total, found))
    start = steps.back_to_start(field, parameters, lambda found: add_all(total, found))

    assert told.sizes == pytest.approx(expected.evaluations.step_sizes, rel=1e-12)
    more = 0 if TABLEAUS[solver.method].adaptive else 1  # the slope at the very end
    assert steps.evaluations(told, 0).forward == expected.evaluations.forward + more
    assert relative(end, expected.states[0][-1]) < 1e-12
    for found, exact in zip((*start, *total), gradients, strict=True):
        assert relative(found, exact) < 1e-10


class Explodes(nn.Module):
    """y' = y², which reaches infinity at t = 1, or NaN at once."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, t: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (self.factor * state[0].square(),)


@pytest.mark.parametrize(("factor", "start", "settings"), [
    (1.0, 1.0, {"rtol": 1e-4}), (float("nan"), 1.0, {}), (float("inf"), 1.0, {}), (1.0, float("inf"), {}),
    (1.0, 0.5, {"max_steps": 4}), (1.0, 1e200, {"method": "rk4", "step_size": 0.5}),
    (1.0, 1e10, {"method": "euler", "step_size": 0.2})])
def test_trouble_is_told_in_the_words_of_the_reference(factor: float, start: float, settings: dict[str, Any]) -> None:
    y, solver = (torch.tensor([[start]], dtype=torch.float64),), Solver(**{"rtol": 1e-8, "atol": 1e-8} | settings)
    with pytest.raises(SolveError) as expected:
        solve(Explodes(factor), y, [0.0, 2.0], solver)
    steps = Steps(y, (0.0, 2.0), solver, Operations(y[0].device), places=2000)
    with pytest.raises(SolveError) as found:
        march(steps, Explodes(factor), y).check(steps.span)
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("channels", [64, 69])
def test_what_torch_compiles_is_the_field(channels: int) -> None:
    field = ConvField(channels)
    initialise(field, 0)
    field.double()
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(3, channels, 5, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    t, made = torch.tensor(0.3, dtype=torch.float64), CompiledField(field, h.detach())
    expected, found = field(h, t), whole(h, t, made.inside, made.norms, made.shapes, made.convs)
    assert relative(found, expected) < 1e-12
    gradients = [torch.autograd.grad(y.sin().sum(), (h, *field.parameters())) for y in (expected, found)]
    for exact, mine in zip(*gradients, strict=True):
        assert relative(mine, exact) < 1e-12


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
def test_iterations_are_those_of_the_plain_trainer(method: str, settings: dict[str, Any]) -> None:
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


@pytest.mark.parametrize(("factor", "remembered"), [(30, True), (400, False)])
def test_refused_tries_are_not_gone_back_over(factor: float, remembered: bool) -> None:
    """Among the first tries, which are remembered, and among more of them."""
    settings = {"rtol": 1e-3, "atol": 1e-3, "learning_rate": 1e-12}
    (plain, expected), (made, found) = (train(engine, 3, "odenet", factor=factor, **settings)
                                        for engine in (False, True))
    assert found[-1]["rejected"]
    assert (found[-1]["nfe_backward"] == 1) == remembered
    assert [r["steps"] for r in found] == [r["steps"] for r in expected]
    assert relative(gradients(made), gradients(plain)) < 1e-2


def test_tries_after_the_end_are_not_noted() -> None:
    """Fixed attention averages what it meets; a replay may try more steps than the solve needs."""
    (plain, _), (made, _) = (train(engine, 1, attention="fixed") for engine in (False, True))
    assert isinstance(made.engine, GraphEngine)
    made.engine.passes["one"].expected += 2
    for trainer in (plain, made):
        trainer.train_batch()
    seen = [trainer.task.model.ode.q.seen for trainer in (plain, made)]
    assert float(seen[0].sum()) > 0
    assert torch.equal(*seen)


@pytest.mark.parametrize(("first", "then", "given_up"), [(1, 200, False), (200, 10, True), (2000, 1, True)])
def test_correlations_are_averaged_in_turn(first: float, then: float, given_up: bool) -> None:
    """By tries that are remembered, and natively where a solve, the first or a later one, takes more of them."""
    settings = {"attention": "fixed", "rtol": 1e-3, "atol": 1e-3, "learning_rate": 1e-12}
    log: list[str] = []
    plain, made = (train(engine, 1, log=log, factor=first, **settings)[0] for engine in (False, True))
    for trainer in (plain, made):
        hasten(trainer.task.layer, then)  # type: ignore[attr-defined]
        record = trainer.train_batch()
        assert (record["steps"] + record["rejected"] > REMEMBERED) == given_up
    assert isinstance(made.engine, GraphEngine)
    assert made.engine.given_up == given_up
    assert ("graph engine not used: correlations are averaged over 16 tries of a solve at most; training without it"
            in log) == given_up
    for name, tensor in plain.task.layer.named_buffers():  # type: ignore[attr-defined]
        assert relative(dict(made.task.layer.named_buffers())[name], tensor) < 1e-4, name  # type: ignore[attr-defined]


@pytest.mark.parametrize(("settings", "by_graphs"), [
    ({"momentum": 0.9, "nesterov": True}, True), ({"momentum": 0.9, "maximize": True}, True),
    ({"momentum": 0.9, "dampening": 0.5}, False)])
def test_every_sgd_is_torchs(settings: dict[str, Any], by_graphs: bool) -> None:
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
    assert ("graph engine not used: the optimiser is not plain SGD; training without it" in log) != by_graphs
