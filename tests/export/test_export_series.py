"""Time series in a report: what there is is drawn, what is malformed is left out, nothing raises."""

from __future__ import annotations

import copy
import math
from typing import Any

import made_up
import pytest
from export_runs import metrics, result
from page_reader import read

from acenode.export import export, series
from acenode.runs import Run

WHOLE = made_up.mortality() | made_up.vitals() | made_up.activities() | made_up.coupling()
KEYS = ("roc", "calibration", "over_time", "records", "bands", "coupling")
WRONG: list[Any] = [None, 7, "text", True, [], {}, [1, 2], {"a": 1}, [[[]]], [None], float("nan"), [{}], {"t": "x"}]


def report(run: Run) -> Any:
    return read(export(run, "html").read_text(encoding="utf-8"))


def test_all_of_it_is_read() -> None:
    found = series.gather(WHOLE)
    assert all(getattr(found, key) for key in KEYS)
    assert found
    assert found.roc
    assert found.roc.auc == pytest.approx(WHOLE["roc"]["auc"])
    assert found.over_time
    assert found.over_time.mse[3] is None  # a gap stays a gap
    assert found.records[0].cut == 24.0
    assert not series.gather(None)
    assert not series.gather(result())


def test_stretches_of_a_class_are_joined() -> None:
    band = {"id": "a", "unit": "s", "t": [0, 1, 2, 3], "true": [0, 0, None, 1], "predicted": [0, 1, 1, 1]}
    (found,) = series.gather({"bands": [band]}).bands
    assert found.predicted == [(-0.5, 0.5, 0), (0.5, 3.5, 1)]
    assert found.true == [(-0.5, 1.5, 0), (2.5, 3.5, 1)]
    assert found.right == pytest.approx(2 / 3)  # of those that are labelled


def test_few_enough_are_kept() -> None:
    many = {"records": made_up.vitals(records=2)["records"] * 9, "bands": made_up.activities()["bands"] * 9}
    found = series.gather(many)
    assert len(found.records) == len(found.bands) == series.RECORDS


def places(value: Any, path: tuple = ()) -> list[tuple]:
    """Where something stands in a result: of lists the first item is enough."""
    inner = value.items() if isinstance(value, dict) else list(enumerate(value))[:1] if isinstance(value, list) else ()
    return [path, *(p for key, one in inner for p in places(one, (*path, key)))]


@pytest.mark.parametrize("key", KEYS)
def test_malformed_parts_never_raise(key: str) -> None:
    for path in places(WHOLE[key]):
        for wrong in WRONG:
            spoiled = copy.deepcopy({key: WHOLE[key]})
            at: Any = spoiled
            for step in (key, *path)[:-1]:
                at = at[step]
            at[(key, *path)[-1]] = wrong
            series.gather(spoiled).to_dict()


@pytest.mark.parametrize("key", KEYS)
def test_ragged_lists_are_no_data(key: str) -> None:
    def shorter(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: v[:-1] if k in ("tpr", "mse", "x", "target_x", "mean", "predicted", "names") and
                    isinstance(v, list) else shorter(v) for k, v in value.items()}
        return [shorter(v) for v in value] if isinstance(value, list) else value

    assert not getattr(series.gather(shorter({key: WHOLE[key]})), key)


def test_what_is_not_finite_is_left_out() -> None:
    found = series.gather({"roc": {"fpr": [0, math.nan, 1], "tpr": [0, 0.5, 1], "auc": math.inf},
                           "calibration": {"predicted": [0.1, 10**400], "observed": [0.2, 0.3], "count": [3, 4]}})
    assert found.roc
    assert (found.roc.fpr, found.roc.auc) == ([0, 1], None)
    assert found.calibration
    assert found.calibration.count == [3]


def test_a_report_has_their_figures_and_no_others(make: Any) -> None:
    plain = {"test": {"auc": 0.853, "loss": 0.3}, "metric": "auc", "best_epoch": 1}
    found = report(make(config={"experiment": "physionet"}, records=metrics(), outcome=plain | made_up.mortality()))
    assert list(found.figures())[-2:] == ["roc", "calibration"]
    assert not {"confusion", "tsne"} & set(found.figures())
    assert "0.853" in found.text
    assert "test AUC" in found.text
    assert found.data["series"]["roc"]["auc"] > 0.5


def test_a_report_of_all_panels(make: Any) -> None:
    plain = {"test": {"mse": 0.0020251}, "metric": "mse", "best_epoch": 1}
    found = report(make(config={"experiment": "physionet-vitals", "data": "full"}, records=metrics(),
                        outcome=plain | WHOLE, partial=True))
    assert {"over_time", "records", "bands", "coupling-known", "coupling-learned", "confusion"} <= set(found.figures())
    assert "2.025 ×10⁻³" in found.text
    assert "a part of the full" in found.text
    assert found.data["scale"] == 1000


def test_names_in_them_are_no_markup(make: Any) -> None:
    hostile = "</script><img src=x onerror=alert(1)>"
    spoiled = copy.deepcopy(WHOLE)
    spoiled["records"][0]["id"] = spoiled["records"][0]["variables"][0]["name"] = hostile
    spoiled["bands"][0]["id"] = spoiled["coupling"]["how"] = hostile
    found = report(make(records=metrics(), outcome=result() | spoiled))
    assert not found.all("img")
    assert len(found.all("script")) == 3
