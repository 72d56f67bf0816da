"""The graph engine on a GPU: the same runs and the same numbers as by native steps, recorded and replayed."""

from __future__ import annotations

import copy
import statistics
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from problems import relative
from quick import QUICK
from test_engine import Ear

from acenode import experiments
from acenode.engine.accelerate import compiler
from acenode.engine.capture import own_stream
from acenode.engine.graph import GraphEngine, engine_for
from acenode.execute import Outcome, create, execute
from acenode.experiments.image_task import ImageTask
from acenode.models.image import ConvField
from acenode.models.initialise import initialise
from acenode.runs import RunStore
from acenode.training import Trainer

pytestmark = pytest.mark.cuda
CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def _exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Single precision, and the same sums every time."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)


def trainer(graph: bool, method: str = "ace", log: list[str] | None = None, **given: Any) -> Trainer:
    entry = experiments.get("mnist")
    settings = {"device": "cuda", "batch_size": 64, "rtol": 1e-3, "atol": 1e-3, "learning_rate": 0.01}
    task = entry.make(entry.configure(method, **settings | given), Path(), CUDA)
    engine = engine_for(task, CUDA, "auto", (log if log is not None else []).append)[1] if graph else None
    task.model.train()
    return Trainer(task, task.recipe(), Ear(), engine)


def iterate(t: Trainer, count: int) -> list[dict[str, float]]:
    records = []
    for _ in range(count):
        records.append(t.train_batch())
        t.iteration += 1
    return [{k: float(v) for k, v in r.items()} for r in records]


def parameters(t: Trainer) -> torch.Tensor:
    """All of θ in one row."""
    return torch.cat([p.detach().flatten() for p in t.task.model.parameters()])


def apart(one: Trainer, other: Trainer, start: torch.Tensor) -> float:
    """How far two ended from each other, as a share of the way that they went."""
    return relative(parameters(one) - start, parameters(other) - start)


def close(t: Trainer) -> None:
    assert isinstance(t.engine, GraphEngine)
    t.engine.close()


@pytest.mark.parametrize(("channels", "convolutions", "side"), [(64, 2, 6), (24, 1, 4), (128, 1, 8)])
def test_kernels_equal_the_modules(channels: int, convolutions: int, side: int) -> None:
    if not compiler(CUDA):
        pytest.skip("no Triton")
    from acenode.engine.kernels.fused import FusedField

    field = ConvField(channels, convolutions)
    initialise(field, 0)
    field.to(CUDA)
    generator = torch.Generator(CUDA).manual_seed(0)
    x = torch.randn(16, channels, side, side, device=CUDA, generator=generator).to(memory_format=torch.channels_last)
    grad = torch.randn(x.shape, device=CUDA, generator=generator)
    t = torch.tensor(0.3, device=CUDA)
    x.requires_grad_()
    expected = field(x, t)
    gradients = torch.autograd.grad(expected, (x, *field.parameters()), grad)
    fused = FusedField(field, x.detach(), "tf32x3")
    for layer in fused.layers:
        layer.refresh()
        layer.begin(1)
    found = fused(x, t)
    assert relative(found, expected) < 1e-5
    assert relative(torch.autograd.grad(found, x, grad)[0], gradients[0]) < 1e-4
    for layer in fused.layers:
        layer.end()
    own = {p: g for layer in fused.layers for p, g in layer.gradients().items()}
    for p, exact in zip(field.parameters(), gradients[1:], strict=True):
        assert relative(own[p], exact) < 1e-4


@pytest.mark.parametrize(("method", "settings"), [
    ("ace", {}), ("ace", {"schedule": "joint"}), ("ace", {"detach_attention": True, "weight_decay": 1e-3}),
    ("ace", {"initial": "correlation"}), ("ace", {"attention": "none"}), ("odenet", {"solver": "bosh3"}),
    ("augmented", {"gradient": "checkpointed"})])
def test_iterations_equal_those_by_native_steps(method: str, settings: dict[str, Any]) -> None:
    log: list[str] = []
    plain, graphed = trainer(False, method, **settings), trainer(True, method, log, **settings)
    start = parameters(plain)
    expected, found = iterate(plain, 4), iterate(graphed, 4)
    assert not graphed.engine.given_up, log  # type: ignore[union-attr]
    assert apart(graphed, plain, start) < 1e-2
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.keys() == theirs.keys()
        assert mine["L_h"] == pytest.approx(theirs["L_h"], rel=1e-4)
        assert mine["grad_h"] == pytest.approx(theirs["grad_h"], rel=1e-2)
        assert abs(mine["nfe_forward"] - theirs["nfe_forward"]) <= 6
    close(graphed)


def gradients(t: Trainer) -> torch.Tensor:
    """Of all that was trained in the last iteration, in one row."""
    if isinstance(t.engine, GraphEngine):
        found = {p: grad for done in t.engine.passes.values() for p, grad in done.grads.items()}
        return torch.cat([found[p].flatten() for p in t.task.model.parameters()])
    return torch.cat([p.grad.flatten() for p in t.task.model.parameters() if p.grad is not None])


@pytest.mark.parametrize("engine", ["auto", "reference"])
@pytest.mark.parametrize("method", ["ace", "odenet"])
def test_one_pass_by_graphs_is_that_by_steps_one_by_one(engine: str, method: str) -> None:
    """To 1e-4; torchdiffeq looks back from beyond the end, so its gradient is another one within its own error."""
    def once(graph: bool, tolerance: float, **given: Any) -> tuple[dict[str, float], torch.Tensor]:
        t = trainer(graph, method, rtol=tolerance, atol=tolerance, learning_rate=1e-9, **given)
        record = iterate(t, 1)[0]
        found = gradients(t).clone()
        if graph:
            close(t)
        return record, found

    (record, found), (expected, theirs) = once(True, 1e-4), once(False, 1e-4, engine=engine)
    assert abs(record["nfe_forward"] - expected["nfe_forward"]) <= 6
    for key in {"L_h", "L_a", "grad_h", "grad_a"} & expected.keys():
        assert record[key] == pytest.approx(expected[key], rel=1e-4)
    apart, error = relative(found, theirs), relative(theirs, once(False, 1e-6, engine=engine)[1])
    print(f"{method} by graphs and by {engine}: gradients {apart:.1e} apart, error of the solver {error:.1e}")
    assert apart < (1e-4 if engine == "auto" else max(1e-4, error))


def test_without_a_compiler_of_kernels_torchs_own_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acenode.engine.accelerate.ready", lambda index: False)
    log: list[str] = []
    plain, graphed = trainer(False), trainer(True, log=log)
    start = parameters(plain)
    iterate(plain, 2)
    iterate(graphed, 2)
    assert "kernels by torch" in log[0]
    assert apart(graphed, plain, start) < 1e-2
    close(graphed)


def test_a_new_learning_rate_is_honoured() -> None:
    plain, graphed = trainer(False), trainer(True)
    start = parameters(plain)
    for t in (plain, graphed):
        iterate(t, 2)
        t.epoch = 8  # two thirds of the training: a tenth of the rate
        assert iterate(t, 2)[-1]["lr"] == pytest.approx(1e-3)
    assert apart(graphed, plain, start) < 1e-2
    close(graphed)


def test_going_on_from_a_checkpoint_changes_nothing() -> None:
    whole, first, again, plain = trainer(True), trainer(True), trainer(True), trainer(False)
    start = parameters(whole)
    iterate(whole, 4)
    iterate(first, 2)
    checkpoint = copy.deepcopy(first.state_dict())  # and again for each who loads it: they go on in its tensors
    again.load_state_dict(copy.deepcopy(checkpoint))
    iterate(again, 2)
    assert apart(again, whole, start) < 1e-4
    plain.load_state_dict(copy.deepcopy(checkpoint))  # and natively, from the same checkpoint
    iterate(plain, 2)
    assert apart(plain, whole, start) < 1e-2
    again.load_state_dict(copy.deepcopy(checkpoint))  # over recordings that are there already
    iterate(again, 2)
    assert apart(again, whole, start) < 1e-4
    for t in (whole, first, again):
        close(t)


def run(tmp_path: Path, stop: threading.Event | None = None, **given: Any) -> Outcome:
    settings = {**QUICK, "batch_size": 64, "device": "cuda", **given}
    config = experiments.get("mnist").configure("ace", **settings)
    return execute(create(RunStore(tmp_path), config), tmp_path, stop=stop)


def test_a_run_is_trained_by_graphs_and_says_so(tmp_path: Path) -> None:
    found, plain = run(tmp_path), run(tmp_path, engine="reference")
    assert (found.state, plain.state) == ("finished", "finished"), (found.error, plain.error)
    assert found.run.description()["trained_by"] == "graph"
    assert "graph engine: pass one recorded in" in (found.run.path / "log.txt").read_text()


def test_an_epoch_learns_as_much_by_graphs_as_by_the_reference(tmp_path: Path) -> None:
    """Over three seeds: the accuracies of the same seed differ by less than those of the seeds do."""
    found, plain = ([run(tmp_path, engine=engine, seed=seed).metrics["accuracy"] for seed in range(3)]
                    for engine in ("graph", "reference"))
    noise = max(statistics.stdev(plain), 0.01)
    assert abs(statistics.mean(found) - statistics.mean(plain)) < noise / 3**0.5
    assert max(abs(a - b) for a, b in zip(found, plain, strict=True)) < 2 * noise


def test_numbers_that_are_none_end_the_run_in_the_words_of_the_reference(tmp_path: Path,
                                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    batch = ImageTask.batch

    def spoilt(self: ImageTask, epoch: int, iteration: int) -> Any:
        x, y = batch(self, epoch, iteration)
        return (x * torch.nan if iteration == 3 else x), y

    monkeypatch.setattr(ImageTask, "batch", spoilt)
    found = run(tmp_path)
    monkeypatch.setattr("acenode.execute.engine_for", lambda task, device, asked, log: ("native", None))
    plain = run(tmp_path)
    assert (found.state, plain.state) == ("failed", "failed")
    assert found.error == plain.error
    assert "NaN" in (found.error or "")


def test_what_cannot_be_recorded_is_trained_natively_with_a_line(tmp_path: Path,
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    read_out = ImageTask.read_out

    def asks(self: ImageTask, h1: torch.Tensor, batch: Any) -> Any:
        loss, metrics = read_out(self, h1, batch)
        assert loss.isfinite().item()  # the host waits for the device: no recording can hold that
        return loss, metrics

    monkeypatch.setattr(ImageTask, "read_out", asks)
    outcome = run(tmp_path)
    assert outcome.state == "finished", outcome.error
    log = (outcome.run.path / "log.txt").read_text()
    assert log.count("graph engine not used") == 1


@pytest.mark.parametrize(("settings", "word"), [({"attention": "fixed"}, "fixed attention"),
                                                ({"gradient": "adjoint"}, "torchdiffeq")])
def test_what_the_engine_does_not_do_has_a_line(settings: dict[str, Any], word: str, tmp_path: Path) -> None:
    outcome = run(tmp_path, **settings)
    assert outcome.state == "finished", outcome.error
    (line,) = [x for x in (outcome.run.path / "log.txt").read_text().splitlines() if "graph engine" in x]
    assert word in line


def test_five_runs_in_threads_equal_each_alone() -> None:
    def train(seed: int) -> torch.Tensor:
        with own_stream(CUDA):
            t = trainer(True, seed=seed)
            iterate(t, 6)
            found = parameters(t)
            close(t)
        return found

    alone = [train(seed) for seed in range(5)]
    together: dict[int, torch.Tensor] = {}
    threads = [threading.Thread(target=lambda seed=seed: together.update({seed: train(seed)})) for seed in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, expected in enumerate(alone):
        assert relative(together[seed], expected) < 1e-6, seed


def test_twenty_runs_leave_no_memory_behind() -> None:
    taken = []
    for seed in range(20):
        with own_stream(CUDA):
            t = trainer(True, seed=seed)
            iterate(t, 2)
            close(t)
            del t
        torch.cuda.synchronize()
        taken.append((torch.cuda.memory_allocated(), torch.cuda.memory_reserved()))
    allocated, reserved = np.array(taken).T
    assert allocated[-1] <= allocated[2]
    assert reserved[-1] <= 1.1 * reserved[2]
