"""The list of runs: filters, tables of many runs, notes, tags, and several sessions at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from acenode_app import run_tables, runs
from acenode_app.labels import label
from acenode_app.services import Services
from catalogue_entries import entry
from conftest import Page, RunFolder, config, field, no_exception, page_text

from acenode.bench.synthetic import finished_runs
from acenode.execution.execute import create
from acenode.runs.catalogue import Catalogue
from acenode.runs.entry import write_notes
from acenode.runs.store import RunStore


def test_search_matches_settings_and_experiments() -> None:
    one = entry(schedule="joint")
    assert run_tables.matches(one, "")
    assert run_tables.matches(one, "schedule=joint MNIST")
    assert not run_tables.matches(one, "schedule=joint svhn")


def test_filters_offer_names_instead_of_ids(page: Page, run_folder: RunFolder) -> None:
    run_folder.finished()
    app = page("runs")
    assert app.multiselect(key="experiment").options[:4] == ["MNIST", "SVHN", "CIFAR10", "USHCN climate"]
    assert app.multiselect(key="methods").options == ["ACE-ODE-Net", "ODE-Net"]
    app.multiselect(key="methods").set_value(["ODE-Net"]).run()
    assert "1 of 3 runs" in page_text(no_exception(app))
    app.multiselect(key="experiment").set_value(["SVHN"]).run()
    assert "0 of 3 runs" in page_text(no_exception(app))
    assert app.info[-1].value == "No run matches. Remove a filter above, or search for fewer words."
    assert not app.dataframe  # nor an empty table to select from
    assert "Select runs with the checkboxes" not in page_text(app)


def test_a_table_of_many_runs_stores_shared_texts_once(tmp_path: Path) -> None:
    finished_runs(tmp_path, run_tables.MANY)
    entries = Catalogue(RunStore(tmp_path)).entries()[:run_tables.MANY]
    made = run_tables.run_table(entries, runs.COLUMNS)
    assert made["Settings"].dtype == "category"
    few = run_tables.run_table(entries[:20], runs.COLUMNS)
    assert made[:20].astype(few.dtypes).equals(few)


@pytest.mark.parametrize("name", ["runs", "compare"])
def test_what_tells_runs_apart_comes_first_and_is_not_cut_and_links_may_have_ids(name: str, page: Page,
                                                                                 run_folder: RunFolder) -> None:
    run_folder.finished()
    table = page(name).dataframe[0]
    shown = [column for column in table.value.columns if column not in ("Open", "State")]
    assert shown[:4] == ["Method", "Seed", "Created", "Experiment"]
    assert set(table.value["Experiment"]) == {"MNIST"}
    assert set(table.value["Method"]) == {"ACE-ODE-Net", "ODE-Net"}
    config = json.loads(table.proto.columns)
    for column in ("Method", "Settings", "Id"):
        assert config[column]["width"] >= 7 * table.value[column].str.len().max()
    app = page(name, methods="odenet", experiment="mnist")
    assert app.multiselect(key="methods").value == ["ODE-Net"]
    assert app.multiselect(key="experiment").value == ["MNIST"]
    assert len(app.dataframe[0].value) == 1


def test_sessions_share_workers_and_notes_which_are_never_interpreted_and_keep_each_others_tags(
        page: Page, run_folder: RunFolder, services: Services) -> None:
    evil = "<script>alert(1)</script> **x** ![i](http://nowhere)"
    run = run_folder.finished()[0]
    first, second = page("runs", runs=run.id), page("runs", runs=run.id)
    second.multiselect(key=f"tags/{run.id}/0").set_value(["good"]).run()
    first.text_area(key=f"notes/{run.id}/0").set_value(evil).run()
    entry = services.catalogue.entry(run.id)
    assert entry is not None
    assert (entry.notes, entry.tags) == (evil, ("good",))
    assert no_exception(first).multiselect(key=f"tags/{run.id}/1").value == ["good"]
    assert no_exception(second.run()).text_area(key=f"notes/{run.id}/1").value == evil  # as when a run changes state
    assert evil not in page_text(first)  # only in the table and the text area, which interpret no markup
    second.number_input(key="workers/cpu").set_value(3).run()
    no_exception(first.run())
    assert services.launcher.limits["cpu"] == 3
    assert first.number_input(key="workers/cpu").value == 3


def test_repeating_a_run_fills_the_form(page: Page, run_folder: RunFolder) -> None:
    run = create(run_folder.services.store, config("odenet", learning_rate=0.012345678, seed=5))
    run.set_state("stopped")
    app = page("mnist")
    assert app.session_state["method"] == "ace"
    app.query_params.clear()
    app.query_params["from"] = run.id  # in the same session
    no_exception(app.run())
    assert app.session_state["method"] == "odenet"
    assert field(app, "text_input", "learning_rate").value == "0.012345678"
    assert app.text_input(key=f"seeds/{run.id}").value == "5"


def test_metric_name_is_never_interpreted_as_markup(page: Page, run_folder: RunFolder) -> None:
    run = run_folder.finished()[0]
    status = (run.path / "status.json").read_text().replace('"accuracy"', '"![x](http://nowhere/x.png)"')
    (run.path / "status.json").write_text(status)
    app = page("mnist", runs=run.id)
    assert not [m for m in app.metric if "![x](" in m.label]


def test_widgets_are_sent_with_their_content_each_time(page: Page, run_folder: RunFolder, services: Services) -> None:
    """A browser that missed a message, since the page was rerun meanwhile, must not take a widget for empty."""
    run = run_folder.finished()[0]
    write_notes(run, "keep me", ["good"])
    entry = services.catalogue.entry(run.id)
    assert entry is not None
    shown, details = page("mnist", runs=run.id), page("runs", runs=run.id)
    for _ in range(2):
        selection = shown.multiselect(key="shown/mnist").proto
        assert [selection.options[i] for i in selection.default] == [label(entry)]
        assert details.text_area(key=f"notes/{run.id}/0").proto.default == "keep me"
        tags = details.multiselect(key=f"tags/{run.id}/0").proto
        assert [tags.options[i] for i in tags.default] == ["good"]
        shown, details = no_exception(shown.run()), no_exception(details.run())


def test_delete_asks_for_confirmation(page: Page, run_folder: RunFolder, services: Services) -> None:
    run = run_folder.finished()[0]
    app = no_exception(page("runs", runs=run.id).button(key="runs/delete").click().run())
    assert run.path.exists()
    no_exception(app.button(key="delete/yes").click().run())
    assert not run.path.exists()
    assert len(services.catalogue.entries()) == 2
