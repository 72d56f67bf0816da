"""The graph engine on a GPU: the same runs and the same numbers as by native steps, recorded and replayed."""

from __future__ import annotations

import contextlib
import copy
import statistics
import threading
from collections.abc import Callable
from functools import partial
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
from acenode.engine.capture import POOL, own_stream
from acenode.engine.compiled import CompiledField
from acenode.engine.graph import GraphEngine, engine_for
from acenode.execute import Outcome, create, execute
from acenode.experiments.image_task import ImageTask
from acenode.models.image import ConvField
from acenode.models.initialise import initialise
from acenode.models.told import telling
from acenode.record import load_checkpoint
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
    ("ace", {"initial": "correlation"}), ("ace", {"attention": "none"}), ("ace", {"attention": "fixed"}),
    ("ace", {"attention": "fixed", "initial": "conv"}), ("odenet", {"solver": "bosh3"}),
    ("augmented", {"gradient": "checkpointed"}), ("augmented", {"augment": 5})])
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


def test_kernels_keep_what_is_no_number() -> None:
    """As torch's own do: a maximum that loses NaN would train on without a word."""
    if not compiler(CUDA):
        pytest.skip("no Triton")
    from acenode.engine.kernels.fused import FusedField

    field = ConvField(64, 1)
    initialise(field, 0)
    field.to(CUDA)
    x = torch.randn(4, 64, 6, 6, device=CUDA, generator=torch.Generator(CUDA).manual_seed(0))
    x[1, 3, 2, 2] = torch.nan
    fused = FusedField(field, x, "tf32x3")
    for layer in fused.layers:
        layer.refresh()
        layer.begin(1)
    with torch.no_grad():
        t = torch.tensor(0.3, device=CUDA)
        expected, found = field(x, t).isnan(), fused(x, t).isnan()
    assert expected.any()
    assert not expected.all()
    assert torch.equal(found, expected)


def test_tf32_takes_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for allowed in (False, True):
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", allowed)
        t = trainer(True, rtol=1e-4, atol=1e-4)
        found[allowed] = [r["nfe_forward"] for r in iterate(t, 6)]
        close(t)
    print(f"evaluations a pass: {found[False]} in float32, {found[True]} in TF32")
    assert max(abs(a - b) for a, b in zip(*found.values(), strict=True)) <= 6


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
    assert "steps by torch, fields by torch;" in log[0]
    assert apart(graphed, plain, start) < 1e-2
    close(graphed)


@pytest.mark.parametrize("refuses", [False, True])
def test_fields_without_kernels_are_compiled_by_torch(refuses: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiler(CUDA):
        pytest.skip("no Triton")
    monkeypatch.setattr("acenode.models.trial._trouble", {})  # nothing tried yet
    if refuses:
        def refuse(self: CompiledField, *_: Any) -> None:
            raise RuntimeError("no compiler")
        monkeypatch.setattr(CompiledField, "__call__", refuse)
    log: list[str] = []
    with telling(log.append):
        graphed = trainer(True, "augmented", log, augment=5)
        iterate(graphed, 1)
    found, expected = (("torch", ["fields compiled by torch do not run here: RuntimeError: no compiler"]) if refuses
                       else ("torch.compile", []))
    assert f"steps by Triton, fields by {found};" in log[-1]
    assert log[:-1] == expected
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


def test_recordings_make_room_for_solves_of_more_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acenode.engine.graph.PLACES", 1)
    log: list[str] = []
    plain, graphed = trainer(False), trainer(True, log=log)
    start = parameters(plain)
    for t in (plain, graphed):
        iterate(t, 6)
    assert sum("took more than 1 steps: the pass is recorded for 2" in line for line in log) == 2, log
    assert "in native steps" not in "".join(log), log
    assert apart(graphed, plain, start) < 1e-2
    close(graphed)


def test_kernels_that_do_not_run_cost_the_kernels_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiler(CUDA):
        pytest.skip("no Triton")
    from acenode.engine.kernels.fused import FusedLayer

    def refuses(self: FusedLayer) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(FusedLayer, "end", refuses)
    log: list[str] = []
    plain, graphed = trainer(False), trainer(True, log=log)
    start = parameters(plain)
    for t in (plain, graphed):
        iterate(t, 2)
    assert log[0] == ("graph engine: kernels do not run here (RuntimeError: no such kernel): torch's operations are "
                      "recorded")
    assert all("steps by torch, fields by torch;" in line for line in log[1:])
    assert apart(graphed, plain, start) < 1e-2
    close(graphed)


def run(tmp_path: Path, stop: threading.Event | None = None, **given: Any) -> Outcome:
    settings = {**QUICK, "batch_size": 64, "device": "cuda", **given}
    config = experiments.get("mnist").configure("ace", **settings)
    return execute(create(RunStore(tmp_path), config), tmp_path, stop=stop)


def test_a_run_that_was_stopped_goes_on_to_the_same_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, stop, batch = run(tmp_path / "whole", epochs=2), threading.Event(), ImageTask.batch

    def asking(self: ImageTask, epoch: int, iteration: int) -> Any:
        if (epoch, iteration) == (1, 2):
            stop.set()
        return batch(self, epoch, iteration)

    monkeypatch.setattr(ImageTask, "batch", asking)
    stopped = run(tmp_path / "stopped", stop, epochs=2)
    assert stopped.state == "stopped"
    monkeypatch.undo()
    again = execute(stopped.run, tmp_path)
    assert again.state == "finished", again.error
    log = (again.run.path / "log.txt").read_text()
    assert "resumed on cuda at epoch 1, iteration 3" in log
    assert log.count("graph engine: pass one recorded in") == 2
    last = [load_checkpoint(o.run.path / "checkpoints" / "last.pt", CUDA)["trainer"]["model"] for o in (whole, again)]
    theirs, mine = (torch.cat([x.flatten() for x in state.values()]) for state in last)
    assert relative(mine, theirs) < 1e-3


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
    monkeypatch.setattr("acenode.execute.engine_for", lambda *_: ("native", None))
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


def test_memory_that_is_short_while_recording_leaves_the_run_to_native_steps(tmp_path: Path,
                                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    read_out = ImageTask.read_out

    def greedy(self: ImageTask, h1: torch.Tensor, batch: Any) -> Any:
        if torch.cuda.is_current_stream_capturing():
            torch.empty(1 << 46, device=CUDA)
        return read_out(self, h1, batch)

    monkeypatch.setattr(ImageTask, "read_out", greedy)
    outcome = run(tmp_path)
    assert outcome.state == "finished", outcome.error
    assert outcome.run.description()["trained_by"] == "native"
    (line,) = [x for x in (outcome.run.path / "log.txt").read_text().splitlines() if "graph engine" in x]
    assert "out of memory" in line
    monkeypatch.undo()
    assert run(tmp_path).run.description()["trained_by"] == "graph"  # nothing of it is left


@pytest.mark.parametrize(("settings", "word"), [({"solver": "rk4", "step_size": 0.5}, "fixed steps"),
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


def test_series_and_images_in_threads_equal_each_alone() -> None:
    def images(seed: int) -> Trainer:
        return trainer(True, seed=seed)

    def series(name: str, method: str, seed: int) -> Trainer:
        entry = experiments.get(name)
        task = entry.make(entry.configure(method, device="cuda", batch_size=16, seed=seed), Path(), CUDA)
        task.model.train()
        return Trainer(task, task.recipe(), Ear())

    makers = [partial(images, 0), partial(series, "physionet", "ace", 1), partial(series, "ushcn", "ace", 2),
              partial(images, 3), partial(series, "physionet", "latent-ode", 4)]

    def train(make: Callable[[], Trainer]) -> torch.Tensor:
        with own_stream(CUDA):
            t = make()
            iterate(t, 3)
            found = parameters(t)
            if t.engine is not None:
                close(t)
        return found

    together: dict[int, torch.Tensor] = {}
    threads = [threading.Thread(target=lambda i=i, make=make: together.update({i: train(make)}))
               for i, make in enumerate(makers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, make in enumerate(makers):
        assert relative(together[i], train(make)) < 1e-5, i


def test_no_two_have_the_same_stream() -> None:
    """Torch hands its streams out again from the first when it has handed out all."""
    with contextlib.ExitStack() as stack:
        had = []
        for _ in range(POOL + 8):
            stack.enter_context(own_stream(CUDA))
            had.append(torch.cuda.current_stream().cuda_stream)
        assert len(set(had)) == POOL
        log: list[str] = []
        crowded = trainer(True, log=log)
        assert crowded.engine is None
        assert log == ["graph engine not used: other runs have all the streams that torch has; training without it"]
        iterate(crowded, 2)
    again = trainer(True)
    iterate(again, 2)
    close(again)
    assert relative(parameters(crowded), parameters(again)) < 1e-3


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
