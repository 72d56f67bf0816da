"""Train every method and ablation of the latent-ODE experiments; check metrics, loss, schedules and snapshots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from acenode import experiments
from acenode.data import activity, simulated
from acenode.errors import UserError
from acenode.execution.execute import create, execute
from acenode.experiments import series_task
from acenode.experiments.series_batches import assemble, cut_of
from acenode.experiments.series_task import SeriesTask
from acenode.runs.store import RunStore

CPU, NOWHERE = torch.device("cpu"), Path("/nonexistent")
SMALL: dict[str, Any] = {"latent": 4, "units": 8, "batch_size": 64, "epochs": 1, "snapshots": 2}
SERIES = ("physionet", "physionet-vitals", "activity")
EVERY = [(e, m) for e in SERIES for m in experiments.get(e).methods]


def task(experiment: str, method: str, **given: Any) -> Any:
    entry = experiments.get(experiment)
    small = {k: v for k, v in SMALL.items() if k in entry.method(method).uses}
    return entry.make(entry.configure(method, "sample", device="cpu", **{**small, **given}), NOWHERE, CPU)


def train(tmp_path: Path, experiment: str, method: str, **given: Any) -> dict[str, Any]:
    entry = experiments.get(experiment)
    small = {k: v for k, v in SMALL.items() if k in entry.method(method).uses}
    config = entry.configure(method, "sample", device="cpu", **{**small, **given})
    outcome = execute(create(RunStore(tmp_path), config), NOWHERE)
    assert outcome.state == "finished", outcome.error
    assert "no analysis" not in (outcome.run.path / "log.txt").read_text()
    result = json.loads((outcome.run.path / "result.json").read_text())
    assert all(np.isfinite(v) for v in result["test"].values())
    return result


@pytest.fixture(autouse=True)
def few_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use only a quarter of the sample data."""
    for name in ("icu", "movement"):
        whole = getattr(simulated, name)()
        fewer = whole.take(np.arange(0, len(whole), 4))
        for entry in SERIES:
            spec = experiments.get(entry).make.__self__  # type: ignore[union-attr]
            if spec.sample.__name__ == name:
                monkeypatch.setitem(spec.__dict__, "sample", _named(name, fewer))


def _named(name: str, arrays: Any) -> Any:
    def sample() -> Any:
        return arrays

    sample.__name__ = name
    return sample


# Training -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("experiment", "method"), EVERY)
def test_every_method_trains_and_reports(tmp_path: Path, experiment: str, method: str) -> None:
    result = train(tmp_path, experiment, method)
    assert experiments.get(experiment).metric.name in result["test"]
    if experiment == "activity":
        assert len(result["bands"]) == 6
        assert len(result["confusion"]) == 7
    if experiment == "physionet":
        assert 0 <= result["roc"]["auc"] <= 1
    if experiment == "physionet-vitals":
        assert len(result["over_time"]["t"]) == 24
        assert len(result["records"][0]["variables"][0]["grid"]) == 97
    assert ("coupling" in result) == (method == "ace")


@pytest.mark.parametrize("given", [
    {"attention": "fixed"}, {"attention": "none"}, {"initial": "dense"}, {"schedule": "joint"}, {"penalty": "l1"},
    {"penalty": "none"}, {"detach_attention": True}, {"attention_in": "both"}, {"gradient": "checkpointed"},
    {"grid": "union"}, {"bounded": True}, {"solver": "rk4"}, {"schedule": "epoch", "epochs": 2},
    {"classify_from": "end"}, {"normalisation": "comparable"}, {"attention": "fixed", "initial": "dense"}], ids=str)
def test_every_ablation_trains(tmp_path: Path, given: dict[str, Any]) -> None:
    train(tmp_path, "physionet", "ace", **given)


@pytest.mark.parametrize(("experiment", "method", "given"), [
    *(("physionet-vitals", m, {"task": "extrapolation"}) for m in experiments.get("physionet-vitals").methods),
    ("physionet-vitals", "ace", {"task": "extrapolation", "cut": "24h"}),
    ("physionet-vitals", "ace", {"attention": "fixed"}), ("physionet-vitals", "ace", {"initial": "dense"}),
    ("activity", "ace", {"split": "recording"}), ("activity", "ace", {"attention": "fixed"}),
    ("activity", "ace", {"initial": "dense"})])
def test_every_task_and_split_trains(tmp_path: Path, experiment: str, method: str, given: dict[str, Any]) -> None:
    result = train(tmp_path, experiment, method, **given)
    if given.get("task") == "extrapolation":
        assert result["records"][0]["cut"] == pytest.approx(24.0, abs=2.0)


def test_adjoint_gradients_agree_with_backprop() -> None:
    found = []
    for gradient in ("backprop", "adjoint"):
        made = task("physionet", "ace", gradient=gradient, rtol=1e-6, atol=1e-7, batch_size=6)
        made.loss(made.batch(0, 0), detach_attention=False).task.backward()
        found.append([p.grad.clone() for p in made.model.parameters() if p.grad is not None])
    for a, b in zip(*found, strict=True):
        assert torch.allclose(a, b, rtol=2e-3, atol=2e-3 * float(a.abs().max()) + 1e-6)


def test_settings_of_other_experiments_are_refused() -> None:
    with pytest.raises(UserError, match="task does not apply to physionet"):
        experiments.get("physionet").configure("ace", task="extrapolation")
    with pytest.raises(UserError, match="correlation or dense"):
        experiments.get("physionet").configure("ace", initial="conv")
    assert experiments.get("physionet").choices("initial") == ("correlation", "dense")


# Metrics of the protocol --------------------------------------------------------------------------------------------


def predict_split(made: SeriesTask, split: str) -> tuple[Any, Any]:
    """Return a whole split as one batch, and the predictions for it."""
    records = getattr(made.splits, split)
    cut = cut_of(records, made.layout)
    b = assemble(records, made.layout, made.noise(split, len(records)), 0.0, cut)
    with torch.no_grad():
        return b, made.model.eval()(b)


def test_auc_is_pooled_over_trajectories() -> None:
    made = task("physionet", "latent-ode")
    b, predicted = predict_split(made, "validation")
    labels = b.label.numpy()
    found = made.evaluate("validation")
    assert found["auc"] == pytest.approx(roc_auc_score(np.tile(labels, 3), predicted.logits.numpy().ravel()), abs=1e-9)
    assert found["mean_logit_auc"] == pytest.approx(roc_auc_score(labels, predicted.logits.numpy().mean(0)), abs=1e-9)


@pytest.mark.parametrize("given", [{}, {"task": "extrapolation"}])
def test_mse_follows_the_protocol_and_micro_mse_is_the_plain_mean(given: dict[str, Any]) -> None:
    made = task("physionet-vitals", "latent-ode", **given)
    b, predicted = predict_split(made, "validation")
    error = (predicted.x - b.target.x).square().numpy()
    m = b.target.m.numpy()
    per = [error[k, i, m[i, :, j] > 0, j].mean() if m[i, :, j].any() else 0.0
           for k in range(3) for i in range(len(m)) for j in range(m.shape[2])]
    found = made.evaluate("validation")
    assert found["mse"] == pytest.approx(float(np.mean(per)), rel=1e-4)
    assert found["micro_mse"] == pytest.approx(float((error * m).sum() / m.sum() / 3), rel=1e-4)


def test_accuracy_is_over_all_labelled_points_and_trajectories() -> None:
    made = task("activity", "latent-ode")
    b, predicted = predict_split(made, "validation")
    counted = (b.label >= 0) & b.target.observed
    right = (predicted.logits.argmax(-1) == b.label)[:, counted]
    assert made.evaluate("validation")["accuracy"] == pytest.approx(float(right.float().mean()))


@pytest.mark.parametrize("experiment", SERIES)
def test_evaluation_does_not_depend_on_the_batch_size(experiment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = task(experiment, "ace")
    together = made.evaluate("validation")
    monkeypatch.setattr(series_task, "EVALUATION_BATCH", 7)
    apart = made.evaluate("validation")
    assert {k: v for k, v in apart.items() if k != "nfe"} == pytest.approx(
        {k: v for k, v in together.items() if k != "nfe"}, rel=1e-4)


# Loss and schedule --------------------------------------------------------------------------------------------------


def test_the_loss_is_the_negative_elbo_plus_weighted_cross_entropy() -> None:
    made = task("physionet", "latent-ode")
    b = made.batch(0, 0)
    with torch.no_grad():
        predicted = made.model(b)
    likelihood = series_task.log_likelihood(predicted.x, b.target, 0.3)
    entropy = torch.nn.BCEWithLogitsLoss()(predicted.logits, b.label.expand_as(predicted.logits))
    expected = -torch.logsumexp(likelihood, 0) + 100 / 3 * entropy
    assert made.loss(b, detach_attention=False).task.item() == pytest.approx(float(expected), rel=1e-5)


def test_unknown_labels_are_left_out_of_the_loss() -> None:
    made = task("physionet", "latent-ode")
    b = made.batch(0, 0)
    label = b.label.clone()
    label[0] = torch.nan
    value = made.loss(series_task.SeriesBatch(b.seen, b.target, label, b.span, b.schedule, b.noise),
                      detach_attention=False)
    assert torch.isfinite(value.task)


def test_the_learning_rate_decays_to_a_tenth_and_no_further() -> None:
    made = task("physionet", "latent-ode", epochs=30)
    total = 30 * made.iterations
    rate = made.recipe().rate
    assert rate(0.0) == 1.0
    assert rate(1 / total) == pytest.approx(0.999)
    long = task("physionet", "latent-ode", epochs=100_000).recipe()
    assert long.rate(0.5) == 0.1


def test_a_batch_depends_on_seed_epoch_and_iteration_only() -> None:
    a, b = (task("physionet", "ace", seed=3) for _ in range(2))
    b.batch(4, 0)
    x, y = a.batch(0, 1), b.batch(0, 1)
    assert torch.equal(x.seen.x, y.seen.x)
    assert torch.equal(x.noise, y.noise)
    assert not torch.equal(x.noise, a.batch(1, 1).noise)


def test_the_attention_phase_trains_g_of_both_odes() -> None:
    made = task("physionet", "ace", attention_in="both")
    groups = made.groups(False)
    nets = (*made.model.ode.g.parameters(), *made.model.encoder.recurrence.drift.g.parameters())
    assert {id(p) for p in groups.attention} == {id(p) for p in nets}
    assert len(groups.main) + len(groups.attention) == len(list(made.model.parameters()))


def test_extrapolation_splits_records_at_the_cut() -> None:
    made = task("physionet-vitals", "latent-ode", task="extrapolation")
    b = made.batch(0, 0)
    start = b.span[0]
    assert (b.seen.t < start).all()
    assert (b.target.t >= start).all()
    assert float(b.target.t[b.target.valid].min()) == pytest.approx(start)


def test_snapshots_contain_pairwise_attention() -> None:
    arrays = task("activity", "ace").snapshot()
    frames, probes, d = arrays["h"].shape
    assert (frames, d) == (41, 4)
    assert arrays["a"].shape == (frames, probes, d, d)
    assert "a" not in task("activity", "gru-d").snapshot()


def test_runs_on_part_of_the_data_are_marked_partial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = experiments.get("activity")
    spec = entry.make.__self__  # type: ignore[union-attr]
    windows = spec.sample()
    assert activity.recordings(windows) < activity.RECORDINGS
    monkeypatch.setitem(spec.__dict__, "full", lambda root: windows)
    config = entry.configure("rnn-dt", "full", device="cpu", epochs=1, latent=4, units=8)
    run = create(RunStore(tmp_path), config)
    execute(run, NOWHERE)
    assert run.description()["partial"] is True
