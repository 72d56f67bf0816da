"""The lists of runs: their search field, and tables of many runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from acenode_app import filters, run_tables, runs
from catalogue_entries import entry

from acenode.bench.synthetic_runs import finished_runs
from acenode.runs.catalogue import Catalogue
from acenode.runs.store import RunStore


def test_search_matches_settings_and_experiments() -> None:
    one = entry(schedule="joint")
    assert filters.matches(one, "")
    assert filters.matches(one, "schedule=joint MNIST")
    assert not filters.matches(one, "schedule=joint svhn")


def test_a_table_of_many_runs_stores_shared_texts_once(tmp_path: Path) -> None:
    finished_runs(tmp_path, run_tables.MANY)
    entries = Catalogue(RunStore(tmp_path)).entries()[:run_tables.MANY]
    made = run_tables.run_table(entries, runs.COLUMNS)
    assert made["Run"].dtype == "category"
    assert made["Id"].dtype != "category"
    few = run_tables.run_table(entries[:20], runs.COLUMNS)
    assert made[:20].astype(few.dtypes).equals(few)


def test_percentages_are_percentages_in_every_table() -> None:
    one = replace(entry(), value=0.9805, best=0.97, metric="accuracy")
    table = run_tables.run_table([one], ["Metric and unit", "Test", "Validation", "Test result", "Best validation"])
    assert table.iloc[0].tolist() == ["accuracy (%)", 98.05, 97.0, "98.05%", "97.00%"]
