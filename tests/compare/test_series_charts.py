"""Charts of time series: valid data is read, malformed data is left out, nothing raises."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import synthetic_results as synthetic
from export_runs import result
from synthetic_results import ALL_CHARTS, STATION_RESULT

from acenode.compare import result_charts

KEYS = ("roc", "calibration", "over_time", "records", "bands", "coupling")
WRONG: list[Any] = [None, 7, "text", True, [], {}, [1, 2], {"a": 1}, [[[]]], [None], float("nan"), [{}], {"t": "x"}]


def test_all_charts_are_read() -> None:
    found = result_charts.read(ALL_CHARTS)
    assert all(getattr(found, key) for key in KEYS)
    assert found.roc.auc == pytest.approx(ALL_CHARTS["roc"]["auc"])
    assert found.over_time.mse[3] is None  # missing values stay missing
    assert not any(getattr(result_charts.read(one), key) for one in (None, result()) for key in KEYS)


def test_points_of_a_class_are_joined_to_intervals() -> None:
    band = {"id": "a", "unit": "s", "t": [0, 1, 2, 3], "true": [0, 0, None, 1], "predicted": [0, 1, 1, 1]}
    (found,) = result_charts.read({"bands": [band]}).bands
    assert found.predicted == [(-0.5, 0.5, 0), (0.5, 3.5, 1)]
    assert found.true == [(-0.5, 1.5, 0), (2.5, 3.5, 1)]
    assert found.accuracy == pytest.approx(2 / 3)  # of the labelled points


def test_errors_by_variable_end_with_all_of_them() -> None:
    found = result_charts.read(STATION_RESULT).errors
    shown = found.table[["Targets", "MSE", "Share of error (%)"]].to_numpy().tolist()
    assert shown == [[3, 0.5, 10.7], [1, 12.5, 89.3], [4, 3.5, 100.0]]
    assert found.table["Variable"].iloc[-1] == "All"
    assert (found.low, found.high) == (0.5, 6.5)
    nothing = {"errors": {"mse": 1.0, "by_variable": [{"name": "TMAX", "mse": None}]}}
    assert result_charts.read(nothing).errors is None


def paths(value: Any, path: tuple = ()) -> list[tuple]:
    """Return the paths of all values in a result, with the first item of each list."""
    inner = value.items() if isinstance(value, dict) else list(enumerate(value))[:1] if isinstance(value, list) else ()
    return [path, *(p for key, one in inner for p in paths(one, (*path, key)))]


@pytest.mark.parametrize(("whole", "key"), [*((ALL_CHARTS, key) for key in KEYS),
                                            *((STATION_RESULT, key) for key in STATION_RESULT)])
def test_malformed_parts_never_raise(whole: dict[str, Any], key: str) -> None:
    for path in paths(whole[key]):
        for wrong in WRONG:
            malformed = copy.deepcopy({key: whole[key]})
            at: Any = malformed
            for step in (key, *path)[:-1]:
                at = at[step]
            at[(key, *path)[-1]] = wrong
            found = result_charts.read(malformed)
            result_charts.caption(found.records)


@pytest.mark.parametrize("key", KEYS)
def test_lists_of_unequal_length_are_left_out(key: str) -> None:
    def shorter(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: v[:-1] if k in ("tpr", "mse", "x", "target_x", "mean", "predicted", "names") and
                    isinstance(v, list) else shorter(v) for k, v in value.items()}
        return [shorter(v) for v in value] if isinstance(value, list) else value

    assert not getattr(result_charts.read(shorter({key: ALL_CHARTS[key]})), key)


def test_both_sides_of_a_jump_are_kept() -> None:
    found = result_charts.read(STATION_RESULT)
    (record,) = found.records
    (variable,) = record.variables
    assert variable.grid == [0.0, 7.45, 7.45, 29.8]  # days
    assert variable.mean[1:3] == [0.2, 0.4]
    assert (variable.low[1:3], variable.high[1:3]) == ([-0.8, 0.2], [1.2, 0.6])
    assert (record.jumps, record.cut, record.unit) == ([7.45, 14.9], 22.35, "d")  # the cut of the whole result
    assert (variable.title, variable.unit) == ("TMAX · highest temperature", "standard deviations")
    assert (found.over_time.t, found.over_time.negll, found.over_time.cut) == ([26.075, 29.8], [2.0, 1.0], 22.35)
    assert (found.over_time.unit, found.over_time.unit_note) == ("d", "")


def test_a_shortened_curve_keeps_both_sides_of_jumps() -> None:
    times = [float(n // 2) for n in range(3 * result_charts.POINTS)]
    values = [float(n) for n in range(len(times))]
    (record,) = result_charts.read({"records": [{"id": "a", "variables": [
        {"name": "x1", "grid": times, "mean": values, "low": values, "high": values}]}]}).records
    (v,) = record.variables
    assert len(v.grid) <= 2 * result_charts.POINTS + 2
    assert all(v.grid.count(t) == 2 for t in v.grid[::500])
    assert v.mean == v.low == v.high
    assert v.grid[-1] == times[-1]


def test_the_caption_explains_what_is_drawn() -> None:
    words = ("two standard deviations", "jumped", "Values are standardised", "dotted", "Time")
    stations, vitals = (result_charts.caption(result_charts.read(found).records) for found in (
        STATION_RESULT, synthetic.vitals(cut=None)))
    assert [w for w in words if w in stations] == list(words[:4])  # times are in days
    assert not any(w in vitals for w in words)
    assert "Values are scaled as for the model" in vitals


def test_values_are_in_the_unit_of_the_variable_if_the_result_says_how_they_were_normalised() -> None:
    one = {"name": "HR", "t": [1.0], "x": [0.5], "grid": [0.0, 2.0], "mean": [0.0, None], "low": [-1.0, 0.0],
           "high": [1.0, 2.0], "unit": "beats a minute", "shift": 86.0, "scale": 16.0}
    (variable,) = result_charts.read({"records": [{"id": "7", "variables": [one]}]}).records[0].variables
    assert (variable.title, variable.unit) == ("HR · heart rate", "beats a minute")
    assert (variable.x, variable.mean) == ([94.0], [86.0, None])
    assert (variable.low, variable.high) == ([70.0, 86.0], [102.0, 118.0])
    without = {k: v for k, v in one.items() if k not in ("unit", "shift", "scale")}
    (variable,) = result_charts.read({"records": [{"id": "7", "variables": [without]}]}).records[0].variables
    assert (variable.x, variable.unit) == ([0.5], "scaled values")


def test_coupling_has_a_score_and_comparable_shares() -> None:
    known = [[0.0, 0.4, 0.0], [0.0, 0.0, 0.3], [0.0, 0.0, 0.0]]
    result = {"coupling": {"names": ["a", "b", "c"], "known": known, "learned": [[0.0, 0.2, -0.2], [-0.1, 0.0, 0.1],
              [0.0, 0.0, 0.0]]}, "row_distance": {"value": 0.01}}
    found = result_charts.read(result).coupling
    assert (found.score.recovered, found.score.links, found.score.auroc) == (2, 2, 1.0)
    assert found.shares()["known"][0] == [None, 0.5, -0.5]
    assert found.shares()["known"][2] == [None, None, None]  # nothing flows into c
    assert "have become equal at the end of the series" in found.words()[1]
    named = result_charts.read({**result, "variables": ["a", "b", "c"]}).coupling
    assert "equal on average over time" in named.words()[1]
