"""Every page: without runs, with finished, running and failed runs, and with damaged folders."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from acenode_app import estimates
from acenode_app.services import Services
from conftest import RunFolder
from streamlit.testing.v1 import AppTest

from acenode.experiments import EXPERIMENTS

Page = Callable[..., AppTest]
PAGES = ["", "paper", *EXPERIMENTS, "compare", "runs"]


def no_exception(app: AppTest) -> AppTest:
    """Check that the page raised nothing."""
    assert not app.exception, [e.value for e in app.exception]
    return app


def open_tab(app: AppTest, title: str, page: str = "compare") -> AppTest:
    """Open a tab with charts of results; only the open one is drawn."""
    app.session_state[f"{page}/tab"] = title
    return no_exception(app.run())


def page_text(app: AppTest) -> str:
    """Return all text of the page."""
    parts = [*app.markdown, *app.caption, *app.info, *app.error, *app.warning, *app.title, *app.header]
    return "\n".join(str(part.value) for part in parts)


@pytest.mark.parametrize("name", PAGES)
def test_empty_page_says_what_to_do(name: str, page: Page) -> None:
    app = no_exception(page(name))
    assert app.title[0].value
    assert "rain" in app.info[0].value  # Train, or how to


@pytest.mark.parametrize("name", PAGES)
def test_page_with_finished_runs(name: str, page: Page, run_folder: RunFolder) -> None:
    run_folder.finished()
    app = no_exception(page(name))
    if name in ("", "compare", "runs"):
        assert len(app.dataframe) >= 1
        assert "ACE-ODE-Net" in app.dataframe[0].value.to_csv()
    if name == "mnist":
        assert any(m.label == "Test accuracy" for m in app.metric)


@pytest.mark.parametrize("name", ["", "paper", "studies", "your-data", "playground", "compare", "runs"])
def test_no_page_skips_a_level_of_headings(name: str, page: Page, run_folder: RunFolder) -> None:
    run = run_folder.finished()[0]
    app = no_exception(page(name, **({"runs": run.id} if name == "runs" else {})))
    levels = [int(tag[1]) for tag in re.findall(r"\bh[1-6]\b", " ".join(
        heading.tag for heading in [*app.title, *app.header, *app.subheader]))]
    assert levels.count(1) == 1
    assert 3 not in levels or 2 in levels


@pytest.mark.parametrize("name", PAGES)
def test_page_with_running_run(name: str, page: Page, run_folder: RunFolder) -> None:
    run = run_folder.running()
    app = no_exception(page(name))
    if name == "mnist":
        assert app.multiselect(key="shown/mnist").value == [run.id]
        assert app.button(key=f"Stop/{run.id}")


@pytest.mark.parametrize("name", PAGES)
def test_page_with_failed_run(name: str, page: Page, run_folder: RunFolder) -> None:
    run = run_folder.failed()
    app = no_exception(page(name, runs=run.id))
    if name in ("mnist", "runs"):
        assert "loosen rtol and atol" in page_text(app)
    if name == "mnist":
        assert app.button(key=f"Resume/{run.id}")


@pytest.mark.parametrize("name", PAGES)
def test_damaged_and_foreign_folders_break_no_page(name: str, page: Page, run_folder: RunFolder) -> None:
    run_folder.finished()
    run_folder.foreign("not-a-run", readme_txt="hello")
    run_folder.foreign("torn", config_json='{"format": 1, "config": {"experi', status_json="{")
    run_folder.foreign("newer", config_json='{"format": 99, "config": {}}')
    run_folder.foreign("![x](http://nowhere) <img src=x onerror=alert(1)>")
    app = no_exception(page(name))
    if name == "runs":
        assert app.dataframe[0].value.to_csv().count("unreadable") == 4


def test_train_button_starts_and_shows_a_run(page: Page, services: Services) -> None:
    app = page("mnist")
    app.button(key="train").click().run()
    no_exception(app)
    assert [e.state in ("queued", "running") for e in services.catalogue.entries()] == [True]
    (entry,) = services.catalogue.entries()
    assert (entry.method, entry.data, entry.seed) == ("ace", "sample", 0)
    assert app.multiselect(key="shown/mnist/1").value == [entry.id]
    assert app.query_params["runs"] == entry.id
    app.button(key=f"Stop/{entry.id}").click().run()
    no_exception(app)
    assert services.launcher.wait(60)
    assert services.catalogue.entries()[0].state == "stopped"


def test_demo_button_trains_ace(page: Page, services: Services) -> None:
    app = page("")
    app.button(key="demo").click().run()
    no_exception(app)
    (entry,) = services.catalogue.entries()
    assert (entry.experiment, entry.method) == ("mnist", "ace")
    services.launcher.stop(entry.run)
    assert services.launcher.wait(60)


def field(app: AppTest, kind: str, name: str) -> object:
    """Return the widget of a setting."""
    return next(w for w in getattr(app, kind) if w.key and f"/{name}/" in w.key)


def test_form_shows_only_settings_that_apply(page: Page) -> None:
    app = page("mnist", method="ResNet")
    labels = {w.label for kind in ("text_input", "number_input", "selectbox") for w in getattr(app, kind)}
    assert "Learning rate" in labels
    assert not labels & {"Solver", "Relative tolerance (rtol)", "Weight of the penalty (λ)"}
    app = page("mnist", method="ODE-Net")
    solver = field(app, "selectbox", "solver")
    solver.select("rk4").run()  # type: ignore[attr-defined]
    labels = {w.label for w in app.text_input}
    assert "Step size" in labels
    assert "Relative tolerance (rtol)" not in labels


@pytest.mark.parametrize(("kind", "name", "value", "words"), [
    ("text_input", "learning_rate", "20", "at most 10"),
    ("text_input", "rtol", "abc", "must be a number"),
    ("number_input", "batch_size", 0, "at least 1"),
])
def test_values_out_of_bounds_are_rejected_with_a_reason(kind: str, name: str, value: object, words: str, page: Page,
                                                          services: Services) -> None:
    app = page("mnist")
    field(app, kind, name).set_value(value).run()  # type: ignore[attr-defined]
    assert words in app.error[0].value
    assert app.button(key="train").disabled


@pytest.mark.parametrize("text", ["", "a", "1.5", "-1", "5-1", "0-99", "3000000000"])
def test_invalid_seeds_are_rejected(text: str, page: Page) -> None:
    app = page("mnist")
    app.text_input(key="seeds/").set_value(text).run()
    assert app.error
    assert app.button(key="train").disabled


def test_each_seed_is_one_run(page: Page, services: Services) -> None:
    app = page("mnist", method="ODE-Net")
    app.text_input(key="seeds/").set_value("0-1, 7").run()
    app.button(key="train").click().run()
    no_exception(app)
    assert sorted(e.seed for e in services.catalogue.entries()) == [0, 1, 7]
    for entry in services.catalogue.entries():
        services.launcher.stop(entry.run)
    assert services.launcher.wait(60)


def test_ablation_set_shows_count_and_time_before_queueing(page: Page, services: Services) -> None:
    app = page("mnist")
    app.session_state["grid/box"] = True  # opened
    app.multiselect(key="grid/methods").set_value(["odenet", "ace"]).run()
    app.multiselect(key="grid/attention").set_value(["evolving", "fixed", "none"]).run()
    app.text_input(key="seeds/").set_value("0 1").run()  # the form's seeds hold for the set too
    no_exception(app)
    assert len([w for w in app.text_input if w.label == "Seeds"]) == 1
    assert "**8 runs**, " in page_text(app)  # ODE-Net has no attention setting: (1 + 3) × 2 seeds
    assert estimates.wait(300)
    no_exception(app.run())
    assert "**8 runs**, about 8 min here, one after the other" in page_text(app)
    app.button(key="grid/queue").click().run()
    no_exception(app)
    assert len(services.catalogue.entries()) == 8
    for entry in services.catalogue.entries():
        services.launcher.stop(entry.run)
    assert services.launcher.wait(60)


def test_missing_full_data_can_be_downloaded(page: Page) -> None:
    app = no_exception(page("mnist", data="full"))
    assert "not on this machine" in page_text(app)
    assert app.button(key="download")
    assert app.button(key="train").disabled


def test_repeating_a_run_fills_the_form(page: Page, run_folder: RunFolder) -> None:
    run = run_folder.queued(learning_rate=0.07, seed=5)
    run.set_state("stopped")
    app = no_exception(page("mnist", **{"from": run.id}))
    assert field(app, "text_input", "learning_rate").value == "0.07"  # type: ignore[attr-defined]
    assert app.text_input(key=f"seeds/{run.id}").value == "5"


def test_unknown_runs_in_the_url_are_ignored(page: Page, run_folder: RunFolder) -> None:
    run_folder.finished()
    for name in ("mnist", "compare", "runs"):
        no_exception(page(name, runs="mnist-ace-gone,../../etc,<b>"))
        ids = [run.id for run in run_folder.services.store] * 6  # too many, and repeated
        no_exception(page(name, runs=",".join(ids)))


def test_compare_shows_mean_spread_and_baseline(page: Page, run_folder: RunFolder) -> None:
    run_folder.finished()
    app = no_exception(page("compare"))
    table = app.dataframe[1].value
    assert sorted(table["Runs"]) == ["1", "2"]
    assert any("baseline" in g and g.startswith("ODE-Net") for g in table["Group"])
    assert any("±" in v for v in table["Test accuracy"])
    assert "Paper" not in table  # results on the sample are not shown beside the paper's


def test_delete_asks_for_confirmation(page: Page, run_folder: RunFolder, services: Services) -> None:
    runs = run_folder.finished()
    app = page("runs", runs=runs[0].id)
    app.button(key="runs/delete").click().run()
    no_exception(app)
    assert runs[0].path.exists()
    app.button(key="delete/yes").click().run()
    no_exception(app)
    assert not runs[0].path.exists()
    assert len(services.catalogue.entries()) == 2


def test_notes_are_saved_and_never_interpreted(page: Page, run_folder: RunFolder, services: Services) -> None:
    run = run_folder.finished()[0]
    evil = "<script>alert(1)</script> **x** ![i](http://nowhere)"
    app = page("runs", runs=run.id)
    app.text_area(key=f"notes/{run.id}/0").set_value(evil).run()
    no_exception(app)
    entry = services.catalogue.entry(run.id)
    assert entry is not None
    assert entry.notes == evil
    assert evil not in page_text(app)  # only in the table and the text area, which interpret no markup
