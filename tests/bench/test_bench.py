"""Benchmarks compare like with like, report rows that fail beside the others, and refuse what they cannot measure."""

from __future__ import annotations

import importlib
import itertools
import json
import threading
import time
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from problems import relative
from torch import Tensor, nn

from acenode import Solver, solve
from acenode.backend import Backend
from acenode.bench import (
    BENCHMARKS,
    FAMILY_NAMES,
    OPTIONS,
    PART_NAMES,
    in_turns,
    models,
    scale,
    settle,
    training,
    workloads,
)
from acenode.bench.workloads import FAMILIES, FLOAT32, latent_task, ushcn_series
from acenode.cli import main
from acenode.node import CoEvolving
from acenode.ode.runge_kutta import Evaluations
from acenode.training.task import Loss, Metric, ParameterGroups, Recipe

CPU = torch.device("cpu")


def test_functions_are_timed_in_turns() -> None:
    calls: list[str] = []
    seconds = in_turns({"slow": lambda: (calls.append("slow"), time.sleep(0.01)), "fast": lambda: calls.append("fast")},
                       2, warm=1)
    assert calls == ["slow", "fast"] * 3
    assert seconds["slow"] >= 0.01 > seconds["fast"]


def test_direct_and_product_agree_to_rounding_on_the_same_steps() -> None:
    """With equal steps, values and gradients differ by rounding only."""
    model = models.ace_model("backprop", 1e-4).double()
    direct = models.DirectACE(model, 1e-4).double()
    solver = Solver("rk4", step_size=0.5)
    x = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    h0 = model.encode(x).detach()
    ours = solve(CoEvolving(model.ode, False), (h0, model.ode.q(h0)), [0.0, 1.0], solver).states[0][-1]
    theirs = solve(direct.field, (h0, direct.q(h0)), [0.0, 1.0], solver).states[0][-1]
    assert relative(ours, theirs) < 1e-11
    for state in (ours, theirs):
        F.cross_entropy(model.head(state), torch.tensor([1, 2, 3])).backward()
    for mine, plain in ((model.ode.f, direct.f), (model.ode.g, direct.g), (model.ode.q, direct.q)):
        for a, b in zip(mine.convs, plain.convs, strict=True):
            wide = torch.cat((a.weight.grad, a.time.grad), dim=1) if hasattr(a, "time") else a.weight.grad
            assert relative(wide, b.weight.grad) < 1e-9
            assert relative(a.bias.grad, b.bias.grad) < 1e-7


def test_implementations_of_series_have_the_same_loss() -> None:
    losses = {name: float(loss().detach()) for name, (_, loss) in models.latent_losses(latent_task()).items()}
    assert losses["union grid"] == pytest.approx(losses["union grid, baseline"], rel=1e-4)
    works = models.ushcn_works(ushcn_series(2))
    values = {name: float(works[name][1]().detach()) for name in (models.BASELINE, models.OURS)}
    assert values[models.OURS] == pytest.approx(values[models.BASELINE], rel=1e-5)


def test_both_phases_compute_the_gradients_of_algorithm_1() -> None:
    model, loss = models.ushcn_works(ushcn_series(2))[models.ACE]
    loss().backward()
    exact = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    models.both_phases(model, model.attention, loss)
    for name, p in model.named_parameters():  # no update in between, so that both together are the whole gradient
        assert (p.grad is None) == (name not in exact), name
        assert p.grad is None or (p.grad - exact[name]).norm() <= 1e-6 * exact[name].norm(), name


# Rows of `acenode bench gpu` ----------------------------------------------------------------------------------------


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


def test_rows_are_measured_alone_and_in_threads_and_record_their_errors(tiny: list[Tiny],
                                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    rows = [workloads.measure_row(*workload, CPU, 2, full=False) for workload in
            itertools.product(["series"], ["latent-ode", "ace"], FAMILIES["series"].engines)]
    assert [(r["method"], r["engine"], r["error"]) for r in rows] == [
        ("latent-ode", "reference", None), ("latent-ode", "auto", None),
        ("ace", "reference", "RuntimeError: no such kernel"), ("ace", "auto", "RuntimeError: no such kernel")]
    reference, auto = rows[:2]
    assert reference["ms"] > 0
    assert reference["ms_in_threads"] is None
    assert auto["ms_in_threads"] > 0
    assert auto["evaluations"] == 7
    assert auto["samples_per_second"] == pytest.approx(50e3 / auto["ms"])
    assert [task.backend.accelerated for task in tiny] == [False, True] + 5 * [True]
    assert sorted(task.seed for task in tiny[2:]) == [0, 1, 2, 3, 4]
    assert len({t for task in tiny[2:] for t in task.threads}) == 5
    assert all(task.tf32 == {True} for task in tiny)
    with workloads.convolution_precision(FLOAT32):
        assert not torch.backends.cudnn.allow_tf32
    lines = {" ".join(line.split()) for line in workloads.render(
        {"environment": {"device": "H200"}, "kernels": True, "rows": rows}).splitlines()}
    assert "ace auto failed: RuntimeError: no such kernel" in lines
    assert any(line.startswith("latent-ode auto ") and line.endswith("≤ 150 ms 14–18 s") for line in lines)


@pytest.mark.cuda
@pytest.mark.parametrize("workload", [
    ("images", "odenet", "graph"), ("images", "odenet", FLOAT32), ("baselines", "resnet", "graph"),
    ("baselines", "rknet", "graph"), ("series", "latent-ode", "auto"), ("windows", "ace", "auto"),
    ("sporadic", "gru-ode-bayes", "auto"), ("sporadic", "ace", "auto"), ("series", "gru-d", "auto"),
    ("sporadic", "t-lstm", "auto")], ids=" ".join)
def test_rows_on_a_gpu(workload: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "MOST", 2)
    row = workloads.measure_row(*workload, torch.device("cuda"), 1, full=True)
    assert row["error"] is None
    assert row["memory_megabytes"] > 0
    assert 0 < row["ms_in_threads"] < 1e4
    json.dumps(row)


# Whole runs ---------------------------------------------------------------------------------------------------------


def test_differences_of_engines_are_taken_seed_by_seed() -> None:
    accuracies = {"graph": [0.91, 0.93, None], "native": [None] * 3, "reference": [0.90, 0.90, 0.95]}
    rows = [{"engine": e, "seed": s, "error": "out of memory"} if value is None else
            {"engine": e, "seed": s, "accuracy": value, "iterations": 429, "evaluations": 38.0, "seconds": 3.0}
            for e, values in accuracies.items() for s, value in enumerate(values)]
    text = training.render_epochs({"environment": {"device": "a GPU"}, "data": "full", "seeds": [0, 1, 2],
                                   "engines": list(accuracies), "rows": rows})
    assert "graph minus reference, seed by seed: +2.00 ± 1.00 points" in text
    assert "native minus reference: no seed finished with both" in text
    assert "graph, seed 2: out of memory" in text
    assert ["median", "92.00", "—", "90.00"] in [line.split() for line in text.splitlines()]


@pytest.mark.long
def test_small_parts_of_scale_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_worker_niceness", "0")
    found, text = scale.rates(tmp_path / "rates", workers=(1,), ways=("threads", "ray"), runs=1)
    assert [rate["runs"] for rate in found] == [1, 1]
    assert f"{found[0]['an_hour']:,.0f} (" in text
    head, text = scale.head(tmp_path / "head", queued=3, streaming=3, seconds=2.5)
    assert head["bytes_a_second"] > 0
    assert head["ray_memory"] > head["keeper_memory"] > 0
    search, text = scale.search(tmp_path / "search", trials=3)
    assert sum(search["counts"].values()) == 3
    assert search["best"] is not None
    trials, text = scale.trials(tmp_path / "trials", sizes=(20, 60), workers=5)
    assert list(trials["sizes"]) == [20, 60]
    assert "5 workers wait for the scheduler at 60 trials" in text


# The command --------------------------------------------------------------------------------------------------------


def test_help_describes_every_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert all(f"{name} {entry.about}; about {entry.lasts}" in text for name, entry in BENCHMARKS.items())
    assert ",".join(FAMILIES) == FAMILY_NAMES
    assert all(callable(getattr(scale, part)) for part in PART_NAMES.split(","))
    for name, entry in BENCHMARKS.items():
        assert callable(getattr(importlib.import_module(f"acenode.bench.{entry.module}"), name))
        options = Namespace(what=name, **dict.fromkeys(OPTIONS))
        settle(options)
        assert {key: getattr(options, key) for key in entry.options} == entry.options


@pytest.mark.parametrize(("arguments", "message"), [
    ("gpu --families images,words", "no family 'words': choose from images, baselines, series, windows, sporadic"),
    ("gpu --repeats 0", "at least 1"), ("ushcn --repeats 0", "at least 1"), ("image --batch 0", "at least 1"),
    pytest.param("gpu", "bench gpu needs a CUDA device, and there is none here",
                 marks=pytest.mark.skipif("__import__('torch').cuda.is_available()")),
    ("epoch --engines graphs", "there is no engine 'graphs': choose from graph, float32, native, reference"),
    ("epoch --device cpu --engines graph", "graph needs a CUDA device"), ("epoch --seeds one", "seeds"),
    ("scale --parts tail", "bench scale has no part 'tail'"),
    ("together --train physionet/ace", "EXPERIMENT/METHOD:EPOCHS"), ("together --each 0", "--each must be at least 1"),
    ("together --ways fibres", "there is no way 'fibres'"),
    ("together --device cpu --ways mps", "mps needs a CUDA device"),
    ("app --repeats 2", "--repeats does not apply to bench app")])
def test_user_errors_are_one_line(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
