"""The figures of a study: the values where they belong, and only where there are values."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from export_runs import epoch
from study_entries import attention_study, finished

from acenode.compare.study_answer import StudyReport, TrivialReference, report
from acenode.compare.study_figures import curves, differences, results, study_figures, validation_curve
from acenode.compare.study_grid import make_grid
from acenode.export.study import NO_KALEIDO, export_study
from acenode.runs.catalogue import Catalogue
from acenode.runs.store import RunStore

VALUES = {0: [0.92, 0.93, 0.95], 1: [0.80, 0.81, 0.83], 2: [0.90, 0.91, 0.92]}


def of(values: dict[int, list[float | None]], references: tuple[TrivialReference, ...] = ()) -> StudyReport:
    study = attention_study()
    return report(make_grid(study, finished(study, values)), list(references))


def test_every_run_is_a_dot_and_near_references_are_lines() -> None:
    near, far = TrivialReference("nearest <class>", 0.85), TrivialReference("majority class", 0.1)
    figure = results(of(VALUES, (near, far)))
    assert figure
    runs, means, reference = figure.data
    assert sorted(runs.x) == pytest.approx(sorted(100 * v for values in VALUES.values() for v in values))
    assert list(means.x) == pytest.approx([280 / 3, 244 / 3, 91.0])
    assert reference.name == "nearest &lt;class&gt;"
    assert figure.layout.shapes[0].x0 == 85
    assert figure.layout.xaxis.title.text == "Test accuracy (%)"
    assert list(figure.layout.yaxis.categoryarray)[-1] == means.y[0] == "evolving attention"


def test_differences_stand_at_their_place_relative_to_zero() -> None:
    figure = differences(of(VALUES))
    assert figure
    (points,) = figure.data
    better, worse = points.x
    assert worse < 0 < better
    assert figure.layout.shapes[0].x0 == 0
    assert min(points.error_x.array) > 0
    assert list(points.error_x.array) == pytest.approx(list(points.error_x.arrayminus))
    assert figure.layout.xaxis.title.text == "Difference of test accuracy in points, with 95% interval"


def test_a_figure_without_values_is_left_out() -> None:
    assert study_figures(of({})) == []
    assert [one.name for one in study_figures(of({0: [0.9], 2: [0.8]}))] == ["results"]  # one pair has no interval


def test_curves_are_the_mean_and_range_over_runs(make, tmp_path: Path) -> None:
    study = attention_study(seeds=(0, 1))
    for i, entry in enumerate(finished(study, {0: [0.9, 0.8], 2: [0.7, 0.7]})):
        records = [epoch(n) | {"validation_accuracy": 0.1 * n + 0.2 * (i == 1)} for n in (1, 2, 3)]
        make(entry.id, config=entry.config, records=records if i != 3 else records[:2],
             outcome={"test": {"accuracy": 0.5}, "metric": "accuracy"})
    found = report(make_grid(study, Catalogue(RunStore(tmp_path)).entries()))
    assert [pytest.approx(point) for point in validation_curve(found.grid.rows[0], "accuracy")] == [
        (1, 0.2, 0.1, 0.3), (2, 0.3, 0.2, 0.4), (3, 0.4, 0.3, 0.5)]
    assert [point[0] for point in validation_curve(found.grid.rows[2], "accuracy")] == [1, 2]  # what all runs have
    figure = curves(found)
    assert figure
    band, line = figure.data[:2]
    assert (list(band.y), list(line.y)) == (pytest.approx([30, 40, 50, 30, 20, 10]), pytest.approx([20, 30, 40]))
    assert "evolving attention" in [trace.name for trace in figure.data]


def test_without_kaleido_the_page_is_written_and_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kaleido", None)
    said: list[str] = []
    assert export_study(of(VALUES), "svg", tmp_path / "figure.svg", said.append) == tmp_path / "figure.html"
    assert said == [NO_KALEIDO]
    assert "plotly" in (tmp_path / "figure.html").read_text().lower()
