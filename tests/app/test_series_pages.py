"""Pages with runs of time series: tabs, units and charts, also of experiments that are not in the registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_up
import pytest
from acenode_app import class_timeline, coupling, line_charts, records
from acenode_app.charts import ChartedRun, charted_runs
from acenode_app.services import Services
from conftest import RunFolder
from streamlit.testing.v1 import AppTest
from test_pages import no_exception, page_text

from acenode import experiments
from acenode.results import result_charts
from acenode.runs.catalogue import Catalogue
from acenode.runs.store import RunStore
from acenode.training.task import Metric

Page = Callable[..., AppTest]
IMAGES = ["Confusion matrices", "t-SNE", "Silhouettes"]


def tabs(app: AppTest) -> list[str]:
    return [tab.label for tab in app.tabs]


def charted(root: Path) -> list[ChartedRun]:
    """Return all runs of a folder, ready for the charts."""
    entries = Catalogue(RunStore(root)).entries()
    return charted_runs(entries, [(e, result_charts.read(e.run.result(), e.state)) for e in entries])


@pytest.mark.parametrize("name", ["", "runs", "compare"])
def test_runs_of_unknown_experiments_are_listed(name: str, page: Page, services: Services) -> None:
    made_up.shelf(services.store.root)
    app = no_exception(page(name))
    assert "latent-ode" in app.dataframe[0].value.to_csv()


@pytest.mark.parametrize(("experiment", "expected"), [
    ("physionet", ["ROC", "Calibration"]), ("physionet-vitals", ["Records", "Error over time", "Coupling"]),
    ("activity", ["Classes over time", "Confusion matrices"])])
def test_compare_has_a_tab_for_each_chart_with_data(experiment: str, expected: list[str], page: Page,
                                                    services: Services) -> None:
    made_up.shelf(services.store.root)
    ids = [r.id for r in services.store if r.id.rsplit("-", 3)[0].startswith(experiment)
           and (experiment != "physionet" or "vitals" not in r.id)]
    app = no_exception(page("compare", runs=",".join(ids)))
    assert tabs(app) == expected


def test_image_runs_have_their_tabs(page: Page, run_folder: RunFolder) -> None:
    run_folder.finished()
    assert tabs(no_exception(page("compare"))) == IMAGES
    assert tabs(no_exception(page("mnist"))) == IMAGES


def test_records_can_be_chosen_and_unknown_ones_are_reported(page: Page, services: Services) -> None:
    made_up.write(services.store.root, "physionet-vitals", "ace", 0.002, made_up.vitals())
    app = no_exception(page("compare"))
    assert app.selectbox(key="record").value == "130000"
    app.selectbox(key="record").select("130001").run()
    no_exception(app)
    app = no_exception(page("compare", record="unknown"))
    assert "None of these runs kept this record" in page_text(app)


def test_lower_is_better_in_the_table(page: Page, services: Services) -> None:
    for n, value in enumerate((0.0023, 0.0020, 0.0025)):
        made_up.write(services.store.root, "physionet-vitals", ("latent-ode", "ace", "rnn-vae")[n], value, {}, seed=n)
    app = no_exception(page("compare", base="Latent-ODE (ODE enc.) epochs=2"))
    table = app.dataframe[1].value.set_index("Group")
    assert table.loc["ACE-Latent-ODE epochs=2 — best", "Test MSE (lower is better)"] == "2.000 ×10⁻³"
    assert table.loc["ACE-Latent-ODE epochs=2 — best", "Difference to baseline"] == "−0.300 better"
    assert table.loc["RNN-VAE epochs=2", "Difference to baseline"] == "+0.200 worse"


def test_different_metrics_are_not_compared(page: Page, services: Services) -> None:
    made_up.write(services.store.root, "physionet", "ace", 0.85, made_up.mortality())
    made_up.write(services.store.root, "physionet-vitals", "ace", 0.002, made_up.vitals())
    app = no_exception(page("compare", runs=",".join(r.id for r in services.store)))
    table = app.dataframe[1].value
    assert set(table["Test"]) == {"0.850", "2.000 ×10⁻³"}
    assert set(table["Difference to baseline"]) == {"", "not comparable"}


def test_page_of_an_experiment_with_its_own_metric(page: Page, services: Services,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    fake = replace(experiments.get("mnist"), name="physionet", title="PhysioNet", metric=Metric("auc"))
    monkeypatch.setitem(experiments.EXPERIMENTS, "physionet", fake)
    made_up.write(services.store.root, "physionet", "ace", 0.8531, made_up.mortality())
    app = no_exception(page("physionet"))
    assert next(m.value for m in app.metric if m.label == "Test AUC") == "0.853"
    assert tabs(app) == ["ROC", "Calibration"]


@pytest.mark.parametrize("wrong", [None, 7, "x", [], {}, [None], {"fpr": [0, 1]}, [{"id": "a", "variables": [{}]}]])
def test_malformed_results_break_no_page(wrong: Any, page: Page, services: Services) -> None:
    keys = ("roc", "calibration", "over_time", "records", "bands", "coupling", "classes", "confusion")
    made_up.write(services.store.root, "physionet", "ace", 0.85, dict.fromkeys(keys, wrong))
    assert tabs(no_exception(page("compare"))) == IMAGES  # they say why they are empty


def test_partial_data_is_read_from_the_description(tmp_path: Path) -> None:
    made_up.write(tmp_path, "activity", "ace", 0.8, {}, data="full", partial=True)
    made_up.write(tmp_path, "activity", "ace", 0.8, {}, data="full", seed=1)
    assert [e.partial for e in Catalogue(RunStore(tmp_path)).entries()] == [False, True]


# Charts


def test_roc_of_all_runs_with_auc(tmp_path: Path) -> None:
    for n in range(2):
        made_up.write(tmp_path, "physionet", "ace", 0.85, made_up.mortality(n), seed=n)
    runs = charted(tmp_path)
    traces = line_charts.roc(runs).data
    assert len(traces) == 3  # two runs and the diagonal
    assert [f"AUC {run.series.roc.auc:.3f}" in t.name for run, t in zip(runs, traces[1:], strict=True)] == [True] * 2
    assert len({t.line.color for t in traces}) == 3
    assert list(line_charts.calibration(runs).data[1].customdata)


def test_error_over_time_has_the_papers_unit(tmp_path: Path) -> None:
    made_up.write(tmp_path, "physionet-vitals", "ace", 0.002, made_up.vitals())
    figure = line_charts.over_time(charted(tmp_path))
    assert figure.layout.yaxis.title.text == "MSE ×10⁻³"
    assert 1 < figure.data[0].y[0] < 4


def test_record_shows_shared_points_once(tmp_path: Path) -> None:
    for n in range(2):
        made_up.write(tmp_path, "physionet-vitals", "ace", 0.002, made_up.vitals(n), seed=n)
    runs = charted(tmp_path)
    figure = records.small_multiples([(run, run.series.records[0]) for run in runs])
    names = [t.name for t in figure.data if t.name]
    assert names.count("Observed") == names.count("Held out") == 6  # one for each variable
    assert len([t for t in figure.data if t.fill == "toself"]) == 12  # one for each variable and run
    assert len(figure.layout.shapes) == 6  # the start of the forecast


def test_station_has_a_chart_for_each_variable_with_its_jumps(tmp_path: Path) -> None:
    for n in range(2):
        made_up.write(tmp_path, "ushcn", "ace", 0.4, made_up.climate(n), seed=n)
    runs = charted(tmp_path)
    record = runs[0].series.records[0]
    figure = records.small_multiples([(run, run.series.records[0]) for run in runs])
    titles = [a.text for a in figure.layout.annotations]
    assert titles == [v.title for v in record.variables] + ["Forecast starts here"]
    assert "SNWD · snow depth" in titles
    assert len({tuple(figure.get_subplot(i + 1, 1).yaxis.domain) for i in range(5)}) == 5  # stacked
    line = next(t for t in figure.data if t.mode == "lines" and not t.fill)
    assert list(line.x) == record.variables[0].grid  # a jump has its time twice: a vertical line
    rugs = [s for s in figure.layout.shapes if s.type == "path"]
    assert [s.yref for s in rugs] == ["y domain", *(f"y{i} domain" for i in range(2, 6))]
    assert rugs[0].path.count("M") == len(record.jumps)
    assert len([s for s in figure.layout.shapes if s.type == "line"]) == 5  # the start of the forecast
    assert figure.layout.xaxis5.title.text == "Time"
    assert figure.layout.yaxis.title.text == "standard deviations"
    assert [t.name for t in figure.data].count("State jumps") == 1


def test_both_errors_over_time(tmp_path: Path) -> None:
    made_up.write(tmp_path, "ushcn", "ace", 0.4, made_up.climate())
    made_up.write(tmp_path, "physionet-vitals", "ace", 0.002, made_up.vitals())
    runs = charted(tmp_path)
    assert len(line_charts.over_time(runs).data) == 2
    other = line_charts.over_time(runs, "negll")
    assert len(other.data) == 1
    assert other.layout.yaxis.title.text == "NegLL"
    assert other.layout.xaxis.title.text == "Time"


def test_compare_page_with_stations(page: Page, services: Services) -> None:
    for n, method in enumerate(("gru-ode-bayes", "ace")):
        found = made_up.climate(n, stations=2) | made_up.coupling(n, 5, made_up.STATION)
        made_up.write(services.store.root, "ushcn", method, 0.4, found, seed=n)
    app = no_exception(page("compare"))
    assert tabs(app) == ["Records", "Error over time", "Coupling"]
    assert app.selectbox(key="record").options == ["USC00010000", "USC00010001"]
    assert "one unit is 7" in page_text(app)
    assert "the bands around them two standard deviations" in page_text(app)


def test_class_timeline_has_one_lane_for_the_truth_and_one_for_each_run(tmp_path: Path) -> None:
    for n in range(2):
        made_up.write(tmp_path, "activity", "ace", 0.8, made_up.activities(n), seed=n)
    runs = charted(tmp_path)
    figure = class_timeline.bands([(run, run.series.bands[0]) for run in runs])
    lanes = {lane for t in figure.data for lane in t.y}
    assert len(lanes) == 3
    assert "True class" in lanes
    assert {t.name for t in figure.data} <= set(made_up.CLASSES)


def test_coupling_shows_known_and_learned(tmp_path: Path) -> None:
    made_up.write(tmp_path, "physionet-vitals", "ace", 0.002, made_up.coupling())
    (run,) = charted(tmp_path)
    assert run.series.coupling
    assert len(coupling.heatmaps(run.series.coupling).data) == 2


def test_coupling_names_the_variables_of_a_station(tmp_path: Path) -> None:
    made_up.write(tmp_path, "ushcn", "ace", 0.4, made_up.coupling(side=5, names=made_up.STATION))
    (run,) = charted(tmp_path)
    assert run.series.coupling
    known, _ = coupling.heatmaps(run.series.coupling).data
    assert known.y[3] == "TMAX · highest temperature"
    assert known.x[3] == "TMAX"
