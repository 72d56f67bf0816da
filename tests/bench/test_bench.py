"""Benchmarks compare like with like, report rows that fail beside the others, and refuse what they cannot measure."""

from __future__ import annotations

import importlib
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from problems import relative
from torch import Tensor, nn

from acenode import Solver, solve
from acenode.bench import models, render, scale, training, workloads
from acenode.bench.workloads import FAMILIES, FLOAT32, latent_task, ushcn_series
from acenode.cli.parser import BENCHMARKS, make_parser
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
    rows = [workloads.measure_row("series", *workload, CPU) for workload in
            itertools.product(["latent-ode", "ace"], FAMILIES["series"].engines)]
    assert [(r["method"], r["engine"], r.get("error")) for r in rows] == [
        ("latent-ode", "reference", None), ("latent-ode", "auto", None),
        ("ace", "reference", "RuntimeError: no such kernel"), ("ace", "auto", "RuntimeError: no such kernel")]
    reference, auto = rows[:2]
    assert reference["5 runs"] is None
    assert auto["5 runs"] > 0
    assert auto["NFE"] == 7
    assert auto["samples/s"] == pytest.approx(50 / auto["1 run"])
    failed = render({"rows": rows}).splitlines()[-1].split()
    assert (failed[:4], failed[-4:]) == (["series", "ace", "auto", "—"], ["RuntimeError:", "no", "such", "kernel"])


@pytest.mark.cuda
@pytest.mark.parametrize("workload", [
    ("images", "odenet", "graph"), ("images", "odenet", FLOAT32), ("baselines", "resnet", "graph"),
    ("baselines", "rknet", "graph"), ("series", "latent-ode", "auto"), ("windows", "ace", "auto"),
    ("sporadic", "gru-ode-bayes", "auto"), ("sporadic", "ace", "auto"), ("series", "gru-d", "auto"),
    ("sporadic", "t-lstm", "auto")], ids=" ".join)
def test_rows_on_a_gpu(workload: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "MOST", 2)
    row = workloads.measure_row(*workload, torch.device("cuda"))
    assert "error" not in row
    assert row["memory MB"] > 0
    assert 0 < row["5 runs"] < 10
    json.dumps(row)


def test_differences_of_engines_are_taken_seed_by_seed() -> None:
    accuracies = {"graph": [91.0, 93.0, None], "native": [None] * 3, "reference": [90.0, 90.0, 95.0]}
    rows = [{"engine": e, "seed": s, "error": "out of memory"} if value is None else
            {"engine": e, "seed": s, "accuracy": value, "seconds": 3.0}
            for e, values in accuracies.items() for s, value in enumerate(values)]
    graph, native, reference = training.summarise(rows)
    assert graph == {"engine": "graph", "median": 92.0, "mean": 92.0, "std": 1.41, "min": 91.0, "minus reference": 2.0,
                     "±": 1.0}
    assert (native["median"], native["minus reference"], reference["median"]) == (None, None, 90.0)


def test_ways_are_compared_with_one_run_after_another() -> None:
    rows = [{"way": "threads", "total": 6.0}, {"way": "one", "total": 8.0}]
    runs = [{"way": way, "training": seconds} for way, seconds in
            (("one", 2.0), ("threads", 4.0), ("one", 3.0), ("threads", 4.0))]
    training.compare_with_one(rows, runs)
    assert rows[0] == {"way": "threads", "total": 6.0, "total of one": 0.75, "least share of one": 0.5,
                       "most share of one": 0.75, "least/most": pytest.approx(2 / 3)}
    training.compare_with_one(rows[:1], runs[1::2])  # one was not measured


@pytest.mark.parametrize(("value", "text"), [
    (0.012345, "0.01235"), (38.25, "38.25"), (18700.4, "18,700"), (1234, "1,234"), (None, "—"), ("full", "full")])
def test_values_have_four_digits_and_separators_of_thousands(value: Any, text: str) -> None:
    assert render({"NFE": value}) == f"NFE: {text}"


@pytest.mark.long
def test_small_parts_of_scale_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_worker_niceness", "0")
    found = scale.rates(tmp_path / "rates", workers=(1,), ways=("threads", "ray"), runs=1)
    assert [(rate["way"], rate["runs"]) for rate in found] == [("threads", 1), ("ray", 1)]
    launcher, keeper, ray = scale.head(tmp_path / "head", queued=3, streaming=3, seconds=2.5)
    assert keeper["bytes a second"] > 0
    assert ray["memory MB"] > keeper["memory MB"] > 0
    (search,) = scale.search(tmp_path / "search", trials=3)
    assert sum(search.get(state, 0) for state in ("finished", "pruned", "failed")) == 3
    assert search["best"] is not None
    trials = scale.trials(tmp_path / "trials", sizes=(20, 60), workers=5)
    assert {row.get("recorded trials") for row in trials} == {20, 60, None}
    assert all(row["shortest"] > 0 for row in trials if row["measured"].startswith("one trial"))
    assert render({"trials": trials, "head": [launcher]})


def test_every_benchmark_can_be_called_with_its_options() -> None:
    for target in BENCHMARKS:
        module, _, name = target.partition(".")
        assert callable(getattr(importlib.import_module(f"acenode.bench.{module}"), name))
        assert make_parser().parse_args(["bench", name]).benchmark == target
    assert make_parser().parse_args(["bench", "gpu"]).families.split(",") == list(FAMILIES)
    assert make_parser().parse_args(["bench", "scale"]).parts.split(",") == list(scale.PARTS)
