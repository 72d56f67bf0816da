"""The graph engine's mathematics, done at once instead of recorded, so that it can be checked without a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from problems import co_evolving, relative
from torch import Tensor, nn

from acenode import SolveError, Solver, experiments, solve
from acenode.engine.control import RUNNING, Told
from acenode.engine.graph import GraphEngine, engine_for, obstacle
from acenode.engine.graphed import GraphedPass
from acenode.engine.operations import Operations
from acenode.engine.steps import Steps
from acenode.execute import create, execute
from acenode.runs import RunStore
from acenode.training import Trainer


class AtOnce:
    """A recorder that records nothing: replaying does the work."""

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        yield

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        return work

    def settle(self) -> int:
        return 0

    def mark(self) -> None: ...
    def wait(self) -> None: ...
    def close(self) -> None: ...


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


@pytest.mark.parametrize(("method", "tolerance"), [("dopri5", 1e-7), ("tsit5", 1e-5), ("bosh3", 1e-4),
                                                   ("fehlberg2", 1e-3), ("dopri8", 1e-6)])
def test_steps_on_the_device_are_those_of_the_reference(method: str, tolerance: float) -> None:
    solver = Solver(method, tolerance, tolerance)
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
        steps.back(field, parameters, lambda found: torch._foreach_add_(total, found))
    start = steps.back_to_start(field, parameters, lambda found: torch._foreach_add_(total, found))

    assert told.sizes == pytest.approx(expected.evaluations.step_sizes, rel=1e-12)
    assert steps.evaluations(told, 0).forward == expected.evaluations.forward
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
    (1.0, 1.0, {"rtol": 1e-4}), (float("nan"), 1.0, {}), (1.0, float("inf"), {}), (1.0, 0.5, {"max_steps": 4})])
def test_trouble_is_told_in_the_words_of_the_reference(factor: float, start: float, settings: dict[str, Any]) -> None:
    y, solver = (torch.tensor([[start]], dtype=torch.float64),), Solver(**{"rtol": 1e-8, "atol": 1e-8} | settings)
    with pytest.raises(SolveError) as expected:
        solve(Explodes(factor), y, [0.0, 2.0], solver)
    steps = Steps(y, (0.0, 2.0), solver, Operations(y[0].device), places=2000)
    with pytest.raises(SolveError) as found:
        march(steps, Explodes(factor), y).check(steps.span)
    assert str(found.value) == str(expected.value)


class Ear:
    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def stop_asked(self) -> bool:
        return False

    def steps(self, records: list[dict[str, Any]]) -> None:
        self.records += records

    def epoch(self, record: dict[str, Any]) -> None: ...
    def checkpoint(self, state: dict[str, Any]) -> None: ...

    def checkpoint_due(self) -> bool:
        return False


def train(engine: bool, iterations: int = 2, method: str = "ace", log: list[str] | None = None,
          **given: Any) -> tuple[Trainer, list[dict[str, Any]]]:
    """A few iterations of a small model, plainly or by the engine at once."""
    entry = experiments.get("mnist")
    task = entry.make(entry.configure(method, device="cpu", batch_size=4, rtol=1e-2, atol=1e-2, **given), Path(),
                      torch.device("cpu"))
    ear = Ear()
    trainer = Trainer(task, task.recipe(), ear)
    if engine:
        say = (log if log is not None else []).append
        trainer.engine = GraphEngine(task, AtOnce(), torch.zeros(()), say)  # type: ignore[arg-type]
    task.model.train()
    records = []
    for _ in range(iterations):
        records.append(trainer.train_batch())
        trainer.iteration += 1
    return trainer, [{k: float(v) for k, v in r.items()} for r in records]


@pytest.mark.parametrize(("method", "settings"), [
    ("ace", {"initial": "correlation", "weight_decay": 1e-3}),
    ("ace", {"schedule": "joint", "gradient": "checkpointed"}),
    ("ace", {"detach_attention": True, "penalty": "l1"}), ("augmented", {"solver": "bosh3", "momentum": 0.0})])
def test_iterations_are_those_of_the_plain_trainer(method: str, settings: dict[str, Any]) -> None:
    log: list[str] = []
    (plain, expected), (made, found) = (train(engine, method=method, log=log, **settings) for engine in (False, True))
    assert all("recorded in" in line for line in log), log
    for name, tensor in plain.task.model.state_dict().items():
        assert relative(made.task.model.state_dict()[name], tensor) < 1e-4, name
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.keys() == theirs.keys()
        for key in ("L_h", "accuracy", "grad_h", "nfe_forward", "steps"):
            assert mine[key] == pytest.approx(theirs[key], rel=1e-3), key
    assert made.main.state_dict()["param_groups"] == plain.main.state_dict()["param_groups"]
    states = [t.main.state_dict()["state"] for t in (made, plain)]
    assert states[0].keys() == states[1].keys()


def test_a_solve_of_too_many_steps_is_left_to_the_plain_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acenode.engine.graphed.PLACES", 1)
    log: list[str] = []
    (plain, _), (made, _) = train(False), train(True, log=log)
    for name, tensor in plain.task.model.state_dict().items():
        assert torch.equal(made.task.model.state_dict()[name], tensor), name
    assert log[1:2] == ["graph engine: a solve took more than 1 steps: such passes are done by the native engine"]
    assert len(log) == 3  # and a line for each pass that was recorded


def test_what_cannot_be_recorded_is_left_to_the_plain_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(self: GraphedPass) -> None:
        raise RuntimeError("no such operation\nwith details")

    monkeypatch.setattr(GraphedPass, "_encode", refuses)
    log: list[str] = []
    (plain, _), (made, _) = train(False), train(True, log=log)
    for name, tensor in plain.task.model.state_dict().items():
        assert torch.equal(made.task.model.state_dict()[name], tensor), name
    assert log == ["graph engine not used: RuntimeError: no such operation; training without it"]


def test_the_engine_says_why_it_is_not_used() -> None:
    entry, log = experiments.get("mnist"), list[str]()

    def chosen(method: str, **given: Any) -> str | None:
        task = entry.make(entry.configure(method, device="cpu", **given), Path(), torch.device("cpu"))
        return engine_for(task, torch.device("cpu"), task.config.engine, log.append)[0]

    assert [chosen("ace"), chosen("ace", engine="reference"), chosen("resnet"), chosen("rknet")] == [
        "native", "reference", None, "reference"]
    assert log == []
    assert chosen("ace", engine="graph") == "native"
    assert log == ["graph engine not used: it needs a CUDA device; training without it"]
    task = entry.make(entry.configure("ace", attention="fixed"), Path(), torch.device("cpu"))
    assert "fixed attention" in (obstacle(task, torch.device("cuda")) or "")


def test_a_run_says_what_trained_it(tmp_path: Path) -> None:
    config = experiments.get("mnist").configure("odenet", device="cpu", engine="graph", epochs=1, analysis=False,
                                                batch_size=512)
    outcome = execute(create(RunStore(tmp_path), config), tmp_path)
    assert outcome.state == "finished"
    assert outcome.run.description()["trained_by"] == "native"
    assert (outcome.run.path / "log.txt").read_text().count("graph engine not used: it needs a CUDA device") == 1
