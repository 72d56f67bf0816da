"""The forecasting experiments on small samples: methods and ablations, metrics, errors, batches, snapshots, report."""

from __future__ import annotations

import math
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
from acenode.experiments.forecast_task import (
    ForecastErrors,
    ForecastTask,
    ObservedTargets,
    bootstrap_interval,
    error_report,
    measures,
)
from acenode.experiments.recording import LIMIT, row_distance
from acenode.models.forecast.gaussian import Forecast
from acenode.training.task import SilentListener
from acenode.training.trainer import Trainer

CPU, NOWHERE = torch.device("cpu"), Path("/nonexistent")
SMALL: dict[str, Any] = {"latent": 4, "units": 5, "features": 2, "recognition": 4, "epochs": 1, "batch_size": 40,
                         "snapshots": 2, "step_size": 0.5}
ENTRY = experiments.get("ushcn")
SPEC: Any = ENTRY.make.__self__  # type: ignore[union-attr]
FEW = {"climate": simulated.climate().take(np.arange(60)), "ou": simulated.double_ou(count=60),
       "brusselator": simulated.brusselator(count=60)}


@pytest.fixture(autouse=True)
def _few_series(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use only 60 series of each sample."""
    monkeypatch.setitem(SPEC.__dict__, "samples", {
        name: replace(SPEC.samples[name], load=lambda root, a=a: a) for name, a in FEW.items()})


def task(method: str, **given: Any) -> ForecastTask:
    uses = ENTRY.method(method).uses
    small = {k: v for k, v in SMALL.items() if k in uses and not (k == "step_size" and "solver" in uses)}
    if given.get("attention", "evolving") == "evolving" and "attention_every" in uses:
        small["attention_every"] = 2
    config = ENTRY.configure(method, given.pop("data", "sample"), device="cpu", **{**small, **given})
    made = ENTRY.make(config, NOWHERE, CPU)
    assert isinstance(made, ForecastTask)
    return made


@pytest.mark.parametrize(("method", "sample"), [*((m, "climate") for m in ENTRY.methods), ("ace", "ou"),
                                                ("seq-vae", "brusselator")])
def test_every_method_reports(method: str, sample: str) -> None:
    made, whole = task(method, sample=sample), FEW[sample]
    result = made.report()
    assert len(result["over_time"]["t"]) == 10
    record = result["records"][0]
    assert [v["name"] for v in record["variables"]] == list(whole.names)
    assert record["cut"] == result["cut"] == SPEC.samples[sample].cut
    assert bool(record["jumps"]) == (method in ("gru-ode-bayes", "augmented", "ace"))
    assert all(t <= record["cut"] for t in record["jumps"])
    for v in record["variables"]:
        assert all(t > record["cut"] for t in v["target_t"])
        assert (np.diff(v["grid"]) >= 0).all()
        assert (np.array(v["high"]) > np.array(v["low"])).all()
    assert ("coupling" in result) == (method == "ace" and whole.coupling is not None)
    assert ("row_distance" in result) == (method == "ace")
    assert result["errors"]["mse"] == pytest.approx(made.evaluate("test")["mse"], rel=1e-5)
    assert [v["name"] for v in result["errors"]["by_variable"]] == list(whole.names)


@pytest.mark.parametrize(("given", "words"), [
    ({"attention_every": 0}, "attention_every"), ({"initial": "conv"}, "initial=conv"),
    ({"fold": 5}, "fold"), ({"sample": "mars"}, "sample"), ({"data": "full", "sample": "ou"}, "sample")])
def test_invalid_settings_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        task("ace", **given)


def test_a_batch_depends_on_seed_epoch_and_iteration_only() -> None:
    first, again = (task("ace", batch_size=16) for _ in range(2))
    again.batch(3, 0)
    a, b = first.batch(1, 1), again.batch(1, 1)
    assert a.seed == b.seed != first.batch(2, 1).seed
    assert torch.equal(a.seen.x, b.seen.x)
    assert not torch.equal(first.batch(1, 0).seen.x[0, :2], a.seen.x[0, :2])
    assert first.iterations == 3  # 43 training series (60 less a tenth, less a fifth of the rest): 16 + 16 + 11
    assert sum(len(first.batch(0, i).seen.t) for i in range(3)) == 43
    assert sorted(first.order) == sorted(first.data.parts.train)


def test_training_uses_all_points_and_evaluation_those_up_to_the_cut() -> None:
    made = task("gru-d", targets=2)
    assert float(made.batch(0, 0).seen.t.max()) > made.data.cut
    (held,) = made.batches("test", 2)
    assert float(held.seen.t.max()) <= made.data.cut
    arrays = made.data.arrays
    for b, i in enumerate(made.data.parts.test):
        own = arrays.t[arrays.offsets[i]:arrays.offsets[i + 1]]
        assert held.target.t[b][held.target.valid[b]].tolist() == own[own > made.data.cut][:2].tolist()


class Constant(torch.nn.Module):
    """Predicts the same mean and variance everywhere."""

    latent = 1

    def forward(self, batch: Any, *, detach_attention: bool = False) -> Forecast:
        like = torch.zeros_like(batch.target.x)
        return Forecast(like + 0.5, like + 0.3)


def constant_nll(x: Any) -> Any:
    return 0.5 * np.log(2 * np.pi) + 0.15 + (x - 0.5) ** 2 / (2 * np.exp(0.3))


def test_metrics_and_loss_follow_the_protocol() -> None:
    """Metrics average over all targets of the split; the loss sums over a series and averages over the batch."""
    made = task("gru-d", sample="climate", batch_size=10)
    made.model = Constant()
    squared, nll, count = 0.0, 0.0, 0
    for r in made.data.records(made.data.parts.validation):
        for i in np.flatnonzero(r.t > made.data.cut)[:3]:
            x = r.x[i][r.m[i] > 0].astype(float)
            squared, nll, count = squared + ((x - 0.5) ** 2).sum(), nll + constant_nll(x).sum(), count + len(x)
    assert made.evaluate("validation") == pytest.approx({"mse": squared / count, "negll": nll / count}, rel=1e-5)
    batch = made.batch(0, 0)
    by_hand = (constant_nll(batch.seen.x) * batch.seen.m).sum() / 10
    assert float(made.loss(batch, detach_attention=False).task) == pytest.approx(float(by_hand), rel=1e-5)


def test_errors_over_time_sum_to_the_total_error() -> None:
    made = task("gru-d", sample="climate")
    made.model = Constant()
    edges = torch.linspace(made.data.cut, made.data.arrays.horizon, 11)
    errors = made.evaluated(ForecastErrors(edges), made.batches("test", None), lambda: False)
    assert errors.bins[0].sum() == pytest.approx(errors.squared, rel=1e-6)
    assert errors.bins[1].sum() == pytest.approx(errors.nll, rel=1e-6)
    assert errors.bins[2].sum() == errors.observed
    for n, count in enumerate(errors.bins[2]):
        low, high = made.data.cut + 5 * n, made.data.cut + 5 * (n + 1) + (n == 9)
        assert count == sum(r.m[(r.t > made.data.cut) & (r.t >= low) & (r.t < high)].sum()
                            for r in made.data.records(made.data.parts.test))


def test_training_settings() -> None:
    """The best epoch is selected by the likelihood; θ_g has no weight decay; the rate falls after twenty epochs."""
    assert (ENTRY.metric.name, ENTRY.metric.selection, ENTRY.metric.higher_is_better) == ("mse", "negll", False)
    made = task("ace", epochs=40)
    recipe, groups = made.recipe(), made.groups(False)
    decay = made.config.get("weight_decay")
    assert recipe.optimiser(groups.main, 1e-3, False).param_groups[0]["weight_decay"] == decay > 0
    assert recipe.optimiser(groups.attention, 1e-3, True).param_groups[0]["weight_decay"] == 0
    assert {id(p) for p in groups.penalised} == {id(p) for p in made.model.attention.g.parameters()}
    assert [recipe.rate(e / 40) for e in (0, 19.9, 20, 39)] == [1.0, 1.0, pytest.approx(1 / 3), pytest.approx(1 / 3)]


def test_an_ornstein_uhlenbeck_pair_is_forecast_better_than_by_its_last_value_or_its_mean(
        monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = simulated.double_ou(count=800)
    monkeypatch.setitem(SPEC.__dict__, "samples", {"ou": replace(SPEC.samples["ou"], load=lambda root: pairs)})
    made = task("gru-ode-bayes", sample="ou", epochs=5, batch_size=54, latent=16, features=4, units=25, step_size=0.1)
    Trainer(made, made.recipe(), SilentListener()).run()
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


@pytest.mark.parametrize("method", ["ace", "t-lstm", "node-vae"])
def test_a_snapshot_contains_the_probes_and_their_jumps(method: str) -> None:
    made = task(method, sample="climate", **({"latent": 50} if method == "ace" else {}))  # the paper's size
    arrays = made.snapshot()
    F, P, _ = arrays["h"].shape
    assert len(arrays["t"]) == F
    assert ("a" in arrays) == (method == "ace")
    assert arrays["name"].shape == (P,)
    assert sum(a.nbytes for a in arrays.values()) < LIMIT * 1.05
    (own,) = (r.t for r in made.data.records(made.probes[:1]))
    first = arrays["jumps"][0][~np.isnan(arrays["jumps"][0])]
    assert first.tolist() == own[own <= made.data.cut].tolist()


def test_a_curve_continues_from_the_prediction_after_a_jump() -> None:
    """It has every jump twice, also if a time of the grid coincides with the jump."""
    made = task("gru-ode-bayes", sample="ou", step_size=0.05)
    batch = made.data.forecast_batch(made.data.parts.test[:1], 0)
    with torch.no_grad():
        before, after, _, _ = made.model.eval().predict_around_jumps(batch, [0.0])
        ((t, mean, deviation),) = made.curves(batch)
    for i, at in enumerate(batch.seen.t[0].numpy()):
        *_, first, last = np.flatnonzero(np.abs(t - at) < 1e-6)
        assert np.allclose(mean[first], before.mean[0, i].numpy(), atol=1e-6)
        assert np.allclose(mean[last], after.mean[0, i].numpy(), atol=1e-6)
        assert np.allclose(deviation[last], np.exp(0.5 * after.logvar[0, i].numpy()), atol=1e-6)


def test_folds_equal_the_published_ones() -> None:
    parts = forecast_folds(ushcn.SERIES)[0]
    assert parts.test[:6].tolist() == [154, 561, 284, 466, 950, 259]
    assert [len(p) for p in (parts.train, parts.validation, parts.test)] == [801, 201, 112]


@pytest.mark.parametrize("complete", [True, False])
def test_a_task_says_how_its_data_was_made(complete: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SPEC.__dict__, "full", replace(SPEC.full, load=lambda root: simulated.climate()))
    monkeypatch.setitem(SPEC.__dict__, "has_all", lambda arrays: complete)
    monkeypatch.setitem(SPEC.__dict__, "note", lambda arrays: "rebuilt" if complete else "")
    made = task("node-vae", data="full")
    assert (made.partial, made.data_note) == ((False, "rebuilt") if complete else (True, ""))


def targets(errors: list[float], variable: list[int], series: list[int] | None = None) -> ObservedTargets:
    mean = np.linspace(-1, 1, len(errors))
    return ObservedTargets(np.array(series or range(len(errors))), np.array(variable), np.zeros(len(errors)),
                           mean + np.array(errors), mean)


def test_one_extreme_target_decides_the_mean_but_not_the_robust_measures() -> None:
    quiet, heavy = [0.1, -0.1] * 100, [0.1, -0.1] * 99 + [0.1, 10.0]
    calm, storm = (measures(targets(e, [0] * 200)) for e in (quiet, heavy))
    assert calm == {"count": 200, "mse": pytest.approx(0.01), "mae": pytest.approx(0.1), "median": pytest.approx(0.01),
                    "winsorised": pytest.approx(0.01), "largest": pytest.approx(0.01)}
    assert storm["mse"] == pytest.approx((199 * 0.01 + 100) / 200)
    assert storm["median"] == pytest.approx(0.01)
    assert storm["winsorised"] == pytest.approx(0.01, rel=0.01)
    assert storm["largest"] == pytest.approx((100 + 0.01) / (100 + 199 * 0.01))  # the largest 1% are two targets


def test_errors_by_variable_add_up() -> None:
    found = error_report(targets([1.0, 2.0, 3.0, 0.0], [0, 1, 1, 0]), ("rain", "snow", "never"))
    rain, snow, never = found["by_variable"]
    assert (rain["mse"], snow["mse"], never["mse"]) == (pytest.approx(0.5), pytest.approx(6.5), None)
    assert (rain["share"], snow["share"], never["share"]) == (pytest.approx(1 / 14), pytest.approx(13 / 14), 0.0)
    assert sum(v["mse"] * v["count"] for v in (rain, snow)) == pytest.approx(found["mse"] * found["count"])


def test_the_bootstrap_draws_series_not_targets() -> None:
    """The interval of the mean of n equal groups is that of n numbers: its width has a closed form."""
    squares = np.random.default_rng(1).normal(size=400) ** 2
    errors = np.sqrt(np.repeat(squares, 5))
    low, high = bootstrap_interval(targets(errors.tolist(), [0] * 2000, np.repeat(np.arange(400), 5).tolist()))
    assert low < squares.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * squares.std() / math.sqrt(400), rel=0.1)


def test_distance_between_rows_of_attention() -> None:
    equal = torch.randn(2, 1, 4, generator=torch.Generator().manual_seed(0)).expand(2, 4, 4)
    assert row_distance(equal) == pytest.approx(0.0, abs=1e-7)
    assert row_distance(1e4 * torch.eye(4)) == pytest.approx(1.0)
    row = math.e / (math.e + 3)  # rows of softmax(I) differ in two entries, by row − 1/(e + 3) each
    assert row_distance(torch.eye(4)) == pytest.approx(row - 1 / (math.e + 3))
