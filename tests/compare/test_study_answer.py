"""The answer of a study against closed forms, trivial references, and what the runs of an imported set have found."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from study_entries import attention_study, finished, one
from trained_sets import import_set, tiny, trained

from acenode import experiments
from acenode.compare.influence import coupling_text, found_coupling
from acenode.compare.study_answer import (
    StudyAnswer,
    TrivialReference,
    _all_references,
    answer,
    caption,
    coupling_caution,
    own_unit_errors,
    references,
    report,
    ridge_words,
    study_references,
    study_table,
)
from acenode.compare.study_grid import make_grid, preset, reserved_names
from acenode.data.images import digits
from acenode.data.points import Points
from acenode.experiments.named_references import last_before
from acenode.files import write_json
from acenode.runs.catalogue import Catalogue
from acenode.runs.questions import Study, StudyGroup
from acenode.runs.store import RunStore

T2 = 4.302652729911275  # 97.5% quantile of Student's t with two degrees of freedom
NOWHERE = Path("/nonexistent")
CLEAR: dict[int, list[float | None]] = {0: [0.91, 0.92, 0.93], 1: [0.85, 0.86, 0.88], 2: [0.90, 0.90, 0.91]}
FOLDS = Study("host", "ushcn", (StudyGroup("ace"), StudyGroup("gru-ode-bayes")), seeds=(), folds=(0, 1, 2),
              data="full", baseline=1)
OWN = Study("own", "predator-prey", (StudyGroup("ace"), StudyGroup("no-attention")), seeds=(0,))


def answered(values: dict[int, list[float | None]], *trivial: TrivialReference, study: Study | None = None,
             **given: object) -> StudyAnswer:
    study = study or attention_study(**given)
    return answer(make_grid(study, finished(study, values)), trivial)


def test_a_difference_that_is_clear_helps_or_hurts() -> None:
    found = answered(CLEAR)
    evolving, fixed = found.comparisons
    half = 100 * T2 * math.sqrt(1 / 3) * 0.01 / math.sqrt(3)  # differences 0.01, 0.02, 0.02: s = 0.01/√3
    assert evolving.difference == pytest.approx(0.05 / 3)
    assert 100 * evolving.interval[0] == pytest.approx(5 / 3 - half)
    assert (evolving.effect, fixed.effect, found.best) == ("helps", "hurts", "evolving attention")
    assert found.text.startswith("Evolving attention helps: accuracy +1.67 points against no attention, 95% interval "
                                 "+0.23 to +3.10, 3 seeds.")
    assert found.between is not None  # the two others of three groups
    assert found.between.difference == pytest.approx((0.06 + 0.06 + 0.05) / 3)
    assert answered({0: [0.91], 2: [0.90]}).between is None  # fixed attention is not measured


def test_lower_values_help_where_lower_is_better_and_folds_are_few() -> None:
    found = answered({0: [0.30, 0.31, 0.32], 1: [0.40, 0.42, 0.42]}, study=FOLDS)
    assert (found.comparisons[0].effect, found.best) == ("helps", "ACE-GRU-ODE-Bayes")
    assert "MSE −0.103 against GRU-ODE-Bayes" in found.text
    assert "3 folds" in found.text
    # differences 0.01, 0, 0.02: mean and deviation are equal, which takes seven pairs
    text = answered({0: [0.41, 0.42, 0.44], 1: [0.40, 0.42, 0.42]}, study=FOLDS).text
    assert "with 3 folds: about 4 more runs of each would be needed, with other seeds on the 5 folds (MSE" in text


@pytest.mark.parametrize(("values", "more", "words"), [
    ({0: [0.90, 0.90], 2: [0.10, 0.11]}, 1,
     "cannot be told with 2 seeds: at least 3 are required, whatever the interval (accuracy"),
    # differences 0.02 and 0.00: mean 0.01, deviation 0.01·√2; |d| > t(n−1)·√2·|d|/√n first at n = 11
    ({0: [0.92, 0.90], 2: [0.90, 0.90]}, 9, "evolving against no attention: cannot be told with 2 seeds: about 9 more "
     "would be needed (accuracy +1.00 point, 95% interval −11.71 to +13.71)"),
    ({0: [0.9, 0.8, 0.85], 2: [0.8, 0.9, 0.85]}, None,
     "cannot be told with 3 seeds: more than 50 more seeds would be needed"),
    ({0: [0.9, None, 0.8], 2: [None, 0.5, 0.7]}, 2, "with 1 seed: at least 2 more are needed (accuracy +10.00 points"),
    ({0: [0.92], 2: [0.90]}, 2, "cannot be told with 1 seed: at least 2 more are needed"),
    ({0: [0.92]}, None, "evolving attention: no run of no attention has finished yet"),
    ({2: [0.92]}, None, "evolving attention: not measured yet"),
    ({0: [0.92], 2: [None, 0.90]}, None,
     "evolving attention: no run of no attention with the same seed has finished yet"),
    ({0: [0.1 + 0.2, 0.5, 0.6], 2: [0.3, 0.5, 0.6]}, None,
     "evolving attention makes no difference: equal to no attention in 3 seeds")])
def test_what_cannot_be_told_says_what_would_be_needed(
        values: dict[int, list[float | None]], more: int | None, words: str) -> None:
    found = answered(values)
    assert (found.comparisons[0].effect, found.comparisons[0].more, found.best) == ("unknown", more, None)
    assert words in found.comparisons[0].text


def test_groups_that_do_not_beat_a_trivial_reference_are_named() -> None:
    majority = TrivialReference("majority class", 0.1003)
    found = answered({0: [0.9] * 3, 2: [0.1] * 3}, majority)
    assert found.notes == ("No attention is not better than the majority class (10.03%).", "6 of 9 runs are finished.")
    found = answered({0: [0.10] * 3, 1: [0.09] * 3, 2: [0.08] * 3}, majority)
    assert found.text.startswith("No group beats always answering the most frequent class (10.03%): the runs learned "
                                 "nothing yet, train longer. Evolving attention helps")
    assert (found.sentences[0], found.notes) == (found.warning, ())  # the warning says it already
    assert answered({0: [0.10], 1: [0.5], 2: [0.08]}, majority).warning == answered({}, majority).warning == ""
    # 10.87 ± 1.21 %: untrained networks differ by as much
    lucky = answered({0: [0.1003, 0.1226, 0.1031], 2: [0.0975, 0.1003, 0.0975]}, majority)
    assert lucky.warning.startswith("No group clearly beats always answering the most frequent class (10.03%)")
    regression = TrivialReference("ridge", 0.2)
    assert answered({0: [0.3] * 3, 1: [0.3] * 3}, regression, study=FOLDS).notes == (
        "No group is better than the ridge (0.200).",)


@pytest.mark.parametrize(("ace", "learned"), [
    (1.0, "nothing yet, train longer."), (0.4, ""),
    (0.7, "too little to compare them, train longer if validation still improves.")])
def test_runs_between_two_trivial_references_learned_too_little(ace: float, learned: str) -> None:
    trivial = [TrivialReference("mean", 1.0), TrivialReference("last value", 0.5), TrivialReference("ridge", 0.3)]
    found = answered({0: [ace, ace], 1: [1.1, 1.2]}, *trivial, study=FOLDS)
    assert found.warning == ("No group beats repeating the last value (0.500): the runs learned " * bool(learned)
                             + learned)


def test_an_answer_of_short_runs_says_so_first() -> None:
    found = answered(CLEAR, held={"epochs": 1})
    assert found.sentences[0] == "Trained for 1 epoch, where the default is 12: longer training may change the answer."
    assert found.comparisons[0].effect == "helps"
    assert answered(CLEAR, held={"epochs": 6}).warning == answered({}, held={"epochs": 1}).warning == ""


def test_the_last_value_is_the_latest_observation_before_a_target() -> None:
    seen = Points(torch.tensor([[0.0, 1.0, 2.0, 2.0]]),
                  torch.tensor([[[5.0, 0.0], [6.0, 7.0], [0.0, 8.0], [0.0, 0.0]]]),
                  torch.tensor([[[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]]),
                  torch.tensor([[True, True, True, False]]))
    target = Points(torch.tensor([[0.0, 1.0, 1.5, 9.0]]), torch.zeros(1, 4, 2), torch.ones(1, 4, 2),
                    torch.ones(1, 4, dtype=torch.bool))
    found = last_before(seen, target, np.array([-1.0, -2.0]))
    assert found.tolist() == [[[-1.0, -2.0], [5.0, -2.0], [6.0, 7.0], [6.0, 8.0]]]


@pytest.mark.parametrize(("experiment", "metric", "names"), [
    ("mnist", "accuracy", ["majority class"]), ("physionet", "auc", ["majority class"]),
    ("activity", "accuracy", ["majority class"]), ("physionet-vitals", "mse", ["mean", "last value"]),
    ("ushcn", "mse", ["mean", "last value"]), ("ushcn", "negll", ["mean", "last value"])])
def test_every_kind_of_experiment_has_references_on_its_sample(experiment: str, metric: str, names: list[str]) -> None:
    found = references(experiments.get(experiment).configure("ace"), NOWHERE, metric)
    assert [reference.name for reference in found] == names
    if experiment == "mnist":
        assert found[0].value in [pytest.approx(float((digits().y_test == c).mean())) for c in range(10)]
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
    def found(*folds: int) -> float:
        study = replace(preset("ushcn", "host"), folds=folds, seeds=(0,))
        return study_references(make_grid(study, []), NOWHERE)[0].value

    assert found(0) != found(1)
    assert found(0, 1) == pytest.approx((found(0) + found(1)) / 2)
    assert study_references(make_grid(preset("ushcn", "host", "full"), []), NOWHERE) == ()
    config = experiments.get("physionet").configure("ace", "full")
    assert references(config, NOWHERE, "auc") == (TrivialReference("majority class", 0.5),)  # of a constant score


def test_references_that_a_run_reports_are_not_computed_again(tmp_path: Path) -> None:
    grid = make_grid(OWN, [replace(one(OWN, 0, 0, 0.3), path=tmp_path)])
    reported = {"ridge": {"mse": 0.02}, "mean": {"mse": 0.5}, "broken": 3, "own": {"failure": "no solution"}}
    write_json(tmp_path / "result.json", {"test": {"mse": 0.3}, "references": reported})
    ridge, mean, own = study_references(grid, tmp_path / "no data")
    assert (ridge, mean) == (TrivialReference("ridge", 0.02), TrivialReference("mean", 0.5))
    assert (own.name, own.failure) == ("own", "no solution")


@pytest.mark.parametrize(("study", "broken", "error", "note", "left"), [
    (OWN, "acenode.experiments.named_references._ridge", ValueError("X has 36 features\nmore"),
     "The references “ridge” and “ridge, own past” could not be computed: X has 36 features.", ["mean", "last value"]),
    (attention_study(), "acenode.compare.study_answer.image_references", RuntimeError(),
     "The reference “prediction without a model” could not be computed: RuntimeError.", [])])
def test_references_that_cannot_be_computed_are_named_and_the_rest_is_shown(
        study: Study, broken: str, error: Exception, note: str, left: list[str],
        monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(broken, fail)
    _all_references.cache_clear()
    grid = make_grid(study, [one(study, 0, 0, 0.3), one(study, 1, 0, 0.4)])
    found = report(grid, study_references(grid, NOWHERE))
    _all_references.cache_clear()
    assert [reference.name for reference in found.references] == left
    assert found.answer.notes[-1] == note
    assert [row[0] for row in study_table(found).rows] == [*(row.name for row in grid.rows), *left]


def test_the_runs_of_an_imported_set_answer_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, runs = tmp_path / "data", tmp_path / "runs"
    monkeypatch.setenv("ACENODE_DATA", str(root))
    import_set(root, "clinic")
    for method in ("ace", "no-attention"):
        trained(root, runs, "clinic", method)
    held = {k: v for k, v in tiny("clinic").settings.items() if k in tiny("clinic", "no-attention").settings}
    study = Study("tiny", "clinic", (StudyGroup("ace"), StudyGroup("no-attention")), held=held, seeds=(0,), baseline=1)
    catalogue = Catalogue(RunStore(runs))
    grid = make_grid(study, catalogue.entries())
    assert grid.finished == 2
    found = report(grid, study_references(grid, root))
    assert {"mean", "last value", "ridge"} <= {reference.name for reference in found.references}
    assert found.answer.text.startswith("No group beats repeating the last value (")  # one epoch
    assert "your data (Imported from mine.csv" in caption(grid)
    caution = coupling_caution(grid.rows[0], found.references, grid.measure, "forecast")
    assert caution.startswith("The model forecasts worse than ridge regression here (0.")
    assert caution.endswith("), so read its coupling with care.")
    assert coupling_caution(grid.rows[0], [TrivialReference("ridge", 1e9)], grid.measure, "forecast") == ""
    assert ridge_words(found.references, "forecast").startswith("ridge: linear regression on the recent values of all")
    assert ridge_words([TrivialReference("last value", 1.0)], "forecast") == ""
    coupling, without = found_coupling(grid.rows[0]), found_coupling(grid.rows[1])
    assert (coupling.names, without.attention) == (("pulse", "pressure"), None)
    assert coupling.influence.sum(1) == pytest.approx([1, 1])
    assert coupling.attention.sum(1) == pytest.approx([1, 1], abs=1e-3)
    assert coupling_text(without) == ""  # without attention nothing is exchanged
    errors = own_unit_errors(grid.rows)
    assert [row["Variable"] for row in errors] == ["pulse", "pressure"]
    assert list(errors[0])[1:3] == [row.name for row in grid.rows]
    assert "last value" in errors[0]
    assert "clinic" in reserved_names(catalogue)
