"""Train every forecasting method and ablation on the samples; check metrics, batches, snapshots and reports."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from acenode import experiments
from acenode.data import simulated, ushcn
from acenode.data.splits import forecast_folds
from acenode.errors import UserError
from acenode.execution.execute import create, execute
from acenode.experiments import forecast_report as report
from acenode.experiments.forecast_task import ForecastTask
from acenode.experiments.probes import LIMIT
from acenode.models.forecast.gaussian import Forecast
from acenode.runs.store import RunStore

CPU, NOWHERE = torch.device("cpu"), Path("/nonexistent")
SMALL: dict[str, Any] = {"latent": 4, "units": 5, "features": 2, "recognition": 4, "epochs": 1, "batch_size": 40,
                         "snapshots": 2, "step_size": 0.5}
SAMPLES = ("climate", "ou", "brusselator")
ENTRY = experiments.get("ushcn")
SPEC: Any = ENTRY.make.__self__  # type: ignore[union-attr]
WHOLE = {"climate": simulated.climate(), "ou": simulated.double_ou(count=60),
         "brusselator": simulated.brusselator(count=60)}


@pytest.fixture(autouse=True)
def few_series(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use only 60 series of each sample."""
    fewer = {name: replace(SPEC.samples[name], load=lambda root, a=a: a.take(np.arange(60)))
             for name, a in WHOLE.items()}
    monkeypatch.setitem(SPEC.__dict__, "samples", fewer)


def configure(method: str, **given: Any) -> Any:
    uses = ENTRY.method(method).uses
    small = {k: v for k, v in SMALL.items() if k in uses and not (k == "step_size" and "solver" in uses)}
    if given.get("attention", "evolving") == "evolving" and "attention_every" in uses:
        small["attention_every"] = 2
    return ENTRY.configure(method, given.pop("data", "sample"), device="cpu", **{**small, **given})


def task(method: str, **given: Any) -> ForecastTask:
    made = ENTRY.make(configure(method, **given), NOWHERE, CPU)
    assert isinstance(made, ForecastTask)
    return made


def train(tmp_path: Path, method: str, **given: Any) -> dict[str, Any]:
    outcome = execute(create(RunStore(tmp_path), configure(method, **given)), NOWHERE)
    assert outcome.state == "finished", outcome.error
    assert "no analysis" not in (outcome.run.path / "log.txt").read_text()
    result: dict[str, Any] = json.loads((outcome.run.path / "result.json").read_text())
    assert all(np.isfinite(v) for v in result["test"].values())
    return result


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("method", ENTRY.methods)
def test_every_method_trains_on_every_sample(method: str, sample: str, tmp_path: Path) -> None:
    result = train(tmp_path, method, sample=sample)
    assert result["metric"] == "mse"
    assert len(result["over_time"]["t"]) == 10
    record = result["records"][0]
    assert [v["name"] for v in record["variables"]] == list(WHOLE[sample].names)
    assert record["cut"] == result["cut"] == SPEC.samples[sample].cut
    assert bool(record["jumps"]) == (method in ("gru-ode-bayes", "augmented", "ace"))
    assert all(t <= record["cut"] for t in record["jumps"])
    assert all(t > record["cut"] for v in record["variables"] for t in v["target_t"])
    assert ("coupling" in result) == (method == "ace" and WHOLE[sample].coupling is not None)
    errors = result["errors"]
    assert errors["mse"] == pytest.approx(result["test"]["mse"], rel=1e-5)
    assert [v["name"] for v in errors["by_variable"]] == list(WHOLE[sample].names)
    assert ("row_distance" in result) == (method == "ace")


@pytest.mark.parametrize("given", [
    {"attention": "fixed"}, {"attention": "none"}, {"initial": "dense"}, {"attention": "fixed", "initial": "dense"},
    {"schedule": "joint"}, {"schedule": "epoch", "epochs": 2}, {"penalty": "l1"}, {"penalty": "none"},
    {"detach_attention": True}, {"feedback": "own"}, {"g": "matrix"}, {"at_jump": "recompute"}, {"at_jump": "observed"},
    {"attention_every": 1}, {"cell": "minimal"}, {"attention": "none", "impute": True}, {"impute": True},
    {"dropout": 0.3}, {"fold": 4},
    {"targets": 1}, {"mixing": 0.0},
], ids=lambda g: " ".join(f"{k}={v}" for k, v in g.items()))
def test_every_ablation_trains(given: dict[str, Any], tmp_path: Path) -> None:
    train(tmp_path, "ace", sample="ou", **given)


@pytest.mark.parametrize(("given", "words"), [
    ({"attention_every": 0}, "attention_every"), ({"initial": "conv"}, "initial=conv"),
    ({"fold": 5}, "fold"), ({"sample": "mars"}, "sample"), ({"data": "full", "sample": "ou"}, "sample"),
])
def test_invalid_settings_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        task("ace", **given)


def test_a_batch_depends_on_seed_epoch_and_iteration_only() -> None:
    first, again = task("ace"), task("ace")
    again.batch(3, 0)
    a, b = first.batch(1, 1), again.batch(1, 1)
    assert a.seed == b.seed
    assert torch.equal(a.seen.x, b.seen.x)
    assert not torch.equal(first.batch(1, 0).seen.x[0, :2], a.seen.x[0, :2])
    assert first.batch(2, 1).seed != a.seed


def test_every_series_is_used_once_per_epoch() -> None:
    made = task("gru-d", batch_size=16)
    assert made.iterations == 3  # 43 training series (60 less a tenth, less a fifth of the rest): 16 + 16 + 11
    drawn = np.concatenate([made.batch(0, i) and made.order[16 * i:16 * (i + 1)] for i in range(3)])
    assert sorted(drawn) == sorted(made.data.parts.train)
    assert sum(len(made.batch(0, i).seen.t) for i in range(3)) == len(made.data.parts.train)


def test_training_uses_all_points_and_evaluation_those_up_to_the_cut() -> None:
    made = task("gru-d", targets=2)
    seen = made.batch(0, 0).seen
    assert float(seen.t.max()) > made.data.cut
    (held,) = made.batches("test", 2)
    assert float(held.seen.t.max()) <= made.data.cut < float(held.target.t[held.target.valid].min())
    assert (held.target.valid.sum(1) <= 2).all()
    index = made.data.parts.test
    for b, i in enumerate(index):
        own = made.data.arrays.t[made.data.arrays.offsets[i]:made.data.arrays.offsets[i + 1]]
        assert held.target.t[b][held.target.valid[b]].tolist() == own[own > made.data.cut][:2].tolist()


class Constant(torch.nn.Module):
    """Predicts the same mean and variance everywhere."""

    latent = 1

    def forward(self, batch: Any, *, detach_attention: bool = False) -> Forecast:
        like = torch.zeros_like(batch.target.x)
        return Forecast(like + 0.5, like + 0.3)


def test_metrics_follow_the_protocol() -> None:
    """Σ m (x − μ)² / Σ m and the mean negative log-likelihood, over all targets of the split."""
    made = task("gru-d", sample="climate")
    made.model = Constant()
    squared, nll, count = 0.0, 0.0, 0
    for r in made.data.records(made.data.parts.validation):
        for i in np.flatnonzero(r.t > made.data.cut)[:3]:
            x = r.x[i][r.m[i] > 0].astype(float)
            squared += ((x - 0.5) ** 2).sum()
            nll += (0.5 * np.log(2 * np.pi) + 0.15 + (x - 0.5) ** 2 / (2 * np.exp(0.3))).sum()
            count += len(x)
    found = made.evaluate("validation")
    assert found["mse"] == pytest.approx(squared / count, rel=1e-5)
    assert found["negll"] == pytest.approx(nll / count, rel=1e-5)


def test_errors_over_time_sum_to_the_total_error() -> None:
    made = task("gru-d", sample="climate")
    made.model = Constant()
    errors = made.errors("test", None, bins=10)
    assert errors is not None
    assert errors.bins is not None
    assert errors.bins[0].sum() == pytest.approx(errors.squared, rel=1e-6)
    assert errors.bins[2].sum() == errors.observed
    for n, count in enumerate(errors.bins[2]):
        low, high = made.data.cut + 5 * n, made.data.cut + 5 * (n + 1) + (n == 9)
        assert count == sum(r.m[(r.t > made.data.cut) & (r.t >= low) & (r.t < high)].sum()
                            for r in made.data.records(made.data.parts.test))


def test_the_loss_is_summed_over_a_series_and_averaged_over_the_batch() -> None:
    made = task("gru-d", batch_size=10)
    made.model = Constant()
    batch = made.batch(0, 0)
    x, m = batch.seen.x, batch.seen.m
    by_hand = ((0.5 * np.log(2 * np.pi) + 0.15 + (x - 0.5) ** 2 / (2 * np.exp(0.3))) * m).sum() / 10
    assert float(made.loss(batch, detach_attention=False).task) == pytest.approx(float(by_hand), rel=1e-5)


def test_the_best_epoch_is_selected_by_the_likelihood() -> None:
    assert ENTRY.metric.name == "mse"
    assert ENTRY.metric.selection == "negll"
    assert not ENTRY.metric.higher_is_better


def test_weight_decay_does_not_apply_to_penalised_attention_parameters() -> None:
    made = task("ace")
    recipe, groups = made.recipe(), made.groups(False)
    decay = made.config.get("weight_decay")
    assert recipe.optimiser(groups.main, 1e-3, False).param_groups[0]["weight_decay"] == decay > 0
    assert recipe.optimiser(groups.attention, 1e-3, True).param_groups[0]["weight_decay"] == 0
    assert {id(p) for p in groups.penalised} == {id(p) for p in made.model.attention.g.parameters()}  # type: ignore[union-attr]


def test_the_learning_rate_falls_to_a_third_after_twenty_epochs() -> None:
    recipe = task("ace", epochs=40).recipe()
    assert [recipe.rate(e / 40) for e in (0, 19.9, 20, 39)] == [1.0, 1.0, pytest.approx(1 / 3), pytest.approx(1 / 3)]


@pytest.mark.parametrize("method", ["ace", "gru-ode-bayes", "t-lstm", "node-vae"])
def test_a_snapshot_contains_the_probes_and_their_jumps(method: str) -> None:
    made = task(method, sample="climate")
    arrays = made.snapshot()
    F, P, d = arrays["h"].shape
    assert len(arrays["t"]) == F
    assert d == 4
    assert ("a" in arrays) == (method == "ace")
    assert arrays["name"].shape == (P,)
    assert arrays["jumps"].shape[0] == P
    first = arrays["jumps"][0][~np.isnan(arrays["jumps"][0])]
    own = next(r.t for r, i in zip(made.data.records(made.probes), made.probes, strict=True) if i == made.probes[0])
    assert first.tolist() == own[own <= made.data.cut].tolist()


def test_a_snapshot_at_the_papers_size_stays_below_the_limit() -> None:
    made = task("ace", sample="climate", latent=50)
    assert sum(a.nbytes for a in made.snapshot().values()) < LIMIT * 1.05


def test_the_grid_of_a_curve_has_every_jump_twice() -> None:
    made = task("gru-ode-bayes", sample="climate")
    report = made.report()
    record = report["records"][0]
    grid = np.array(record["variables"][0]["grid"])
    assert (np.diff(grid) >= 0).all()
    for t in record["jumps"]:
        assert (np.abs(grid - t) < 1e-3).sum() >= 2


def test_a_curve_continues_from_the_prediction_after_a_jump() -> None:
    """Also if a time of the grid coincides with the jump."""
    made = task("gru-ode-bayes", sample="ou", step_size=0.05)
    batch = made.data.forecast_batch(made.data.parts.test[:1], 0)
    with torch.no_grad():
        _, after, _, _ = made.model.eval().predict_around_jumps(batch, [0.0])  # type: ignore[operator]
        ((t, mean, _),) = report.curves(made.model, made.data, batch)
    seen = batch.seen.t[0].numpy()
    for i, at in enumerate(seen):
        last = int(np.flatnonzero(np.abs(t - at) < 1e-6)[-1])
        assert np.allclose(mean[last], after.mean[0, i].numpy(), atol=1e-6)


def test_folds_equal_the_published_ones() -> None:
    parts = forecast_folds(ushcn.SERIES)[0]
    assert parts.test[:6].tolist() == [154, 561, 284, 466, 950, 259]
    assert [len(p) for p in (parts.train, parts.validation, parts.test)] == [801, 201, 112]


def test_an_ornstein_uhlenbeck_pair_is_forecast_better_than_by_its_last_value_or_its_mean(
        monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = simulated.double_ou(count=1200)
    monkeypatch.setitem(SPEC.__dict__, "samples", {"ou": replace(SPEC.samples["ou"], load=lambda root: pairs)})
    config = ENTRY.configure("gru-ode-bayes", device="cpu", sample="ou", epochs=5, batch_size=54, latent=16, features=4)
    made = ENTRY.make(config, NOWHERE, CPU)
    assert isinstance(made, ForecastTask)
    recipe = made.recipe()
    optimiser = recipe.optimiser(list(made.model.parameters()), recipe.learning_rate, False)
    for epoch in range(5):
        made.model.train()
        for i in range(made.iterations):
            optimiser.zero_grad()
            made.loss(made.batch(epoch, i), detach_attention=False).task.backward()
            optimiser.step()
    errors: dict[str, list[float]] = {"last": [], "mean": []}
    mean = made.data.observed_mean()
    for r in made.data.records(made.data.parts.test):
        i = int(np.flatnonzero(r.t > made.data.cut)[0])
        for j in np.flatnonzero(r.m[i]):
            before = r.x[(r.t <= made.data.cut) & (r.m[:, j] > 0), j]
            errors["last"].append(float(r.x[i, j] - (before[-1] if len(before) else mean[j])) ** 2)
            errors["mean"].append(float(r.x[i, j] - mean[j]) ** 2)
    mse = made.evaluate("test")["mse"]
    assert mse < 0.8 * np.mean(errors["last"])
    assert mse < 0.3 * np.mean(errors["mean"])


@pytest.mark.parametrize("complete", [True, False])
def test_a_run_says_how_its_data_was_made(complete: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stations = simulated.climate()
    monkeypatch.setitem(SPEC.__dict__, "full", replace(SPEC.full, load=lambda root: stations))
    monkeypatch.setitem(SPEC.__dict__, "is_complete", lambda arrays: complete)
    monkeypatch.setitem(SPEC.__dict__, "data_note", lambda arrays: "rebuilt" if complete else "")
    config = ENTRY.configure("node-vae", "full", device="cpu", epochs=1, latent=4, units=4, recognition=4)
    run = create(RunStore(tmp_path), config)
    execute(run, NOWHERE)
    description = run.description()
    assert (description.get("partial"), description.get("data_note")) == ((None, "rebuilt") if complete else
                                                                         (True, None))
