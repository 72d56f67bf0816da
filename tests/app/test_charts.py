"""The charts of time series: ROC, error over time, records, classes over time, coupling."""

from __future__ import annotations

from pathlib import Path

import pytest
import synthetic_results as synthetic
from acenode_app.results import tabs as result_tabs
from acenode_app.results.tabs import charted_runs

from acenode import experiments
from acenode.compare import figures, result_charts
from acenode.compare.colours import class_colour
from acenode.compare.figures import ChartedRun
from acenode.runs.catalogue import Catalogue
from acenode.runs.store import RunStore


def charted(root: Path) -> list[ChartedRun]:
    """Return all runs of a folder, ready for the charts."""
    entries = Catalogue(RunStore(root)).entries()
    return charted_runs(entries, [(e, result_charts.read(e.run.result(), e.state)) for e in entries])


def test_runs_without_a_chart_are_listed_briefly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(6):
        synthetic.write(tmp_path, "physionet", "ace", 0.85, synthetic.mortality(n), seed=n)
    runs, said = charted(tmp_path), []
    monkeypatch.setattr(result_tabs.st, "caption", lambda text, help=None: said.append((text.replace("\\", ""), help)))
    result_tabs.note_missing(runs[:3])
    result_tabs.note_missing(runs)
    names = [run.name for run in runs]
    assert said[0] == (f"Not available for {', '.join(names[:3])}", None)
    assert said[1][0] == f"Not available for {', '.join(names[:3])} and 3 more runs"
    assert said[1][1].replace("\\", "") == "; ".join(names)


@pytest.mark.parametrize(("experiment", "rule"), [
    ("mnist", None), ("ushcn", "The epoch with the best validation NegLL"),
    ("liver", "The epoch with the best validation AUC; of equal ones, that with the lowest cross entropy")])
def test_the_best_epoch_says_how_it_was_chosen(experiment: str, rule: str | None) -> None:
    said = result_tabs.best_epoch_help(experiments.get(experiment))
    assert (said and said.replace("\\", "")) == rule


def test_roc_of_all_runs_with_auc(tmp_path: Path) -> None:
    for n in range(2):
        synthetic.write(tmp_path, "physionet", "ace", 0.85, synthetic.mortality(n), seed=n)
    runs = charted(tmp_path)
    diagonal, *curves = figures.roc(runs).data
    for run, curve in zip(runs, curves, strict=True):
        assert f"AUC {run.series.roc.auc:.3f}" in curve.name
    assert len({t.line.color for t in (diagonal, *curves)}) == 3
    assert list(figures.calibration(runs).data[1].customdata)


def test_vitals_are_drawn_in_the_papers_unit_with_shared_points_once(tmp_path: Path) -> None:
    for n in range(2):
        synthetic.write(tmp_path, "physionet-vitals", "ace", 0.002, synthetic.vitals(n) | synthetic.coupling(), seed=n)
    runs = charted(tmp_path)
    over_time = figures.over_time(runs)
    assert over_time.layout.yaxis.title.text == "MSE of scaled values ×10⁻³"
    assert 1 < over_time.data[0].y[0] < 4
    figure = figures.records([(run, run.series.records[0]) for run in runs])
    names = [t.name for t in figure.data if t.name]
    assert names.count("Observed") == names.count("Held out") == 6  # one for each variable
    assert len([t for t in figure.data if t.fill == "toself"]) == 12  # one for each variable and run
    assert len(figure.layout.shapes) == 6  # the start of the forecast
    assert runs[0].series.coupling
    assert len(figures.coupling(runs[0].series.coupling).data) == 2  # known and learned


def test_station_has_a_chart_for_each_variable_with_its_jumps(tmp_path: Path) -> None:
    for n in range(2):
        synthetic.write(tmp_path, "ushcn", "ace", 0.4, synthetic.climate(n), seed=n)
    runs = charted(tmp_path)
    record = runs[0].series.records[0]
    figure = figures.records([(run, run.series.records[0]) for run in runs])
    titles = [a.text for a in figure.layout.annotations]
    assert titles == [v.title for v in record.variables]
    assert [t.name for t in figure.data].count("Forecast starts") == 1  # a label in the chart would be cut on a phone
    assert "SNWD · snow depth" in titles
    assert len({tuple(figure.get_subplot(i + 1, 1).yaxis.domain) for i in range(5)}) == 5  # stacked
    line = next(t for t in figure.data if t.mode == "lines" and not t.fill)
    assert list(line.x) == record.variables[0].grid  # a jump has its time twice: a vertical line
    rugs = [s for s in figure.layout.shapes if s.type == "path"]
    assert [s.yref for s in rugs] == ["y domain", *(f"y{i} domain" for i in range(2, 6))]
    assert rugs[0].path.count("M") == len(record.jumps)
    assert len([s for s in figure.layout.shapes if s.type == "line"]) == 5  # the start of the forecast
    assert figure.layout.xaxis5.title.text == "Time (days)"
    assert figure.layout.yaxis.title.text == "standard deviations"
    assert [t.name for t in figure.data].count("State jumps") == 1


def test_class_timeline_has_one_lane_for_the_truth_and_one_for_each_run(tmp_path: Path) -> None:
    for n in range(2):
        synthetic.write(tmp_path, "activity", "ace", 0.8, synthetic.activities(n), seed=n)
    runs = charted(tmp_path)
    figure = figures.bands([(run, run.series.bands[0]) for run in runs])
    lanes = {lane for t in figure.data for lane in t.y}
    assert len(lanes) == 3
    assert "True class" in lanes
    assert {t.name for t in figure.data} <= set(synthetic.CLASSES)


def test_tsne_is_drawn_without_webgl_in_the_colours_of_the_classes() -> None:
    points = {"x": list(range(200)), "y": list(range(200)), "label": [n % 2 for n in range(200)],
              "index": list(range(200))}
    result = result_charts.read({"classes": ["cat", "dog"], "tsne": points}, "finished")
    figure = figures.tsne(result, most=50)
    assert figure
    assert {t.type for t in figure.data} == {"scatter"}
    assert [t.marker.color for t in figure.data] == [class_colour(0), class_colour(1)]
    assert sum(len(t.x) for t in figure.data) <= 50
