"""Results of runs: figures, tabs and units of series and images, the charts of a search, and the panel What if."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import synthetic_results as synthetic
from acenode_app.results import tabs as result_tabs
from acenode_app.results import what_if
from acenode_app.results.search_figures import MOST, SearchFigures, sampled, whole_ticks
from acenode_app.services import Services
from conftest import Page, RunFolder, no_exception, open_tab, page_text, titled
from streamlit.testing.v1 import AppTest

from acenode import experiments
from acenode.compare import figures, result_charts
from acenode.compare.colours import class_colour
from acenode.compare.figures import ChartedRun
from acenode.compare.influence import Held, WhatIf
from acenode.compare.metrics import metric_format
from acenode.config.ranges import SearchRange
from acenode.runs.catalogue import Catalogue
from acenode.runs.store import RunStore
from acenode.search.journal import TrialRecord

IMAGES = ["Confusion matrices", "t-SNE", "Silhouettes"]
RATE, ATTENTION = SearchRange("learning_rate", 0.001, 1.0, True), SearchRange("attention", values=("evolving", "none"))


def charted(root: Path, experiment: str, value: float, result_of: Callable[[int], Any]) -> list[ChartedRun]:
    """Write two runs of ACE with the results of their seeds, and return them ready for the charts."""
    for seed in range(2):
        synthetic.write(root, experiment, "ace", value, result_of(seed), seed=seed)
    entries = Catalogue(RunStore(root)).entries()
    return result_tabs.charted_runs(entries, [(e, result_charts.read(e.run.result(), e.state)) for e in entries])


@pytest.mark.parametrize(("experiment", "rule"), [
    ("mnist", None), ("ushcn", "The epoch with the best validation NegLL"),
    ("liver", "The epoch with the best validation AUC; of equal ones, that with the lowest cross entropy")])
def test_the_best_epoch_says_how_it_was_chosen(experiment: str, rule: str | None) -> None:
    said = result_tabs.best_epoch_help(experiments.get(experiment))
    assert (said and said.replace("\\", "")) == rule


def test_roc_of_all_runs_with_auc(tmp_path: Path) -> None:
    runs = charted(tmp_path, "physionet", 0.85, synthetic.mortality)
    diagonal, *curves = figures.roc(runs).data
    for run, curve in zip(runs, curves, strict=True):
        assert f"AUC {run.charts.roc.auc:.3f}" in curve.name
    assert len({t.line.color for t in (diagonal, *curves)}) == 3
    assert list(figures.calibration(runs).data[1].customdata)


def test_vitals_are_drawn_in_the_papers_unit_with_shared_points_once(tmp_path: Path) -> None:
    runs = charted(tmp_path, "physionet-vitals", 0.002, lambda n: synthetic.vitals(n) | synthetic.coupling())
    over_time = figures.over_time(runs)
    assert over_time.layout.yaxis.title.text == "MSE of scaled values ×10⁻³"
    assert 1 < over_time.data[0].y[0] < 4
    figure = figures.records([(run, run.charts.records[0]) for run in runs])
    names = [t.name for t in figure.data if t.name]
    assert names.count("Observed") == names.count("Held out") == 6  # one for each variable
    assert len([t for t in figure.data if t.fill == "toself"]) == 12  # one for each variable and run
    assert len(figure.layout.shapes) == 6  # the start of the forecast
    assert runs[0].charts.coupling
    assert len(figures.coupling(runs[0].charts.coupling).data) == 2  # known and learned


def test_station_has_a_chart_for_each_variable_with_its_jumps(tmp_path: Path) -> None:
    runs = charted(tmp_path, "ushcn", 0.4, synthetic.climate)
    record = runs[0].charts.records[0]
    figure = figures.records([(run, run.charts.records[0]) for run in runs])
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
    runs = charted(tmp_path, "activity", 0.8, synthetic.activities)
    figure = figures.bands([(run, run.charts.bands[0]) for run in runs])
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


def tabs(app: AppTest, page: str = "compare") -> list[str]:
    """Open every tab with charts, and return their titles."""
    titles = [tab.label for tab in app.tabs]
    for title in titles:
        open_tab(app, title, page)
    return titles


def test_runs_of_unknown_experiments_are_listed(page: Page, services: Services) -> None:
    synthetic.shelf(services.store.root)
    for name in ("", "runs", "compare"):
        assert "latent-ode" in page(name).dataframe[0].value.to_csv()


@pytest.mark.parametrize(("experiment", "expected"), [
    ("physionet", ["ROC", "Calibration"]), ("physionet-vitals", ["Records", "Error over time", "Coupling"]),
    ("activity", ["Classes over time", "Confusion matrices"])])
def test_compare_has_a_tab_for_each_chart_with_data(experiment: str, expected: list[str], page: Page,
                                                    services: Services) -> None:
    synthetic.shelf(services.store.root)
    ids = [r.id for r in services.store if r.id.rsplit("-", 3)[0].startswith(experiment)
           and (experiment != "physionet" or "vitals" not in r.id)]
    app = page("compare", runs=",".join(ids))
    assert tabs(app) == expected


def test_image_runs_have_their_tabs(page: Page, run_folder: RunFolder) -> None:
    run_folder.finished()
    assert tabs(page("compare")) == IMAGES
    assert tabs(page("mnist"), "watch") == IMAGES


def test_records_can_be_chosen_and_unknown_ones_are_replaced(page: Page, services: Services) -> None:
    synthetic.write(services.store.root, "physionet-vitals", "ace", 0.002, synthetic.vitals())
    app = page("compare")
    assert app.selectbox(key="record").value == "130000"
    no_exception(app.selectbox(key="record").select("130001").run())
    app = page("compare", record="patient 130001")  # as the URL has it
    assert app.selectbox(key="record").value == "130001"
    app = page("compare", record="999")
    assert app.selectbox(key="record").value == "130000"
    assert "None of these runs kept patient 999, so another one is shown." in page_text(app)


def test_a_record_of_the_runs_shown_before_is_replaced(page: Page, services: Services) -> None:
    root = services.store.root
    first = synthetic.write(root, "ushcn", "ace", 0.4, synthetic.climate(stations=2))
    other = synthetic.climate(stations=1)
    other["records"][0]["id"] = "station007"
    second = synthetic.write(root, "ushcn", "ace", 0.4, other, seed=1)
    app = page("ushcn", runs=first.id)
    open_tab(app, "Records", "watch")
    app.selectbox(key="record").select("USC00010001").run()
    no_exception(titled(app.multiselect, "Runs shown").set_value([second.id]).run())
    record = app.selectbox(key="record")
    assert (record.value, record.options) == ("station007", ["station007"])
    assert "Filled points were observed" in page_text(app)


def test_lower_is_better_in_the_table_and_other_metrics_are_not_compared(page: Page, services: Services) -> None:
    root = services.store.root
    for method, value in {"latent-ode": 0.0023, "ace": 0.0020, "rnn-vae": 0.0025}.items():
        synthetic.write(root, "physionet-vitals", method, value, {})
    app = page("compare", base="Latent-ODE (ODE enc.) epochs=2")
    table = app.dataframe[1].value.set_index("Group")
    assert table.loc["ACE-Latent-ODE epochs=2", "Test MSE (lower is better)"] == "2.000 ×10⁻³"
    assert table.loc["ACE-Latent-ODE epochs=2", "Difference (95% interval)"] == "−0.300"
    assert table.loc["RNN-VAE epochs=2", "Difference (95% interval)"] == "+0.200"
    assert set(table["Effect"]) == {"baseline", "cannot be told"}  # one seed
    other = synthetic.write(root, "physionet", "ace", 0.85, synthetic.mortality())
    vitals = next(run for run in services.store if "vitals-ace" in run.id)
    table = page("compare", runs=f"{other.id},{vitals.id}").dataframe[1].value
    assert set(table["Test"]) == {"0.850", "2.000 ×10⁻³"}
    assert set(table["Effect"]) == {"baseline", "not comparable"}


@pytest.mark.parametrize("wrong", [None, 7, "x", [], {}, [None], {"fpr": [0, 1]}, [{"id": "a", "variables": [{}]}]])
def test_malformed_results_break_no_page(wrong: Any, page: Page, services: Services) -> None:
    keys = ("roc", "calibration", "over_time", "records", "bands", "coupling", "errors", "classes", "confusion")
    synthetic.write(services.store.root, "physionet", "ace", 0.85, dict.fromkeys(keys, wrong))
    assert tabs(page("compare")) == IMAGES  # they say why they are empty


def test_partial_data_is_read_from_the_description(tmp_path: Path) -> None:
    synthetic.write(tmp_path, "activity", "ace", 0.8, {}, data="full", partial=True)
    synthetic.write(tmp_path, "activity", "ace", 0.8, {}, data="full", seed=1)
    assert [e.partial for e in Catalogue(RunStore(tmp_path)).entries()] == [False, True]


def test_compare_page_with_stations(page: Page, services: Services) -> None:
    for n, method in enumerate(("gru-ode-bayes", "ace")):
        found = synthetic.climate(n, stations=2) | synthetic.coupling(n, 5, synthetic.STATION)
        found |= {"errors": synthetic.STATION_RESULT["errors"]} if method == "ace" else {}
        synthetic.write(services.store.root, "ushcn", method, 0.4, found, seed=n)
    app = page("compare")
    assert tabs(app) == ["Records", "Error over time", "Coupling", "Errors by variable"]
    errors = next(d.value for d in app.dataframe if "Winsorised MSE" in d.value.columns)
    assert errors["Share of error (%)"].tolist() == [10.7, 89.3, 100.0]
    assert "95% interval of the MSE, drawing series: 0.500 to 6.500" in page_text(app)
    open_tab(app, "Records")
    assert app.selectbox(key="record").options == ["USC00010000", "USC00010001"]
    assert "Values are standardised" in page_text(app)


def trial(number: int, value: float | None, state: str = "finished", **params: Any) -> TrialRecord:
    return TrialRecord(number, state, params or {"learning_rate": 0.1, "attention": "none"}, value)


def drawn(*trials: TrialRecord, metric: str = "accuracy") -> SearchFigures:
    sign = -1 if metric == "accuracy" else 1
    done = sorted((t for t in trials if t.state == "finished"), key=lambda t: (sign * (t.value or 0), t.number))
    found: Any = SimpleNamespace(search=SimpleNamespace(ranges=(RATE, ATTENTION)), trials=trials,
                                 measure=metric_format(metric), ranked=lambda: done)
    return SearchFigures(found)


@pytest.mark.parametrize(("metric", "best"), [("accuracy", [90, 95]), ("mse", [0.9, 0.8])])
def test_the_best_trial_so_far_leaves_out_pruned_ones(metric: str, best: list[float]) -> None:
    trials = [trial(0, 0.9), trial(1, 0.99, "pruned"), trial(2, 0.8), trial(3, 0.95), trial(4, None, "running")]
    pruned, finished, line = drawn(*trials, metric=metric).best().data
    assert (list(pruned.x), list(finished.x)) == ([1], [0, 2, 3])
    assert list(line.y)[:2] == pytest.approx(best)
    assert line.x[-1] == 3


def test_many_trials_are_sampled_with_the_best_among_them() -> None:
    trials = [trial(n, n * 7919 % 10007 / 10007) for n in range(10_000)]
    ranked = [t.number for t in sorted(trials, key=lambda t: -(t.value or 0))]
    few = [t.number for t in sampled(trials, ranked)]
    assert 400 < len(few) <= MOST
    assert few == sorted(few)
    assert set(ranked[:50]) <= set(few)


def test_slices_have_the_settings_and_mark_the_best_trial() -> None:
    found = drawn(trial(0, 0.9, learning_rate=0.5, attention="evolving"), trial(1, 0.95, learning_rate=0.01))
    rate, attention = found.slice(RATE), found.slice(ATTENTION)
    assert list(rate.data[1].x) == [0.5, 0.01]
    assert list(rate.data[2].x) == [0.01]
    assert rate.layout.xaxis.type == "log"
    assert list(attention.layout.xaxis.ticktext) == ["evolving", "none"]
    assert abs(attention.data[1].x[0]) <= 0.5


@pytest.mark.parametrize(("low", "high", "log", "ticks"), [
    (1, 2, False, [1, 2]), (2, 8, True, [2, 3, 4, 5, 6, 7, 8]), (1, 64, False, [])])
def test_whole_numbers_have_whole_ticks(low: int, high: int, log: bool, ticks: list[int]) -> None:
    assert whole_ticks(SearchRange("f_layers", low, high, log)) == ticks
    assert whole_ticks(SearchRange("learning_rate", low, high, log)) == []


def test_parallel_coordinates_have_a_labelled_axis_for_each_setting_and_the_value() -> None:
    figure = drawn(trial(0, 0.9), trial(1, 0.95, learning_rate=0.0316227766)).parallel()
    assert list(figure.layout.xaxis.ticktext) == ["Learning rate", "Attention", "Validation<br>accuracy (%)"]
    assert [a.text for a in figure.layout.annotations] == ["0.001", "1", "evolving", "none", "90", "95"]
    assert list(figure.data[-1].x) == [2, 2]
    best = figure.data[2]
    assert list(best.y) == [pytest.approx(0.5), None, 1, None]


@pytest.fixture
def found() -> WhatIf:
    t = np.linspace(60, 120, 5)
    without = np.tile([60.0, 50.0], (5, 1))
    return WhatIf(("north", "south"), ("mph", "mph"), t, without, without - [[0, 0], [20, 5], [20, 8], [0, 3], [0, 1]],
                  np.array([10.0, 5.0]))


def test_the_forecast_is_drawn_with_and_without_and_the_largest_change_named(found: WhatIf) -> None:
    drawn = what_if.figure(found, Held("north", 40.0, 60, 90), "minutes")
    assert [trace.name for trace in drawn.data] == ["as it is", "held"] * 2
    assert drawn.layout.shapes[0].x1 == 90
    north = Held("north", 40.0, 60, 90)
    assert what_if.words(found, north) == "south changes most, by up to 8 mph (1.6 standard deviations)."
    assert "none attends to it" in what_if.words(replace(found, held=found.without), north)


def test_changes_are_compared_in_standard_deviations() -> None:
    """Ten variables: the first changes most in its own unit, the last for its standard deviation in the data."""
    without = np.stack([np.linspace(0, 1000, 5), *np.ones((9, 5))], 1)
    change = np.array([3.0, *[0.5] * 8, 0.02])
    found = WhatIf(tuple("abcdefghij"), ("",) * 10, np.arange(5.0), without, without + change,
                   np.array([1000.0, *[2.0] * 8, 0.01]))
    assert found.sizes == pytest.approx([0.003, *[0.25] * 8, 2.0])
    held = Held("b", 1.5, 0, 4)
    assert what_if.words(found, held) == "j changes most, by up to 0.02 (2 standard deviations)."
    drawn = what_if.figure(found, held, "days")
    shown = [axis.title.text for axis in drawn.select_yaxes()]
    assert len(shown) == what_if.DRAWN
    assert "j" in shown
    assert "a" not in shown
