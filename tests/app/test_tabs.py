"""Several tabs, and going from page to page: nobody undoes what another did, nothing chosen is lost."""

from __future__ import annotations

from collections.abc import Callable

from acenode_app.lab import Lab
from conftest import Shelf, config
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash
from test_pages import field, said, sound

from acenode import experiments
from acenode.bench.folders import finished_runs
from acenode.execution.execute import create

Page = Callable[..., AppTest]


def go(app: AppTest, name: str, **query: str) -> AppTest:
    """The same session on another page."""
    app.query_params.clear()
    for key, value in query.items():
        app.query_params[key] = value
    app._page_hash = calc_hash(name)
    return sound(app.run())


def test_a_second_tab_keeps_the_firsts_notes(page: Page, shelf: Shelf, lab: Lab) -> None:
    run = shelf.finished()[0]
    first, second = page("runs", runs=run.id), page("runs", runs=run.id)
    second.text_area(key=f"notes/{run.id}").set_value("seen by both").run()
    sound(first.run())  # a rerun of its own, as when any run changes its state
    entry = lab.catalogue.entry(run.id)
    assert entry is not None
    assert entry.notes == "seen by both"
    assert first.text_area(key=f"notes/{run.id}").value == "seen by both"


def test_a_tag_is_kept_without_its_blanks(page: Page, shelf: Shelf, lab: Lab) -> None:
    run = shelf.finished()[0]
    app = page("runs", runs=run.id)
    app.multiselect(key=f"tags/{run.id}").set_value([" good "]).run()
    sound(app)
    entry = lab.catalogue.entry(run.id)
    assert entry is not None
    assert entry.tags == ("good",)


def test_a_second_tab_keeps_the_number_of_workers(page: Page, shelf: Shelf, lab: Lab) -> None:
    shelf.finished()
    first, second = page("runs"), page("runs")
    second.number_input(key="workers/cpu").set_value(3).run()
    sound(first.run())
    assert lab.launcher.limits["cpu"] == 3
    assert first.number_input(key="workers/cpu").value == 3


def test_repeating_a_run_of_another_method_fills_the_form_with_it(page: Page, shelf: Shelf) -> None:
    run = create(shelf.lab.store, config("odenet", learning_rate=0.012345678))
    run.set_state("stopped")
    app = page("mnist")
    assert app.session_state["method"] == "ace"
    app = go(app, "mnist", **{"from": run.id})
    assert app.session_state["method"] == "odenet"
    assert field(app, "text_input", "learning_rate").value == "0.012345678"  # type: ignore[attr-defined]


def test_another_experiments_page_shows_its_own_runs(page: Page, shelf: Shelf) -> None:
    shelf.finished()
    other = create(shelf.lab.store, experiments.get("cifar10").configure("odenet"))
    other.set_state("stopped")
    app = go(page("mnist"), "cifar10")
    assert app.multiselect(key="shown/cifar10").value == [other.id]
    assert "Not there any more" not in said(app)


def test_a_filter_that_fits_nothing_stays(page: Page, shelf: Shelf) -> None:
    shelf.finished()
    app = sound(page("runs", states="running"))
    assert app.multiselect(key="states").value == ["running"]
    assert "0 of 3 runs" in said(app)


def test_the_baseline_stays_when_more_runs_are_chosen(page: Page, shelf: Shelf) -> None:
    runs = shelf.finished()
    app = sound(page("compare", runs=",".join(r.id for r in runs)))
    ace = next(o for o in app.selectbox(key="base").options if o.startswith("ACE"))
    app.selectbox(key="base").select(ace).run()
    extra = create(shelf.lab.store, config(attention="fixed"))
    extra.set_state("stopped")
    assert sound(app.run()).selectbox(key="base").value == ace


def test_all_of_five_hundred_runs_compared(page: Page, lab: Lab) -> None:
    finished_runs(lab.store.root, 500)
    app = sound(page("compare", runs=",".join(e.id for e in lab.catalogue.entries())))
    assert app.dataframe[1].value["n"].sum() >= 1
    assert "The first 12 of 500" in said(app)


def test_what_a_file_calls_its_metric_is_no_markup(page: Page, shelf: Shelf) -> None:
    run = shelf.finished()[0]
    status = (run.path / "status.json").read_text().replace('"accuracy"', '"![x](http://nowhere/x.png)"')
    (run.path / "status.json").write_text(status)
    app = sound(page("mnist", runs=run.id))
    assert not [m for m in app.metric if "![x](" in m.label]


def test_notes_are_there_when_one_comes_back_to_a_run(page: Page, shelf: Shelf) -> None:
    first, second = shelf.finished()[:2]
    app = page("runs", runs=first.id)
    app.text_area(key=f"notes/{first.id}").set_value("keep me").run()
    app = go(app, "compare")
    app = go(app, "runs", runs=first.id)
    assert app.text_area(key=f"notes/{first.id}").value == "keep me"
    assert second.path.exists()


def test_training_settings_outlive_a_change_of_the_method(page: Page) -> None:
    app = page("mnist")
    field(app, "number_input", "epochs").set_value(2).run()  # type: ignore[attr-defined]
    app.session_state["method"] = "augmented"
    sound(app.run())
    assert field(app, "number_input", "epochs").value == 2  # type: ignore[attr-defined]
    assert not [w for w in app.text_input if "/penalty_weight/" in (w.key or "")]
