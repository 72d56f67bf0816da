"""Benchmarks compare like with like, report rows that fail beside the others, and refuse what they cannot measure."""

from __future__ import annotations

import importlib
import itertools
import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from command_line import command
from problems import relative
from torch import Tensor, nn

from acenode import Solver, solve
from acenode.bench import (
    BENCHMARKS,
    FAMILY_NAMES,
    OPTIONS,
    PART_NAMES,
    models,
    render,
    scale,
    settle,
    training,
    workloads,
)
from acenode.bench.workloads import FAMILIES, FLOAT32, latent_task, ushcn_series
from acenode.node import CoEvolving
from acenode.ode.runge_kutta import Evaluations
from acenode.training.task import Loss, Metric, ParameterGroups, Recipe

CPU = torch.device("cpu")


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


class Tiny:
    """Train one number; ace fails to build."""

    metric, iterations = Metric("error"), 3

    def __init__(self, method: str, *, seed: int, **_: object) -> None:
        if method == "ace":
            raise RuntimeError("no such kernel\nand a long story")
        self.model = nn.ParameterDict({"f": torch.tensor([float(seed)])})

    def recipe(self) -> Recipe:
        return Recipe(1, 0.01, lambda parameters, lr, _: torch.optim.SGD(parameters, lr))

    def groups(self, detach_attention: bool) -> ParameterGroups:
        return ParameterGroups([self.model["f"]], [], [])

    def batch(self, epoch: int, iteration: int) -> Tensor:
        return torch.ones(1)

    def loss(self, batch: Tensor, *, detach_attention: bool) -> Loss:
        return Loss((self.model["f"] * batch - 1).square().sum(), {}, Evaluations(7))


def test_rows_are_measured_alone_and_in_threads_and_record_their_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, "series", replace(FAMILIES["series"], make=Tiny))
    rows = [workloads.measure_row("series", *workload, CPU, 2, full=False) for workload in
            itertools.product(["latent-ode", "ace"], FAMILIES["series"].engines)]
    assert [(r["method"], r["engine"], r.get("error")) for r in rows] == [
        ("latent-ode", "reference", None), ("latent-ode", "auto", None),
        ("ace", "reference", "RuntimeError: no such kernel"), ("ace", "auto", "RuntimeError: no such kernel")]
    reference, auto = rows[:2]
    assert reference["5 runs_seconds"] is None
    assert auto["5 runs_seconds"] > 0
    assert auto["NFE"] == 7
    assert auto["samples per second"] == pytest.approx(50 / auto["1 run_seconds"])
    failed = render({"rows": rows}).splitlines()[4].split()
    assert (failed[:4], failed[-4:]) == (["series", "ace", "auto", "—"], ["RuntimeError:", "no", "such", "kernel"])


@pytest.mark.cuda
@pytest.mark.parametrize("workload", [
    ("images", "odenet", "graph"), ("images", "odenet", FLOAT32), ("baselines", "resnet", "graph"),
    ("baselines", "rknet", "graph"), ("series", "latent-ode", "auto"), ("windows", "ace", "auto"),
    ("sporadic", "gru-ode-bayes", "auto"), ("sporadic", "ace", "auto"), ("series", "gru-d", "auto"),
    ("sporadic", "t-lstm", "auto")], ids=" ".join)
def test_rows_on_a_gpu(workload: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "MOST", 2)
    row = workloads.measure_row(*workload, torch.device("cuda"), 1, full=True)
    assert "error" not in row
    assert row["memory_megabytes"] > 0
    assert 0 < row["5 runs_seconds"] < 10
    json.dumps(row)


def test_differences_of_engines_are_taken_seed_by_seed() -> None:
    accuracies = {"graph": [0.91, 0.93, None], "native": [None] * 3, "reference": [0.90, 0.90, 0.95]}
    rows = [{"engine": e, "seed": s, "error": "out of memory"} if value is None else
            {"engine": e, "seed": s, "accuracy": value, "iterations": 429, "NFE": 38.0, "seconds": 3.0}
            for e, values in accuracies.items() for s, value in enumerate(values)]
    graph, native, reference = training.summarise(list(accuracies), rows)
    assert graph == {"engine": "graph", "median": 92.0, "mean": 92.0, "std": 1.41, "min": 91.0, "NFE": 38.0,
                     "seconds": 3.0, "minus reference": "+2.00 ± 1.00 points"}
    assert (native["median"], native["minus reference"], reference["median"]) == (None, None, 90.0)
    assert training.summarise(["native"], rows[3:6])[0]["mean"] is None  # all have failed


def test_ways_are_compared_with_one_run_after_another() -> None:
    rows = [{"way": "threads", "total_seconds": 6.0}, {"way": "one", "total_seconds": 8.0}]
    runs = [{"way": way, "training_seconds": seconds} for way, seconds in
            (("one", 2.0), ("threads", 4.0), ("one", 3.0), ("threads", 4.0))]
    training.compare_with_one(rows, runs)
    assert rows[0] == {"way": "threads", "total_seconds": 6.0, "total of one": 0.75, "least share of one": 0.5,
                       "most share of one": 0.75, "least/most": pytest.approx(2 / 3)}
    training.compare_with_one(rows[:1], runs[1::2])  # one was not measured


@pytest.mark.parametrize(("name", "value", "text"), [
    ("seconds", 1.0, "1.00 s"), ("total_seconds", 0.1, "100 ms"), ("seconds", 0.0123, "12.3 ms"),
    ("memory_megabytes", 999.6, "1.00 GB"), ("memory_megabytes", 41.4, "41 MB"), ("share", 0.0853, "8.5%"),
    ("NFE", 38.25, "38.25"), ("samples per second", 18700.4, "18,700"), ("NFE", 1234, "1,234")])
def test_values_are_written_in_their_units(name: str, value: Any, text: str) -> None:
    assert render({name: value}) == f"{name.split('_')[0]}: {text}"


@pytest.mark.long
def test_small_parts_of_scale_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_worker_niceness", "0")
    found = scale.rates(tmp_path / "rates", workers=(1,), ways=("threads", "ray"), runs=1)
    assert [(rate["way"], rate["runs"]) for rate in found] == [("threads", 1), ("ray", 1)]
    launcher, keeper, ray = scale.head(tmp_path / "head", queued=3, streaming=3, seconds=2.5)
    assert keeper["bytes a second"] > 0
    assert ray["memory_megabytes"] > keeper["memory_megabytes"] > 0
    (search,) = scale.search(tmp_path / "search", trials=3)
    assert sum(search.get(state, 0) for state in ("finished", "pruned", "failed")) == 3
    assert search["best"] is not None
    trials = scale.trials(tmp_path / "trials", sizes=(20, 60), workers=5)
    assert {row.get("recorded trials") for row in trials} == {20, 60, None}
    assert all(row["shortest_seconds"] > 0 for row in trials if row["measured"].startswith("one trial"))
    assert render({"trials": trials, "head": [launcher]})


def test_every_benchmark_is_in_the_help_and_has_its_options() -> None:
    text = command("bench --help")
    assert all(f"\n  {name} " in text for name in BENCHMARKS)
    assert ",".join(FAMILIES) == FAMILY_NAMES
    assert all(callable(getattr(scale, part)) for part in PART_NAMES.split(","))
    for name, entry in BENCHMARKS.items():
        assert callable(getattr(importlib.import_module(f"acenode.bench.{entry.module}"), name))
        options = Namespace(what=name, **dict.fromkeys(OPTIONS))
        settle(options)
        assert {key: getattr(options, key) for key in entry.options} == entry.options
