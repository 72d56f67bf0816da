"""The latent family's experiments: every method and ablation, metrics, loss, schedules and snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from acenode import experiments
from acenode.data import activity, simulated
from acenode.errors import UserError
from acenode.experiments import series_task
from acenode.experiments.series_batches import assemble, cut_of
from acenode.experiments.series_task import SeriesTask

CPU, NOWHERE = torch.device("cpu"), Path("/nonexistent")
SMALL: dict[str, Any] = {"latent": 4, "units": 8, "batch_size": 64, "epochs": 1, "snapshots": 2}
SERIES = ("physionet", "physionet-vitals", "activity")
FEW = {name: (arrays := getattr(simulated, name)()).take(np.arange(0, len(arrays), 4)) for name in ("icu", "movement")}


@pytest.fixture(autouse=True)
def _few_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use only a quarter of the sample data."""
    for entry in SERIES:
        spec = experiments.get(entry).make.__self__  # type: ignore[union-attr]
        few = FEW["movement" if entry == "activity" else "icu"]
        monkeypatch.setitem(spec.__dict__, "sample", lambda few=few: few)


def task(experiment: str, method: str, data: str = "sample", **given: Any) -> Any:
    entry = experiments.get(experiment)
    small = {k: v for k, v in SMALL.items() if k in entry.method(method).uses}
    return entry.make(entry.configure(method, data, device="cpu", **{**small, **given}), NOWHERE, CPU)


def step(made: SeriesTask) -> dict[str, float]:
    """Check that a training step and a validation give numbers."""
    made.loss(made.batch(0, 0), detach_attention=False).task.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in made.model.parameters())
    found = made.evaluate("validation")
    assert made.metric.name in found
    assert np.isfinite(list(found.values())).all()
    return found


@pytest.mark.parametrize(("experiment", "method"), [(e, m) for e in SERIES for m in experiments.get(e).methods])
def test_every_method_trains_and_reports(experiment: str, method: str) -> None:
    made = task(experiment, method)
    assert ("nfe" in step(made)) == (made.config.get("solver") is not None)
    result = made.report()
    if experiment == "activity":
        assert len(result["bands"]) == 6
        assert len(result["confusion"]) == 7
    if experiment == "physionet":
        assert 0 <= result["roc"]["auc"] <= 1
        assert sum(result["calibration"]["count"]) == len(made.splits.test) * made.layout.trajectories
    if experiment == "physionet-vitals":
        assert len(result["over_time"]["t"]) == 24
        assert sum(result["over_time"]["count"]) == sum(r.m.sum() for r in made.splits.test.series)
        assert len(result["records"][0]["variables"][0]["grid"]) == 97
    assert ("coupling" in result) == (method == "ace")


def test_the_report_shows_points_and_predictions_of_a_record() -> None:
    made = task("physionet-vitals", "latent-ode", task="extrapolation")
    result = made.report()
    record = result["records"][0]
    assert record["cut"] == pytest.approx(24.0, abs=2.0)
    for variable in record["variables"]:
        assert all(t < record["cut"] for t in variable["t"])
        assert all(t >= record["cut"] for t in variable["target_t"])
        assert (np.array(variable["low"]) <= np.array(variable["high"])).all()
    shown = task("physionet", "latent-ode").report()["records"]
    assert len(shown) == 6
    assert shown[0]["cut"] is None
    assert task("physionet", "gru-d").report()["records"] == []  # predicts at a record's own times only


@pytest.mark.parametrize(("experiment", "method", "given"), [  # besides those of same_numbers.py
    ("physionet", "ace", {"gradient": "checkpointed"}), ("physionet", "ace", {"bounded": True}),
    ("physionet", "ace", {"attention": "fixed", "initial": "dense"}), ("activity", "ace", {"attention": "fixed"})],
    ids=str)
def test_every_ablation_trains(experiment: str, method: str, given: dict[str, Any]) -> None:
    step(task(experiment, method, **given))


def test_adjoint_gradients_agree_with_backprop() -> None:
    found = []
    for gradient in ("backprop", "adjoint"):
        made = task("physionet", "ace", gradient=gradient, rtol=1e-6, atol=1e-7, batch_size=6)
        made.loss(made.batch(0, 0), detach_attention=False).task.backward()
        found.append([p.grad.clone() for p in made.model.parameters() if p.grad is not None])
    for a, b in zip(*found, strict=True):
        assert torch.allclose(a, b, rtol=2e-3, atol=2e-3 * float(a.abs().max()) + 1e-6)


def test_settings_of_other_experiments_are_refused() -> None:
    entry = experiments.get("physionet")
    with pytest.raises(UserError, match="task does not apply to physionet"):
        entry.configure("ace", task="extrapolation")
    with pytest.raises(UserError, match="correlation or dense"):
        entry.configure("ace", initial="conv")
    assert entry.choices("initial") == ("correlation", "dense")


def predict_split(made: SeriesTask, split: str = "validation") -> tuple[Any, Any]:
    """Return a whole split as one batch, and the predictions for it."""
    records = getattr(made.splits, split)
    b = assemble(records, made.layout, made.noise(split, len(records)), 0.0, cut_of(records, made.layout))
    with torch.no_grad():
        return b, made.model.eval()(b)


def test_auc_is_pooled_over_trajectories() -> None:
    made = task("physionet", "latent-ode")
    b, predicted = predict_split(made)
    labels, logits, found = b.label.numpy(), predicted.logits.numpy(), made.evaluate("validation")
    assert found["auc"] == pytest.approx(roc_auc_score(np.tile(labels, 3), logits.ravel()), abs=1e-9)
    assert found["mean_logit_auc"] == pytest.approx(roc_auc_score(labels, logits.mean(0)), abs=1e-9)


@pytest.mark.parametrize("given", [{}, {"task": "extrapolation"}])
def test_mse_follows_the_protocol_and_micro_mse_is_the_plain_mean(given: dict[str, Any]) -> None:
    made = task("physionet-vitals", "latent-ode", **given)
    b, predicted = predict_split(made)
    error, m = (predicted.x - b.target.x).square().numpy(), b.target.m.numpy()
    per = [error[k, i, m[i, :, j] > 0, j].mean() if m[i, :, j].any() else 0.0
           for k in range(3) for i in range(len(m)) for j in range(m.shape[2])]
    found = made.evaluate("validation")
    assert found["mse"] == pytest.approx(float(np.mean(per)), rel=1e-4)
    assert found["micro_mse"] == pytest.approx(float((error * m).sum() / m.sum() / 3), rel=1e-4)


def test_accuracy_is_over_all_labelled_points_and_trajectories() -> None:
    made = task("activity", "latent-ode")
    b, predicted = predict_split(made)
    right = (predicted.logits.argmax(-1) == b.label)[:, (b.label >= 0) & b.target.observed]
    assert made.evaluate("validation")["accuracy"] == pytest.approx(float(right.float().mean()))


@pytest.mark.parametrize("experiment", SERIES)
def test_evaluation_does_not_depend_on_the_batch_size(experiment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    together = task(experiment, "ace").evaluate("validation")
    monkeypatch.setattr(SeriesTask, "evaluation_batch", 7)
    apart = task(experiment, "ace").evaluate("validation")
    assert apart.pop("nfe") > 0
    assert apart == pytest.approx({k: v for k, v in together.items() if k != "nfe"}, rel=1e-4)


def test_the_loss_is_the_negative_elbo_plus_weighted_cross_entropy() -> None:
    made = task("physionet", "latent-ode")
    b = made.batch(0, 0)
    with torch.no_grad():
        predicted = made.model(b)
    likelihood = series_task.latent_ode.log_likelihood(predicted.x, b.target, 0.3)
    entropy = torch.nn.BCEWithLogitsLoss()(predicted.logits, b.label.expand_as(predicted.logits))
    expected = -torch.logsumexp(likelihood, 0) + 100 / 3 * entropy
    assert made.loss(b, detach_attention=False).task.item() == pytest.approx(float(expected), rel=1e-5)
    b.label[0] = torch.nan  # unknown labels are left out
    assert torch.isfinite(made.loss(b, detach_attention=False).task)


def test_the_learning_rate_decays_to_a_tenth_and_no_further() -> None:
    made = task("physionet", "latent-ode", epochs=30)
    rate = made.recipe().rate
    assert rate(0.0) == 1.0
    assert rate(1 / (30 * made.iterations)) == pytest.approx(0.999)
    assert task("physionet", "latent-ode", epochs=100_000).recipe().rate(0.5) == 0.1


def test_a_batch_depends_on_seed_epoch_and_iteration_only() -> None:
    a, b = (task("physionet", "ace", batch_size=16, seed=3) for _ in range(2))
    b.batch(4, 0)
    x, y = a.batch(0, 1), b.batch(0, 1)
    assert torch.equal(x.seen.x, y.seen.x)
    assert torch.equal(x.noise, y.noise)
    assert not torch.equal(x.noise, a.batch(1, 1).noise)
    assert not torch.equal(a.batch(0, 0).seen.x[0, :2], x.seen.x[0, :2])


def test_the_attention_phase_trains_g_of_both_odes() -> None:
    made = task("physionet", "ace", attention_in="both")
    groups = made.groups(False)
    nets = (*made.model.ode.g.parameters(), *made.model.encoder.recurrence.drift.g.parameters())
    assert {id(p) for p in groups.attention} == {id(p) for p in nets}
    assert len(groups.main) + len(groups.attention) == len(list(made.model.parameters()))


def test_extrapolation_splits_records_at_the_cut() -> None:
    b = task("physionet-vitals", "latent-ode", task="extrapolation").batch(0, 0)
    assert (b.seen.t < b.span[0]).all()
    assert float(b.target.t[b.target.valid].min()) == pytest.approx(b.span[0])


def test_snapshots_contain_pairwise_attention_and_influence() -> None:
    made = task("activity", "ace")
    arrays = made.snapshot()
    frames, probes, d = arrays["h"].shape
    assert (frames, probes, d) == (41, 8, 4)
    assert arrays["a"].shape == arrays["influence"].shape == (frames, probes, d, d)
    assert made.model.training
    assert {"a", "influence"}.isdisjoint(task("activity", "gru-d").snapshot())
    assert "influence" not in task("physionet-vitals", "latent-poisson").snapshot()


def test_tasks_on_part_of_the_data_are_marked_partial(monkeypatch: pytest.MonkeyPatch) -> None:
    spec: Any = experiments.get("activity").make.__self__  # type: ignore[union-attr]
    assert activity.recordings(FEW["movement"]) < activity.RECORDINGS
    monkeypatch.setitem(spec.__dict__, "full", lambda root: FEW["movement"])
    assert task("activity", "rnn-dt", "full").partial is True
    assert task("activity", "rnn-dt").partial is False
