"""The lists of runs: their search field, and tables of many runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from acenode_app import filters, run_tables
from acenode_app.runs import page as runs
from catalogue_entries import entry
from conftest import RunFolder
from streamlit.testing.v1 import AppTest
from test_pages import no_exception, page_text

from acenode.bench.synthetic import finished_runs
from acenode.runs.catalogue import Catalogue
from acenode.runs.store import RunStore

Page = Callable[..., AppTest]


def test_search_matches_settings_and_experiments() -> None:
    one = entry(schedule="joint")
    assert filters.matches(one, "")
    assert filters.matches(one, "schedule=joint MNIST")
    assert not filters.matches(one, "schedule=joint svhn")


def test_search_matches_the_names_that_pages_show() -> None:
    assert filters.matches(entry("odenet", experiment="cifar10"), "ode-net")
    assert filters.matches(entry("latent-ode", experiment="physionet"), "PhysioNet mortality enc.")


def test_filters_offer_names_instead_of_ids(page: Page, run_folder: RunFolder) -> None:
    run_folder.finished()
    app = no_exception(page("runs"))
    assert app.multiselect(key="experiment").options[:4] == ["MNIST", "SVHN", "CIFAR10", "USHCN climate"]
    assert app.multiselect(key="methods").options == ["ACE-ODE-Net", "ODE-Net"]
    app.multiselect(key="methods").set_value(["ODE-Net"]).run()
    assert "1 of 3 runs" in page_text(no_exception(app))
    app.multiselect(key="experiment").set_value(["SVHN"]).run()
    assert "0 of 3 runs" in page_text(no_exception(app))
    assert app.info[-1].value == "No run matches. Remove a filter above, or search for fewer words."
    assert not app.dataframe  # nor an empty table to select from
    assert "Select runs with the checkboxes" not in page_text(app)


@pytest.mark.parametrize("name", ["runs", "compare"])
def test_links_may_have_ids(name: str, page: Page, run_folder: RunFolder) -> None:
    run_folder.finished()
    app = no_exception(page(name, methods="odenet", experiment="mnist"))
    assert app.multiselect(key="methods").value == ["ODE-Net"]
    assert app.multiselect(key="experiment").value == ["MNIST"]
    assert len(app.dataframe[0].value) == 1


def test_a_table_of_many_runs_stores_shared_texts_once(tmp_path: Path) -> None:
    finished_runs(tmp_path, run_tables.MANY)
    entries = Catalogue(RunStore(tmp_path)).entries()[:run_tables.MANY]
    made = run_tables.run_table(entries, runs.COLUMNS)
    assert made["Settings"].dtype == "category"
    assert made["Id"].dtype != "category"
    few = run_tables.run_table(entries[:20], runs.COLUMNS)
    assert made[:20].astype(few.dtypes).equals(few)


def test_percentages_are_percentages_in_every_table() -> None:
    one = replace(entry(), value=0.9805, best=0.97, metric="accuracy")
    table = run_tables.run_table([one], ["Metric and unit", "Test", "Validation", "Test result", "Best validation"])
    assert table.iloc[0].tolist() == ["accuracy (%)", 98.05, 97.0, "98.05%", "97.00%"]


@pytest.mark.parametrize("name", ["runs", "compare"])
def test_what_tells_runs_apart_comes_first_and_is_not_cut(name: str, page: Page, run_folder: RunFolder) -> None:
    run_folder.finished()
    table = no_exception(page(name)).dataframe[0]
    shown = [column for column in table.value.columns if column not in ("Open", "State")]
    assert shown[:4] == ["Method", "Seed", "Created", "Experiment"]
    assert set(table.value["Experiment"]) == {"MNIST"}
    assert set(table.value["Method"]) == {"ACE-ODE-Net", "ODE-Net"}
    config = json.loads(table.proto.columns)
    for column in ("Method", "Settings", "Id"):
        assert config[column]["width"] >= 7 * table.value[column].str.len().max()


def test_state_and_link_of_a_run_are_seen_on_a_narrow_page(page: Page, run_folder: RunFolder) -> None:
    """At 390 pixels the table has 358, of which 38 are for the checkboxes."""
    run_folder.finished()
    table = no_exception(page("runs")).dataframe[0]
    assert list(table.value.columns[:3]) == ["Open", "State", "Method"]
    config = json.loads(table.proto.columns)
    assert sum(config[column]["width"] for column in ("Open", "State", "Method")) <= 358 - 38


def test_widths_follow_the_longest_row_of_many() -> None:
    many = [*(entry("odenet", seed=n) for n in range(40)), replace(entry("ace"), search="a-search-with-a-long-name")]
    assert "trial of a-search-with-a-long-name" in run_tables.run_table(many, ["Settings"])["Settings"].iloc[-1]
    config = run_tables.column_config(run_tables.run_table(many, ["Settings"]))
    assert config["Settings"]["width"] >= 7 * len("trial of a-search-with-a-long-name")
