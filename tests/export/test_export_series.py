"""Time series in a report: valid data is drawn, malformed data is left out, nothing raises."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import synthetic_results as synthetic
from export_runs import metrics, result
from page_reader import read

from acenode.export import export
from acenode.results import checked_values, series_charts, series_records
from acenode.runs.store import Run

WHOLE = synthetic.mortality() | synthetic.vitals(records=1) | synthetic.activities() | synthetic.coupling()
STATION: dict[str, Any] = {
    "cut": 3.0,
    "over_time": {"t": [4.0, 3.5], "mse": [0.5, None], "negll": [1.0, 2.0], "count": [3, 4], "unit": ""},
    "records": [{"id": "USC1", "unit": "", "unit_note": "one unit is 7.45 days", "value_unit": "in standard deviations",
                 "band": "two standard deviations", "jumps": [2.0, 1.0], "variables": [
                     {"name": "TMAX", "t": [1.0], "x": [0.5], "target_t": [4.0], "target_x": [0.7],
                      "grid": [0.0, 1.0, 1.0, 4.0], "mean": [0.0, 0.2, 0.4, 0.6], "low": [-1.0, -0.8, 0.2, -1.0],
                      "high": [1.0, 1.2, 0.6, 2.0]}]}]}
KEYS = ("roc", "calibration", "over_time", "records", "bands", "coupling")
WRONG: list[Any] = [None, 7, "text", True, [], {}, [1, 2], {"a": 1}, [[[]]], [None], float("nan"), [{}], {"t": "x"}]


def report(run: Run) -> Any:
    return read(export(run, "html").read_text(encoding="utf-8"))


def test_all_charts_are_read() -> None:
    found = series_charts.read(WHOLE)
    assert all(getattr(found, key) for key in KEYS)
    assert found
    assert found.roc
    assert found.roc.auc == pytest.approx(WHOLE["roc"]["auc"])
    assert found.over_time
    assert found.over_time.mse[3] is None  # a gap stays a gap
    assert found.records[0].cut == 24.0
    assert not series_charts.read(None)
    assert not series_charts.read(result())


def test_points_of_a_class_are_joined_to_intervals() -> None:
    band = {"id": "a", "unit": "s", "t": [0, 1, 2, 3], "true": [0, 0, None, 1], "predicted": [0, 1, 1, 1]}
    (found,) = series_charts.read({"bands": [band]}).bands
    assert found.predicted == [(-0.5, 0.5, 0), (0.5, 3.5, 1)]
    assert found.true == [(-0.5, 1.5, 0), (2.5, 3.5, 1)]
    assert found.accuracy == pytest.approx(2 / 3)  # of those that are labelled


def test_the_number_of_records_is_limited() -> None:
    many = {"records": synthetic.vitals(records=2)["records"] * 9, "bands": synthetic.activities()["bands"] * 9}
    found = series_charts.read(many)
    assert len(found.records) == len(found.bands) == series_charts.RECORDS


def places(value: Any, path: tuple = ()) -> list[tuple]:
    """Return the paths of all values in a result, with the first item of each list."""
    inner = value.items() if isinstance(value, dict) else list(enumerate(value))[:1] if isinstance(value, list) else ()
    return [path, *(p for key, one in inner for p in places(one, (*path, key)))]


@pytest.mark.parametrize(("whole", "key"), [*((WHOLE, key) for key in KEYS), *((STATION, key) for key in STATION)])
def test_malformed_parts_never_raise(whole: dict[str, Any], key: str) -> None:
    for path in places(whole[key]):
        for wrong in WRONG:
            spoiled = copy.deepcopy({key: whole[key]})
            at: Any = spoiled
            for step in (key, *path)[:-1]:
                at = at[step]
            at[(key, *path)[-1]] = wrong
            found = series_charts.read(spoiled)
            found.to_dict()
            series_records.caption(found.records)


@pytest.mark.parametrize("key", KEYS)
def test_lists_of_unequal_length_are_left_out(key: str) -> None:
    def shorter(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: v[:-1] if k in ("tpr", "mse", "x", "target_x", "mean", "predicted", "names") and
                    isinstance(v, list) else shorter(v) for k, v in value.items()}
        return [shorter(v) for v in value] if isinstance(value, list) else value

    assert not getattr(series_charts.read(shorter({key: WHOLE[key]})), key)


def test_values_that_are_not_finite_are_left_out() -> None:
    found = series_charts.read({"roc": {"fpr": [0, math.nan, 1], "tpr": [0, 0.5, 1], "auc": math.inf},
                           "calibration": {"predicted": [0.1, 10**400], "observed": [0.2, 0.3], "count": [3, 4]}})
    assert found.roc
    assert (found.roc.fpr, found.roc.auc) == ([0, 1], None)
    assert found.calibration
    assert found.calibration.count == [3]


def test_a_report_has_the_figures_of_its_data_only(make: Any) -> None:
    plain = {"test": {"auc": 0.853, "loss": 0.3}, "metric": "auc", "best_epoch": 1}
    found = report(make(config={"experiment": "physionet"}, records=metrics(), outcome=plain | synthetic.mortality()))
    assert list(found.figures())[-2:] == ["roc", "calibration"]
    assert not {"confusion", "tsne"} & set(found.figures())
    assert "0.853" in found.text
    assert "Test AUC" in found.text
    assert found.data["series"]["roc"]["auc"] > 0.5


def test_a_report_of_all_panels(make: Any) -> None:
    plain = {"test": {"mse": 0.0020251}, "metric": "mse", "best_epoch": 1}
    found = report(make(config={"experiment": "physionet-vitals", "data": "full"}, records=metrics(),
                        outcome=plain | WHOLE, partial=True))
    assert {"over_time", "records", "bands", "coupling-known", "coupling-learned", "confusion"} <= set(found.figures())
    assert "2.025 ×10⁻³" in found.text
    assert "a part of the full" in found.text
    assert found.data["scale"] == 1000


def test_names_are_not_markup(make: Any) -> None:
    hostile = "</script><img src=x onerror=alert(1)>"
    spoiled = copy.deepcopy(WHOLE)
    spoiled["records"][0]["id"] = spoiled["records"][0]["variables"][0]["name"] = hostile
    spoiled["bands"][0]["id"] = spoiled["coupling"]["how"] = hostile
    found = report(make(records=metrics(), outcome=result() | spoiled))
    assert not found.all("img")
    assert len(found.all("script")) == 3


# A state that jumps -------------------------------------------------------------------------------------------------


def test_both_sides_of_a_jump_are_kept() -> None:
    found = series_charts.read(STATION)
    (record,) = found.records
    (variable,) = record.variables
    assert variable.grid == [0.0, 1.0, 1.0, 4.0]
    assert variable.mean[1:3] == [0.2, 0.4]
    assert (variable.low[1:3], variable.high[1:3]) == ([-0.8, 0.2], [1.2, 0.6])
    assert record.jumps == [1.0, 2.0]
    assert record.cut == 3.0  # of the whole result
    assert variable.title == "TMAX · highest temperature"
    assert record.value_unit == "standard deviations"
    assert found.over_time
    assert (found.over_time.t, found.over_time.negll, found.over_time.cut) == ([3.5, 4.0], [2.0, 1.0], 3.0)


def test_a_long_line_keeps_whole_jumps() -> None:
    times = [float(n // 2) for n in range(3 * checked_values.POINTS)]
    values = [float(n) for n in range(len(times))]
    (record,) = series_charts.read({"records": [{"id": "a", "variables": [
        {"name": "x1", "grid": times, "mean": values, "low": values, "high": values}]}]}).records
    (v,) = record.variables
    assert len(v.grid) <= 2 * checked_values.POINTS + 2
    assert all(v.grid.count(t) == 2 for t in v.grid[::500])
    assert v.mean == v.low == v.high
    assert v.grid[-1] == times[-1]


@pytest.mark.parametrize("wrong", WRONG)
def test_malformed_jumps_are_none(wrong: Any) -> None:
    spoiled = copy.deepcopy(STATION)
    spoiled["records"][0]["jumps"] = wrong
    (record,) = series_charts.read(spoiled).records
    assert record.jumps == ([1.0, 2.0] if wrong == [1, 2] else [])


def test_the_caption_explains_what_is_drawn() -> None:
    said = series_records.caption(series_charts.read(STATION).records)
    for words in ("two standard deviations", "state jumped", "Values are in standard deviations.",
                  "Time: one unit is 7.45 days.", "dotted line"):
        assert words in said
    said = series_records.caption(series_charts.read(synthetic.vitals(cut=None)).records)
    assert "latent samples" in said
    assert not any(words in said for words in ("jumped", "Values", "Time", "dotted"))


def test_a_report_of_stations(make: Any) -> None:
    found = report(make(config={"experiment": "ushcn"}, records=metrics(),
                        outcome={"test": {"mse": 0.4}, "metric": "mse"} | STATION
                        | synthetic.coupling(side=5, names=synthetic.STATION)))
    assert {"over_time", "records", "coupling-learned"} <= set(found.figures())
    assert "Time: one unit is 7.45 days." in found.text
    assert found.data["series"]["records"][0]["jumps"] == [1.0, 2.0]
    assert found.data["series"]["coupling"]["titles"][0] == "PRCP · rain"
