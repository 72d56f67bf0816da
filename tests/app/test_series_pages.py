"""Pages with runs of time series: their tabs, units and order, known to the registry or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_up
import pytest
from acenode_app import bands, coupling, series, vitals
from acenode_app.lab import Lab
from conftest import Shelf
from streamlit.testing.v1 import AppTest
from test_pages import said, sound

from acenode import experiments
from acenode.results import result_charts
from acenode.runs.catalogue import Catalogue
from acenode.runs.store import RunStore
from acenode.training.task import Metric

Page = Callable[..., AppTest]
IMAGES = ["Confusion matrices", "t-SNE", "Silhouettes"]


def tabs(app: AppTest) -> list[str]:
    return [tab.label for tab in app.tabs]


def drawn(root: Path) -> list[series.Line]:
    entries = Catalogue(RunStore(root)).entries()
    return series.lines(entries, [(e, result_charts.read(e.run.result(), e.state)) for e in entries])


@pytest.mark.parametrize("name", ["", "runs", "compare"])
def test_runs_of_experiments_that_nobody_knows_are_listed(name: str, page: Page, lab: Lab) -> None:
    made_up.shelf(lab.store.root)
    app = sound(page(name))
    assert "latent-ode" in app.dataframe[0].value.to_csv()


@pytest.mark.parametrize(("experiment", "there"), [
    ("physionet", ["ROC", "Calibration"]), ("physionet-vitals", ["Records", "Error over time", "Coupling"]),
    ("activity", ["Classes over time", "Confusion matrices"])])
def test_compare_has_the_tabs_there_is_something_in(experiment: str, there: list[str], page: Page, lab: Lab) -> None:
    made_up.shelf(lab.store.root)
    app = sound(page("compare", runs=",".join(r.id for r in lab.store if r.id.rsplit("-", 3)[0].startswith(experiment)
                                              and (experiment != "physionet" or "vitals" not in r.id))))
    assert tabs(app) == there


def test_images_keep_their_tabs(page: Page, shelf: Shelf) -> None:
    shelf.finished()
    assert tabs(sound(page("compare"))) == IMAGES
    assert tabs(sound(page("mnist"))) == IMAGES


def test_another_record_is_chosen_and_one_that_is_not_there_is_no_trouble(page: Page, lab: Lab) -> None:
    made_up.write(lab.store.root, "physionet-vitals", "ace", 0.002, made_up.vitals())
    app = sound(page("compare"))
    assert app.selectbox(key="record").value == "130000"
    app.selectbox(key="record").select("130001").run()
    sound(app)
    app = sound(page("compare", record="nobody"))
    assert "None of these runs kept this record" in said(app)


def test_less_is_better_in_the_table(page: Page, lab: Lab) -> None:
    for n, value in enumerate((0.0023, 0.0020, 0.0025)):
        made_up.write(lab.store.root, "physionet-vitals", ("latent-ode", "ace", "rnn-vae")[n], value, {}, seed=n)
    app = sound(page("compare", base="Latent-ODE (ODE enc.) epochs=2"))
    table = app.dataframe[1].value.set_index("group")
    assert table.loc["ACE-Latent-ODE epochs=2 — best", "test MSE (less is better)"] == "2.000 ×10⁻³"
    assert table.loc["ACE-Latent-ODE epochs=2 — best", "to baseline"] == "−0.300 better"
    assert table.loc["RNN-VAE epochs=2", "to baseline"] == "+0.200 worse"


def test_different_measures_do_not_compare(page: Page, lab: Lab) -> None:
    made_up.write(lab.store.root, "physionet", "ace", 0.85, made_up.mortality())
    made_up.write(lab.store.root, "physionet-vitals", "ace", 0.002, made_up.vitals())
    app = sound(page("compare", runs=",".join(r.id for r in lab.store)))
    table = app.dataframe[1].value
    assert set(table["test"]) == {"0.850", "2.000 ×10⁻³"}
    assert set(table["to baseline"]) == {"", "another question"}


def test_a_page_of_its_own(page: Page, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """An experiment of the registry with a metric of its own."""
    fake = replace(experiments.get("mnist"), name="physionet", title="PhysioNet", metric=Metric("auc"))
    monkeypatch.setitem(experiments.EXPERIMENTS, "physionet", fake)
    made_up.write(lab.store.root, "physionet", "ace", 0.8531, made_up.mortality())
    app = sound(page("physionet"))
    assert next(m.value for m in app.metric if m.label == "test AUC") == "0.853"
    assert tabs(app) == ["ROC", "Calibration"]


@pytest.mark.parametrize("wrong", [None, 7, "x", [], {}, [None], {"fpr": [0, 1]}, [{"id": "a", "variables": [{}]}]])
def test_malformed_results_break_no_page(wrong: Any, page: Page, lab: Lab) -> None:
    keys = ("roc", "calibration", "over_time", "records", "bands", "coupling", "classes", "confusion")
    made_up.write(lab.store.root, "physionet", "ace", 0.85, dict.fromkeys(keys, wrong))
    assert tabs(sound(page("compare"))) == IMAGES  # which say why they are empty


def test_a_partial_run_is_known_by_its_description(tmp_path: Path) -> None:
    made_up.write(tmp_path, "activity", "ace", 0.8, {}, data="full", partial=True)
    made_up.write(tmp_path, "activity", "ace", 0.8, {}, data="full", seed=1)
    assert [e.partial for e in Catalogue(RunStore(tmp_path)).entries()] == [False, True]


# The charts ---------------------------------------------------------------------------------------------------------


def test_roc_of_all_runs_with_their_auc(tmp_path: Path) -> None:
    for n in range(2):
        made_up.write(tmp_path, "physionet", "ace", 0.85, made_up.mortality(n), seed=n)
    runs = drawn(tmp_path)
    traces = series.roc(runs).data
    assert len(traces) == 3  # and chance
    assert [f"AUC {run.series.roc.auc:.3f}" in t.name for run, t in zip(runs, traces[1:], strict=True)] == [True] * 2
    assert len({t.line.color for t in traces}) == 3
    assert list(series.calibration(runs).data[1].customdata)


def test_error_over_time_is_in_the_papers_unit(tmp_path: Path) -> None:
    made_up.write(tmp_path, "physionet-vitals", "ace", 0.002, made_up.vitals())
    figure = series.over_time(drawn(tmp_path))
    assert figure.layout.yaxis.title.text == "MSE ×10⁻³"
    assert 1 < figure.data[0].y[0] < 4


def test_a_record_shows_its_points_once(tmp_path: Path) -> None:
    for n in range(2):
        made_up.write(tmp_path, "physionet-vitals", "ace", 0.002, made_up.vitals(n), seed=n)
    runs = drawn(tmp_path)
    figure = vitals.small_multiples([(run, run.series.records[0]) for run in runs])
    names = [t.name for t in figure.data if t.name]
    assert names.count("observed") == names.count("held out") == 6  # one a variable
    assert len([t for t in figure.data if t.fill == "toself"]) == 12  # one a variable and run
    assert len(figure.layout.shapes) == 6  # the cut


def test_a_station_has_a_row_a_variable_with_its_jumps(tmp_path: Path) -> None:
    for n in range(2):
        made_up.write(tmp_path, "ushcn", "ace", 0.4, made_up.climate(n), seed=n)
    runs = drawn(tmp_path)
    record = runs[0].series.records[0]
    figure = vitals.small_multiples([(run, run.series.records[0]) for run in runs])
    titles = [a.text for a in figure.layout.annotations]
    assert titles == [v.title for v in record.variables] + ["forecast from here"]
    assert "SNWD · snow depth" in titles
    assert len({tuple(figure.get_subplot(i + 1, 1).yaxis.domain) for i in range(5)}) == 5  # below each other
    line = next(t for t in figure.data if t.mode == "lines" and not t.fill)
    assert list(line.x) == record.variables[0].grid  # every jump twice: a vertical piece of the line
    rugs = [s for s in figure.layout.shapes if s.type == "path"]
    assert [s.yref for s in rugs] == ["y domain", *(f"y{i} domain" for i in range(2, 6))]
    assert rugs[0].path.count("M") == len(record.jumps)
    assert len([s for s in figure.layout.shapes if s.type == "line"]) == 5  # the cut
    assert figure.layout.xaxis5.title.text == "time"
    assert figure.layout.yaxis.title.text == "standard deviations"
    assert [t.name for t in figure.data].count("the state jumps") == 1


def test_either_error_over_time(tmp_path: Path) -> None:
    made_up.write(tmp_path, "ushcn", "ace", 0.4, made_up.climate())
    made_up.write(tmp_path, "physionet-vitals", "ace", 0.002, made_up.vitals())
    runs = drawn(tmp_path)
    assert len(series.over_time(runs).data) == 2
    other = series.over_time(runs, "negll")
    assert len(other.data) == 1
    assert other.layout.yaxis.title.text == "NegLL"
    assert other.layout.xaxis.title.text == "time"


def test_a_page_of_stations(page: Page, lab: Lab) -> None:
    for n, method in enumerate(("gru-ode-bayes", "ace")):
        found = made_up.climate(n, stations=2) | made_up.coupling(n, 5, made_up.STATION)
        made_up.write(lab.store.root, "ushcn", method, 0.4, found, seed=n)
    app = sound(page("compare"))
    assert tabs(app) == ["Records", "Error over time", "Coupling"]
    assert app.selectbox(key="record").options == ["USC00010000", "USC00010001"]
    assert "one unit is 7" in said(app)
    assert "the bands around them two standard deviations" in said(app)


def test_bands_have_the_truth_once_and_a_lane_a_run(tmp_path: Path) -> None:
    for n in range(2):
        made_up.write(tmp_path, "activity", "ace", 0.8, made_up.activities(n), seed=n)
    runs = drawn(tmp_path)
    figure = bands.bands([(run, run.series.bands[0]) for run in runs])
    lanes = {lane for t in figure.data for lane in t.y}
    assert len(lanes) == 3
    assert "true" in lanes
    assert {t.name for t in figure.data} <= set(made_up.CLASSES)


def test_coupling_known_beside_learned(tmp_path: Path) -> None:
    made_up.write(tmp_path, "physionet-vitals", "ace", 0.002, made_up.coupling())
    (run,) = drawn(tmp_path)
    assert run.series.coupling
    assert len(coupling.heatmaps(run.series.coupling).data) == 2


def test_coupling_names_what_a_station_measures(tmp_path: Path) -> None:
    made_up.write(tmp_path, "ushcn", "ace", 0.4, made_up.coupling(side=5, names=made_up.STATION))
    (run,) = drawn(tmp_path)
    assert run.series.coupling
    known, _ = coupling.heatmaps(run.series.coupling).data
    assert known.y[3] == "TMAX · highest temperature"
    assert known.x[3] == "TMAX"
