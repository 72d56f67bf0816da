"""Trivial references against closed forms and against the bundled data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from study_entries import attention_study, one

from acenode import experiments
from acenode.compare.study_answer import (
    TrivialReference,
    _all_references,
    last_values,
    references,
    report,
    study_references,
    study_table,
)
from acenode.compare.study_grid import make_grid, preset
from acenode.data.images import digits
from acenode.data.points import Points
from acenode.files import write_json
from acenode.runs.questions import Study, StudyGroup

NOWHERE = Path("/nonexistent")


def test_the_last_value_is_the_latest_observation_before_a_target() -> None:
    seen = Points(torch.tensor([[0.0, 1.0, 2.0, 2.0]]),
                  torch.tensor([[[5.0, 0.0], [6.0, 7.0], [0.0, 8.0], [0.0, 0.0]]]),
                  torch.tensor([[[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]]),
                  torch.tensor([[True, True, True, False]]))
    target = Points(torch.tensor([[0.0, 1.0, 1.5, 9.0]]), torch.zeros(1, 4, 2), torch.ones(1, 4, 2),
                    torch.ones(1, 4, dtype=torch.bool))
    found = last_values(seen, target, np.array([-1.0, -2.0]))
    assert found.tolist() == [[[-1.0, -2.0], [5.0, -2.0], [6.0, 7.0], [6.0, 8.0]]]


def test_the_majority_class_of_the_digits() -> None:
    arrays = digits()
    shares = [(arrays.y_test == c).mean() for c in range(10)]
    found, = references(experiments.get("mnist").configure("odenet"), NOWHERE, "accuracy")
    assert found.name == "majority class"
    assert found.value in [pytest.approx(share) for share in shares]
    assert found.value < 0.12


@pytest.mark.parametrize(("experiment", "metric", "names"), [
    ("svhn", "accuracy", ["majority class"]), ("cifar10", "accuracy", ["majority class"]),
    ("physionet", "auc", ["majority class"]), ("activity", "accuracy", ["majority class"]),
    ("physionet-vitals", "mse", ["mean", "last value"]), ("ushcn", "mse", ["mean", "last value"]),
    ("ushcn", "negll", ["mean", "last value"]),
])
def test_every_experiment_has_references_on_its_sample(experiment: str, metric: str, names: list[str]) -> None:
    found = references(experiments.get(experiment).configure("ace"), NOWHERE, metric)
    assert [reference.name for reference in found] == names
    if metric == "auc":
        assert found[0].value == 0.5
    if metric == "mse":  # samples are standardised: the mean of all has an error near the variance, which is one
        assert found[0].value == pytest.approx(1.0, abs=0.3)


def test_the_last_value_is_a_good_guess_for_vital_signs_and_depends_on_the_task() -> None:
    vitals = experiments.get("physionet-vitals")
    near, far = (references(vitals.configure("ace", task=task), NOWHERE, "mse") for task in (
        "interpolation", "extrapolation"))
    assert near[1].value < far[1].value < far[0].value


def test_references_are_averaged_over_folds_and_left_out_without_data() -> None:
    study = preset("ushcn", "host")
    one, two, both = (study_references(make_grid(type(study)(**{
        **study.__dict__, "folds": folds, "seeds": (0,)}), []), NOWHERE) for folds in ((0,), (1,), (0, 1)))
    assert one[0].value != two[0].value
    assert both[0].value == pytest.approx((one[0].value + two[0].value) / 2)
    assert study_references(make_grid(preset("ushcn", "host", "full"), []), NOWHERE) == ()
    assert study_references(make_grid(attention_study(), []), NOWHERE)[0].name == "majority class"


def test_references_that_a_run_reports_are_not_computed_again(tmp_path: Path) -> None:
    study = Study("own", "predator-prey", (StudyGroup("ace"), StudyGroup("no-attention")), seeds=(0,))
    run = replace(one(study, 0, 0, 0.3), path=tmp_path)
    reported = {"ridge": {"mse": 0.02}, "mean": {"mse": 0.5}, "broken": 3}
    write_json(tmp_path / "result.json", {"test": {"mse": 0.3}, "references": reported})
    found = study_references(make_grid(study, [run]), tmp_path / "no data")
    assert found == (TrivialReference("ridge", 0.02), TrivialReference("mean", 0.5))
    write_json(tmp_path / "result.json", {"test": {"mse": 0.3}, "references": {"ridge": {"failure": "no solution"}}})
    (found,) = study_references(make_grid(study, [run]), tmp_path / "no data")
    assert (found.name, found.failure) == ("ridge", "no solution")


def test_the_auc_of_a_constant_score_needs_no_data() -> None:
    config = experiments.get("physionet").configure("ace", "full")
    assert references(config, NOWHERE, "auc") == (TrivialReference("majority class", 0.5),)
    assert references(experiments.get("mnist").configure("ace", "full"), NOWHERE, "accuracy") == ()


def test_a_regression_that_fails_is_named_and_the_rest_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, own: bool) -> None:
        raise ValueError("X has 36 features\nmore")

    monkeypatch.setattr("acenode.experiments.named_references._ridge", fail)
    _all_references.cache_clear()
    study = Study("own", "predator-prey", (StudyGroup("ace"), StudyGroup("no-attention")), seeds=(0,))
    grid = make_grid(study, [one(study, 0, 0, 0.3), one(study, 1, 0, 0.4)])
    found = report(grid, study_references(grid, NOWHERE))
    _all_references.cache_clear()
    assert [reference.name for reference in found.references] == ["mean", "last value"]
    assert found.answer.notes[-1] == ("The references “ridge” and “ridge, own past” could not be computed: "
                                      "X has 36 features.")
    assert found.answer.comparisons[0].difference == pytest.approx(0.1)
    assert [row[0] for row in study_table(found).rows] == [*(row.name for row in grid.rows), "mean", "last value"]


def test_a_study_is_answered_if_no_reference_can_be_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(task: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("acenode.compare.study_answer.image_references", fail)
    _all_references.cache_clear()
    study = attention_study()
    grid = make_grid(study, [one(study, group, 0, 0.9) for group in (0, 2)])
    found = report(grid, study_references(grid, NOWHERE))
    assert found.references == ()
    assert "The reference “prediction without a model” could not be computed: RuntimeError." in found.answer.text
    assert len(study_table(found).rows) == 3
