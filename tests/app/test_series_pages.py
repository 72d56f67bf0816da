"""Pages with runs of time series: tabs and units, also of experiments that are not in the registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import synthetic_results as made_up
from acenode_app.services import Services
from conftest import RunFolder
from streamlit.testing.v1 import AppTest
from test_pages import no_exception, open_tab, page_text

from acenode import experiments
from acenode.runs.catalogue import Catalogue
from acenode.runs.store import RunStore
from acenode.training.task import Metric

Page = Callable[..., AppTest]
IMAGES = ["Confusion matrices", "t-SNE", "Silhouettes"]


def tabs(app: AppTest, page: str = "compare") -> list[str]:
    """Open every tab with charts, and return their titles."""
    titles = [tab.label for tab in app.tabs]
    for title in titles:
        open_tab(app, title, page)
    return titles


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
    assert tabs(no_exception(page("mnist")), "watch") == IMAGES


def test_records_can_be_chosen_and_unknown_ones_are_replaced(page: Page, services: Services) -> None:
    made_up.write(services.store.root, "physionet-vitals", "ace", 0.002, made_up.vitals())
    app = no_exception(page("compare"))
    assert app.selectbox(key="record").value == "130000"
    app.selectbox(key="record").select("130001").run()
    no_exception(app)
    app = no_exception(page("compare", record="patient 130001"))  # as the URL has it
    assert app.selectbox(key="record").value == "130001"
    app = no_exception(page("compare", record="999"))
    assert app.selectbox(key="record").value == "130000"
    assert "None of these runs kept patient 999, so another one is shown." in page_text(app)
    assert "Filled points were observed" in page_text(app)  # above the chart


def test_a_record_of_the_runs_shown_before_is_replaced(page: Page, services: Services) -> None:
    root = services.store.root
    first = made_up.write(root, "ushcn", "ace", 0.4, made_up.climate(stations=2))
    other = made_up.climate(stations=1)
    other["records"][0]["id"] = "station007"
    second = made_up.write(root, "ushcn", "ace", 0.4, other, seed=1)
    app = no_exception(page("ushcn", runs=first.id))
    open_tab(app, "Records", "watch")
    app.selectbox(key="record").select("USC00010001").run()
    next(m for m in app.multiselect if m.label == "Runs shown").set_value([second.id]).run()
    no_exception(app)
    assert app.selectbox(key="record").options == ["station007"]
    assert app.selectbox(key="record").value == "station007"
    assert "Filled points were observed" in page_text(app)


def test_lower_is_better_in_the_table(page: Page, services: Services) -> None:
    for n, value in enumerate((0.0023, 0.0020, 0.0025)):
        made_up.write(services.store.root, "physionet-vitals", ("latent-ode", "ace", "rnn-vae")[n], value, {})
    app = no_exception(page("compare", base="Latent-ODE (ODE enc.) epochs=2"))
    table = app.dataframe[1].value.set_index("Group")
    assert table.loc["ACE-Latent-ODE epochs=2", "Test MSE (lower is better)"] == "2.000 ×10⁻³"
    assert table.loc["ACE-Latent-ODE epochs=2", "Difference (95% interval)"] == "−0.300"
    assert table.loc["RNN-VAE epochs=2", "Difference (95% interval)"] == "+0.200"
    assert set(table["Effect"]) == {"baseline", "cannot be told"}  # one seed


def test_different_metrics_are_not_compared(page: Page, services: Services) -> None:
    made_up.write(services.store.root, "physionet", "ace", 0.85, made_up.mortality())
    made_up.write(services.store.root, "physionet-vitals", "ace", 0.002, made_up.vitals())
    app = no_exception(page("compare", runs=",".join(r.id for r in services.store)))
    table = app.dataframe[1].value
    assert set(table["Test"]) == {"0.850", "2.000 ×10⁻³"}
    assert set(table["Effect"]) == {"baseline", "not comparable"}


def test_page_of_an_experiment_with_its_own_metric(page: Page, services: Services,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    fake = replace(experiments.get("mnist"), name="physionet", title="PhysioNet", metric=Metric("auc"))
    monkeypatch.setitem(experiments.EXPERIMENTS, "physionet", fake)
    made_up.write(services.store.root, "physionet", "ace", 0.8531, made_up.mortality())
    app = no_exception(page("physionet"))
    assert next(m.value for m in app.metric if m.label == "Test AUC") == "0.853"
    assert tabs(app, "watch") == ["ROC", "Calibration"]


@pytest.mark.parametrize("wrong", [None, 7, "x", [], {}, [None], {"fpr": [0, 1]}, [{"id": "a", "variables": [{}]}]])
def test_malformed_results_break_no_page(wrong: Any, page: Page, services: Services) -> None:
    keys = ("roc", "calibration", "over_time", "records", "bands", "coupling", "errors", "classes", "confusion")
    made_up.write(services.store.root, "physionet", "ace", 0.85, dict.fromkeys(keys, wrong))
    assert tabs(no_exception(page("compare"))) == IMAGES  # they say why they are empty


def test_partial_data_is_read_from_the_description(tmp_path: Path) -> None:
    made_up.write(tmp_path, "activity", "ace", 0.8, {}, data="full", partial=True)
    made_up.write(tmp_path, "activity", "ace", 0.8, {}, data="full", seed=1)
    assert [e.partial for e in Catalogue(RunStore(tmp_path)).entries()] == [False, True]


def test_compare_page_with_stations(page: Page, services: Services) -> None:
    for n, method in enumerate(("gru-ode-bayes", "ace")):
        found = made_up.climate(n, stations=2) | made_up.coupling(n, 5, made_up.STATION)
        found |= {"errors": made_up.STATION_RESULT["errors"]} if method == "ace" else {}
        made_up.write(services.store.root, "ushcn", method, 0.4, found, seed=n)
    app = no_exception(page("compare"))
    assert tabs(app) == ["Records", "Error over time", "Coupling", "Errors by variable"]
    errors = next(d.value for d in app.dataframe if "Winsorised MSE" in d.value.columns)
    assert errors["MSE"].tolist() == [0.5, 12.5, 3.5]
    assert errors["Share of error (%)"].tolist() == [10.7, 89.3, 100.0]
    assert "95% interval of the MSE, drawing series: 0.500 to 6.500" in page_text(app)
    open_tab(app, "Records")
    assert app.selectbox(key="record").options == ["USC00010000", "USC00010001"]
    assert "Values are standardised" in page_text(app)
    assert "with a band of two standard deviations" in page_text(app)
