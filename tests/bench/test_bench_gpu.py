"""`acenode bench gpu`: what is measured, what is skipped, and rows that fail without the others."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

import pytest
import torch
from problems import IdleEngine
from torch import Tensor, nn

from acenode.backend import Backend
from acenode.bench import gpu, gpu_workloads
from acenode.bench.gpu_table import render
from acenode.bench.gpu_workloads import FAMILIES, Workload
from acenode.bench.latent_workload import activity_task, latent_task
from acenode.bench.ushcn_workload import ushcn_task
from acenode.cli import main
from acenode.execution.engine_choice import EngineChoice
from acenode.ode.runge_kutta import Evaluations
from acenode.training.task import Loss, Metric, ParameterGroups, Recipe

CPU = torch.device("cpu")


class Tiny:
    """Train one number; note which threads ask for its batches."""

    metric, iterations = Metric("error"), 3

    def __init__(self, seed: int, backend: Backend) -> None:
        self.backend, self.seed, self.model = backend, seed, nn.ParameterDict({"f": torch.tensor([float(seed)])})
        self.threads: set[int] = set()
        self.tf32: set[bool] = set()

    def recipe(self) -> Recipe:
        return Recipe(1, 0.01, lambda parameters, lr, _: torch.optim.SGD(parameters, lr))

    def groups(self, detach_attention: bool) -> ParameterGroups:
        return ParameterGroups([self.model["f"]], [], [])

    def batch(self, epoch: int, iteration: int) -> Tensor:
        self.threads.add(threading.get_ident())
        self.tf32.add(torch.backends.cudnn.allow_tf32)
        return torch.ones(1)

    def loss(self, batch: Tensor, *, detach_attention: bool) -> Loss:
        return Loss((self.model["f"] * batch - 1).square().sum(), {}, Evaluations(7))


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> list[Tiny]:
    """Replace the series family by such tasks; ace fails to build. Returns the tasks made."""
    made: list[Tiny] = []

    def make(method: str, device: str, backend: Backend, engine: str, seed: int) -> Any:
        if method == "ace":
            raise RuntimeError("no such kernel\nand a long story")
        made.append(Tiny(seed, backend))
        return made[-1]

    monkeypatch.setitem(FAMILIES, "series", replace(FAMILIES["series"], methods=("latent-ode", "ace"), make=make))
    return made


def test_a_failing_row_records_its_error_and_the_others_are_measured(tiny: list[Tiny],
                                                                       capsys: pytest.CaptureFixture[str]) -> None:
    rows = gpu.measure(gpu.workloads_of("series"), CPU, 2, full=False)["rows"]
    assert [(r["method"], r["engine"], r["error"]) for r in rows] == [
        ("latent-ode", "reference", None), ("latent-ode", "auto", None),
        ("ace", "reference", "RuntimeError: no such kernel"), ("ace", "auto", "RuntimeError: no such kernel")]
    reference, auto = rows[:2]
    assert reference["ms"] > 0
    assert reference["ms_in_threads"] is None
    assert auto["ms_in_threads"] > 0
    assert auto["evaluations"] == 7
    assert auto["samples_per_second"] == pytest.approx(50e3 / auto["ms"])
    assert auto["published"] == "14–18 s"
    assert [task.backend.accelerated for task in tiny] == [False, True] + 5 * [True]
    assert sorted(task.seed for task in tiny[2:]) == [0, 1, 2, 3, 4]
    assert len({t for task in tiny[2:] for t in task.threads}) == 5
    progress = capsys.readouterr().err.splitlines()
    begun = next(i for i, line in enumerate(progress) if line.startswith("4/4 series, ace with auto"))
    assert progress[begun + 1].split()[:2] == ["ace", "auto"]  # each row is printed when it is measured


def test_a_run_that_fails_beside_others_ends_them_with_its_error(tiny: list[Tiny]) -> None:
    def fail(self: Tiny, *_: int) -> Tensor:
        if len(tiny) > 5:
            raise RuntimeError("device lost")
        return torch.ones(1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tiny, "batch", fail)
        row = gpu.measure_row(Workload("series", "latent-ode", "auto"), CPU, 1, full=True)
    assert row["ms"] > 0
    assert row["ms_in_threads"] is None
    assert row["error"] == "one of 5 runs: RuntimeError: device lost"


def test_convolutions_have_the_precision_of_the_row(tiny: list[Tiny], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    for engine in ("auto", gpu_workloads.FLOAT32):
        monkeypatch.setattr(gpu_workloads, "choose_engine", lambda *_: EngineChoice("graph", IdleEngine()))
        gpu.measure_row(Workload("series", "latent-ode", engine), CPU, 1, full=True)
    assert [task.tf32 for task in tiny] == 6 * [{True}] + 6 * [{False}]
    assert torch.backends.cudnn.allow_tf32


def test_a_method_without_a_solver_has_no_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "BUDGET", 0.0)
    row = gpu.measure_alone(Workload("series", "gru-d", "auto"), CPU, 1)
    assert row["evaluations"] is None
    assert row["ms"] > 0


def test_a_slow_iteration_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def counts(budget: float) -> list[int]:
        asked: list[int] = []
        monkeypatch.setattr(gpu, "BUDGET", budget)
        gpu.time_iterations(lambda count: asked.append(count) or [{}], 2)  # type: ignore[func-returns-value]
        return asked

    assert counts(0.0) == [1]
    assert counts(60.0) == [1, gpu.WARM, gpu.GROUP, gpu.GROUP]


def test_table_lines() -> None:
    row = {"family": "images", "method": "ace", "engine": "native", "batch": 128, "ms": 178.2, "ms_in_threads": None,
           "evaluations": 38.0, "samples_per_second": 718.3, "memory_megabytes": 527.0,
           "ready_seconds": 1.24, "published": None, "target": None, "error": None}
    graph = row | {"engine": "graph", "ms": 6.71, "ms_in_threads": 4.94,
                   "memory_megabytes": 1040.0, "published": "2 × 130 ms", "target": "≤ 10 ms"}
    lost = {"family": "sporadic", "method": "ace", "engine": "auto", "batch": 300, "ms_in_threads": None,
            "published": None, "target": None, "error": "out of memory"}
    slow = lost | row | {"family": "sporadic", "ms": 5210.0, "error": "one of 5 runs: lost"}
    shown = {"environment": {"device": "H200"}, "threads": 5, "kernels": True}
    text = render({**shown, "rows": [row, graph, lost, slow]})
    lines = {" ".join(line.split()) for line in text.splitlines()}
    assert "ace native 178 ms — 38 718 527 MB 1.2 s" in lines
    assert "ace graph 6.7 ms 4.9 ms 38 718 1.04 GB 1.2 s ≤ 10 ms 2 × 130 ms" in lines
    assert "ace auto failed: out of memory" in lines
    text = render({**shown, "rows": [row | {"evaluations": None}]})
    assert "ace native 178 ms — — 718 527 MB 1.2 s" in {" ".join(line.split()) for line in text.splitlines()}
    assert "ace native 5.21 s — 38 718 527 MB 1.2 s" in lines
    assert "ace native failed: one of 5 runs: lost" in lines
    assert max(len(line) for line in text.splitlines()) <= 140


@pytest.mark.parametrize(("arguments", "message"), [
    (["--families", "images,words"], "no family 'words': choose from images, baselines, series, windows, sporadic"),
    (["--repeats", "0"], "at least 1"),
    pytest.param([], "bench gpu needs a CUDA device, and there is none here",
                 marks=pytest.mark.skipif("__import__('torch').cuda.is_available()"))])
def test_user_errors_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "gpu", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_workloads_have_the_batch_sizes_of_their_families() -> None:
    made = ushcn_task("gru-ode-bayes", count=3, seed=1)
    assert made.batch(0, 0).seen.x.shape[::2] == (3, 5)
    assert made.data.arrays.fault() is None
    assert made.iterations == 1
    assert latent_task(engine="reference").batch(0, 0).seen.x.shape[0] == FAMILIES["series"].batch
    assert latent_task("gru-d", engine="auto").batch(0, 0).seen.x.shape[0] == FAMILIES["series"].batch
    assert activity_task("ace", engine="auto").batch(0, 0).seen.x.shape == (FAMILIES["windows"].batch, 50, 12)
    assert ushcn_task("t-lstm", count=3, engine="auto").iterations == 1
    image = gpu_workloads.image_task("odenet", "cpu", seed=0).batch(0, 0)[0]
    for method in FAMILIES["baselines"].methods:
        assert gpu_workloads.image_task(method, "cpu", engine="graph", seed=0).iterations == 8
    assert image.shape == (FAMILIES["images"].batch, 1, 28, 28)


@pytest.mark.cuda
@pytest.mark.parametrize("workload", [
    Workload("images", "odenet", "graph"), Workload("images", "odenet", gpu_workloads.FLOAT32),
    Workload("baselines", "resnet", "graph"), Workload("baselines", "rknet", "graph"),
    Workload("series", "latent-ode", "auto"), Workload("windows", "ace", "auto"),
    Workload("sporadic", "gru-ode-bayes", "auto"),
    Workload("sporadic", "ace", "auto"), Workload("series", "gru-d", "auto"), Workload("sporadic", "t-lstm", "auto")],
    ids=str)
def test_rows_on_a_gpu(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "MOST", 2)
    row = gpu.measure_row(workload, torch.device("cuda"), 1, full=True)
    assert row["error"] is None
    assert row["memory_megabytes"] > 0
    assert 0 < row["ms_in_threads"] < 1e4
    json.dumps(row)
