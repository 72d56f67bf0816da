"""The figures of a study: valid SVG with the values where they belong, and only where there are values."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from export_runs import epoch
from study_entries import attention_study, finished

from acenode.compare.study_answer import StudyReport, report
from acenode.compare.study_grid import make_grid
from acenode.export.study_figures import curves_svg, differences_svg, figures, validation_curve
from acenode.export.study_formats import export_study
from acenode.runs.catalogue import Catalogue
from acenode.runs.store import RunStore

SVG = "{http://www.w3.org/2000/svg}"


def of(values: dict[int, list[float | None]], **given: object) -> StudyReport:
    study = attention_study(**given)
    return report(make_grid(study, finished(study, values)))


def test_differences_stand_at_their_place_relative_to_zero() -> None:
    drawn = ElementTree.fromstring(differences_svg(of({0: [0.92, 0.93, 0.95], 1: [0.80, 0.81, 0.83],
                                                       2: [0.90, 0.91, 0.92]})))
    zero = float(next(e for e in drawn.iter(f"{SVG}line") if e.get("class") == "zero").get("x1", ""))
    better, worse = (float(e.get("cx", "")) for e in drawn.iter(f"{SVG}circle"))
    assert worse < zero < better
    intervals = [(float(e.get("x1", "")), float(e.get("x2", ""))) for e in drawn.iter(f"{SVG}line")
                 if e.get("class") == "interval"]
    assert [low < middle < high for (low, high), middle in zip(intervals, (better, worse), strict=True)] == [True] * 2


def test_a_figure_without_values_is_left_out() -> None:
    assert figures(of({})) == []
    assert [figure.name for figure in figures(of({0: [0.9], 2: [0.8]}))] == ["results"]  # one pair has no interval


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
    drawn = ElementTree.fromstring(curves_svg(found))
    assert len(list(drawn.iter(f"{SVG}polyline"))) == 2
    assert "evolving attention" in "".join(drawn.itertext())
    file = export_study(found, "svg", tmp_path / "figure.svg")
    assert sorted(p.name for p in file.parent.glob("figure*.svg")) == ["figure-curves.svg", "figure-differences.svg",
                                                                       "figure.svg"]
