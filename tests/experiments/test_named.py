"""Experiments on named variables: training, references, reports, and imported sets."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from acenode import experiments
from acenode.data.named_batches import ScaledSet
from acenode.data.named_set import NamedSet
from acenode.data.series import Record
from acenode.experiments import named_references
from acenode.experiments.named_references import LAST, MEAN, RIDGE, RIDGE_OWN, label_references, value_references
from acenode.experiments.named_task import link_auroc
from acenode.training.task import SilentListener
from acenode.training.trainer import Trainer

SMALL = {"epochs": 1, "batch_size": 32, "units": 8, "recognition": 8, "block": 2, "step_size": 0.2, "device": "cpu"}


def small_set(task: str = "forecast", **changes) -> NamedSet:
    """Variable b repeats variable a one step later; variable c is noise."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(120, 8, 3))
    x[:, 1:, 1] = x[:, :-1, 0]
    x[rng.random(x.shape) < 0.05] = np.nan
    return NamedSet(**{
        "name": "delayed", "title": "Delayed", "note": "", "variables": ("a", "b", "c"), "units": ("m", "", "kg"),
        "time_unit": "h", "time_origin": "", "ids": tuple(map(str, range(120))),
        "series": tuple(Record.from_gaps(np.arange(8.0), 10 + 2 * own) for own in x), "task": task,
        "given": 7.0 if task == "forecast" else 0.0, "parts": {
            "train": np.arange(80), "validation": np.arange(80, 100), "test": np.arange(100, 120)},
        "labels": (np.nan_to_num(x[:, -1, 0]) > 0).astype(np.int64) if task == "classify" else None,
        "classes": ("low", "high") if task == "classify" else (), **changes})


@pytest.fixture
def imported(tmp_path, monkeypatch):
    """Return a function that keeps a set in a data folder of its own and returns its experiment."""
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path))

    def keep(source: NamedSet) -> experiments.Experiment:
        source.save(tmp_path / "imported" / source.name)
        return experiments.get(source.name)

    return keep


def make(entry: experiments.Experiment, method: str, root: Path, **given):
    return entry.make(entry.configure(method, **{**SMALL, **given}), root, torch.device("cpu"))


@pytest.mark.parametrize(("task", "method"), [
    ("forecast", "ace"), ("fill", "ace"), ("classify", "ace"), ("fill", "no-attention"), ("classify", "mixed")])
def test_an_imported_set_trains_and_reports(task, method, imported, tmp_path):
    made = make(imported(small_set(task)), method, tmp_path)
    trainer = Trainer(made, made.recipe(), SilentListener())
    assert trainer.run()
    found = made.report()
    metrics = made.evaluate("test")
    assert made.metric.name in metrics
    assert np.isfinite(list(metrics.values())).all()
    assert ("attention" in found) == (method != "no-attention")
    assert np.array(found["influence"]["mean"]).shape == (3, 3)
    if task == "classify":
        assert found["references"]["logistic regression"]["auc"] > 0.9
        assert len(found["roc"]["fpr"]) > 2
    else:
        assert found["records"][0]["variables"][0]["unit"] == "m"
        assert 7 < found["records"][0]["variables"][0]["mean"][0] < 13  # in own units
        assert set(found["own_units"]["rmse"]) == {"model", MEAN, LAST, RIDGE, RIDGE_OWN}
    shot = made.snapshot()
    assert shot["h"].shape == (41, 8, 3)
    assert shot["influence"].shape == (41, 8, 3, 3)
    assert ("a" in shot) == (method != "no-attention")
    assert shot["coordinate"].tolist() == ["a", "b", "c"]


def test_references_are_what_they_say():
    found = value_references(ScaledSet.of(small_set()), {})
    assert found[MEAN].mse == pytest.approx(1.0, abs=0.35)
    assert found[LAST].mse > found[MEAN].mse  # noise: the last value says nothing
    assert found[RIDGE].by_variable()[1] < 0.3  # b is a's past
    assert found[RIDGE_OWN].by_variable()[1] > 0.6
    filled = value_references(ScaledSet.of(small_set("fill")), {})
    assert filled[RIDGE].mse < 1.3
    labels = label_references(ScaledSet.of(small_set("classify")), {})
    assert labels["majority class"]["auc"] == 0.5


@pytest.mark.parametrize("task", ["forecast", "fill", "classify"])
@pytest.mark.parametrize("sparse", ["train", "validation", "test"])
def test_references_of_parts_with_different_numbers_of_rows(task, sparse):
    """Rows are missing in one part only: its longest series has fewer times than those of the other parts."""
    source = small_set(task)
    kept = np.array([True, True, False, True, True, False, True, True])
    series = [Record(r.t[kept], r.x[kept], r.m[kept]) if i in source.parts[sparse] else r
              for i, r in enumerate(source.series)]
    data = ScaledSet.of(replace(source, series=tuple(series)))
    if task == "classify":
        assert label_references(data, {})["logistic regression"]["auc"] > 0.9
    else:
        found = value_references(data, failed := {})
        assert not failed
        assert np.isfinite([errors.mse for errors in found.values()]).all()
        assert task == "fill" or found[RIDGE].by_variable()[1] < 0.5  # b is a's past


@pytest.mark.parametrize(("task", "name"), [("forecast", RIDGE), ("classify", "logistic regression")])
def test_a_reference_that_fails_costs_a_run_nothing_else(task, name, imported, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise ValueError("the regression has no solution")

    monkeypatch.setattr(named_references, "_ridge" if task == "forecast" else "_logistic", fail)
    found = make(imported(small_set(task)), "ace", tmp_path).report()
    assert found["references"][name] == {"failure": "the regression has no solution"}
    assert len(found["references"]) == (4 if task == "forecast" else 2)
    assert "influence" in found


def test_equal_aucs_are_decided_by_the_cross_entropy(imported, tmp_path):
    """On a few validation series the AUC is soon 1, long before the probabilities are right."""
    for made in (make(entry, "ace", tmp_path) for entry in (imported(small_set("classify")), experiments.get("liver"))):
        assert made.metric.tie_breaker == "cross_entropy"
        assert "cross_entropy" in made.evaluate("validation")


def test_algorithm_1_trains_g_apart(imported, tmp_path):
    made = make(imported(small_set()), "ace", tmp_path)
    groups = made.groups(detach_attention=False)
    assert {id(p) for p in groups.penalised} == {id(p) for p in made.model.ode.g.parameters()}
    before = [p.clone() for p in groups.attention], [p.clone() for p in groups.main]
    Trainer(made, made.recipe(), SilentListener()).train_batch()
    assert all((a != b).any() for a, b in zip(before[0], groups.attention, strict=True))
    assert any((a != b).any() for a, b in zip(before[1], groups.main, strict=True))


def test_ablations_are_settings(imported, tmp_path):
    entry = imported(small_set())
    fixed = make(entry, "ace", tmp_path, attention="fixed").model.ode
    assert fixed.g is None
    assert fixed.q is not None
    assert make(entry, "ace", tmp_path, attention="none").model.ode.q is None
    assert entry.configure("ace", attention="fixed").get("pull") is None
    assert entry.configure("no-attention").get("attention") is None
    same = entry.count(entry.configure("ace", attention="none")), entry.count(entry.configure("no-attention"))
    assert same[0] == same[1]
    with pytest.raises(experiments.base.UserError, match="does not apply"):
        entry.configure("ace", initial="conv")
    with pytest.raises(experiments.base.UserError, match="leave --data out"):
        entry.configure("ace", "full")


def test_a_name_that_is_no_set_is_no_experiment(imported):
    imported(small_set())
    assert experiments.imported_names() == ["delayed"]
    for name in ("none", "../delayed", "Delayed", ""):
        assert experiments.find(name) is None


def test_attention_starts_from_the_correlation(imported, tmp_path):
    x = np.random.default_rng(0).normal(size=(120, 8, 3))
    x[..., 1] = x[..., 0] + 0.1 * x[..., 1]
    source = small_set(series=tuple(Record.from_gaps(np.arange(8.0), own) for own in x))
    a0 = make(imported(source), "ace", tmp_path).model.ode.q()
    assert a0[0, 1] > 2.5
    assert a0[0, 2].abs() < 0.5
    assert a0.diagonal().abs().max() == 0


def test_links_are_scored_off_the_diagonal():
    links = np.array([[0, 1, 0], [0, 0, 2], [0, 0, 0.0]])
    assert link_auroc(links + 9 * np.eye(3), links) == 1.0
    assert link_auroc(-links, links) == 0.0
    assert link_auroc(np.ones((3, 3)), links) == 0.5
