"""Training curves: the mean and spread of groups, which points are drawn, and what follows a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acenode.compare import training_curves
from acenode.compare.training_curves import Panel, RunCurves, Series, View, common_x, empty_reason, figure, panels
from acenode.runs.store import Run

LOSSES = training_curves.LOSS


def write(path: Path, *records: dict[str, Any]) -> RunCurves:
    """Return the curves of a run with these records."""
    path.mkdir(exist_ok=True)
    (path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    curves = RunCurves(Run(path))
    curves.refresh()
    return curves


def steps(values: dict[int, float | None], key: str = "L_h", **more: Any) -> list[dict[str, Any]]:
    return [{"kind": "step", "step": n, "epoch": 0, "seconds": 0.5, key: v, **more} for n, v in values.items()]


def group(tmp_path: Path, *runs: dict[int, float | None], log: bool = False) -> tuple[dict[str, Any], ...]:
    """Return the band and the line of the mean of these runs."""
    curves = [write(tmp_path / str(i), *steps(values)) for i, values in enumerate(runs)]
    traces = figure(LOSSES, [Series("group", "#000", curves)], View(log=log))[0]["data"]
    return tuple({**trace, "points": dict(zip(trace["x"], trace["y"], strict=True))} for trace in traces)


def test_the_mean_of_runs_interpolates_those_that_lack_a_step(tmp_path: Path) -> None:
    band, line = group(tmp_path, {0: 0, 2: 2, 4: 4, 6: 6}, {0: 10, 3: 13, 6: 16}, {0: 20, 6: 26})
    assert line["points"] == {0: 10, 2: 12, 3: 13, 4: 14, 6: 16}
    assert band["y"] == [0, 2, 3, 4, 6, 26, 24, 23, 22, 20]
    assert band["x"] == [0, 2, 3, 4, 6, 6, 4, 3, 2, 0]


def test_the_mean_of_runs_goes_on_with_those_that_last_longer(tmp_path: Path) -> None:
    band, line = group(tmp_path, {1: 1, 2: 1, 3: 1, 4: None}, {1: 3, 3: 3})
    assert (line["x"], line["y"]) == ([1, 2, 3, 4], [2, 2, 2, None])
    assert band["y"] == [1, 1, 1, 3, 3, 3]
    assert common_x([np.array([1.0, 2.0, 5.0]), np.array([1.0, 4.0, np.nan])]).tolist() == [1, 3, 6]


def test_a_band_stays_above_zero_on_a_logarithmic_axis(tmp_path: Path) -> None:
    band, _ = group(tmp_path, {0: 1}, {0: 1}, {0: 100}, log=True)
    assert min(band["y"]) == 1
    assert group(tmp_path, {0: 1}, {0: 1}, {0: 100})[0]["y"][0] < 0


def test_smoothing_is_corrected_for_its_start_and_skips_gaps(tmp_path: Path) -> None:
    curves = write(tmp_path / "run", *steps({0: 1.0, 1: None, 2: 4.0}))
    raw, smooth = figure(LOSSES, [Series("run", "#000", [curves])], View(smoothing=0.5))[0]["data"]
    assert (raw["y"], raw["opacity"]) == ([1, None, 4], 0.3)
    assert smooth["y"] == [1, None, 3]  # (0.5 · 1 + 1 · 4) / 1.5


def test_long_curves_keep_their_extremes_and_more_points_in_view(tmp_path: Path) -> None:
    curves = write(tmp_path / "run", *steps({n: (n * 7919 % 10007) / 1000 for n in range(10_000)}))
    one = [Series("run", "#000", [curves])]
    whole = figure(LOSSES, one)[0]["data"][0]
    assert len(whole["x"]) <= 1802
    assert (min(whole["y"]), max(whole["y"])) == (0, pytest.approx(10.006, abs=0.001))
    assert whole["x"][-1] == 9999
    near = figure(LOSSES, one, View(), (2000, 2500))[0]["data"][0]
    assert {*range(2000, 2501)} <= set(near["x"])
    assert len(near["x"]) < 1400


def test_the_axes_of_a_run(tmp_path: Path) -> None:
    epoch = {"kind": "epoch", "step": 4, "epoch": 1, "validation_accuracy": 0.5, "best": True}
    curves = write(tmp_path / "run", *steps(dict.fromkeys(range(4), 1.0)), epoch, *steps({4: 1.0}, epoch=1))
    for kind, xs in (("step", [0, 1, 2, 3, 4]), ("epoch", [0, 0.25, 0.5, 0.75, 1]), ("time", [0.5, 1, 1.5, 2, 2.5])):
        assert curves.x("steps", kind).tolist() == xs
    assert [curves.x("epochs", kind).tolist() for kind in training_curves.AXES] == [[4], [1], [2]]
    drawn, key = figure(panels("accuracy", "accuracy")["metric"], [Series("run", "#000", [curves])])
    assert [one["name"] for one in key] == ["validation", "best epoch"]
    assert drawn["data"][-1]["y"] == [0.5]


def test_new_lines_are_read_and_a_run_that_starts_again_replaces_its_own(tmp_path: Path) -> None:
    curves = write(tmp_path / "run", *steps({0: 5.0, 1: 4.0, 2: 3.0}))
    with open(curves.run.path / "metrics.jsonl", "a") as file:
        file.write("".join(json.dumps(record) + "\n" for record in steps({2: 2.0, 3: 1.0})) + '{"kind": "st')
    curves.refresh()
    assert curves.frame("steps")["L_h"].tolist() == [5, 4, 2, 1]
    write(tmp_path / "run", *steps({0: 9.0}))
    curves.refresh()
    assert curves.frame("steps")["L_h"].tolist() == [9]
    write(tmp_path / "run", *steps({0: 8.0}))
    curves.refresh(began=2.0)
    assert curves.latest("steps", "L_h") == 8


@pytest.mark.parametrize(("records", "panel", "busy", "reason"), [
    ([], LOSSES, True, "Waiting for the first step…"), ([], LOSSES, False, "No step was recorded"),
    (steps({0: 1.0}), panels("mse", "MSE")["metric"], True, "Waiting for the end of the first epoch…"),
    (steps({0: 1.0}, nfe_forward=0), panels("mse", "MSE")["nfe"], False, "This method solves no ODE"),
    (steps({0: 1.0}, nfe_forward=3), panels("mse", "MSE")["dt"], False, "Not recorded in this run")])
def test_an_empty_panel_says_why(records: list[dict[str, Any]], panel: Panel, busy: bool, reason: str,
                                 tmp_path: Path) -> None:
    assert empty_reason(panel, [write(tmp_path / "run", *records)], busy) == reason
