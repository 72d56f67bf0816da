"""Every page: empty, with finished runs, with a running run, with a failed one; and what it says under trouble."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from acenode_app.lab import Lab
from conftest import Shelf
from streamlit.testing.v1 import AppTest

from acenode.experiments import EXPERIMENTS

Page = Callable[..., AppTest]
PAGES = ["", *EXPERIMENTS, "compare", "runs"]


def sound(app: AppTest) -> AppTest:
    """No traceback in the page."""
    assert not app.exception, [e.value for e in app.exception]
    return app


def said(app: AppTest) -> str:
    """All words of the page."""
    parts = [*app.markdown, *app.caption, *app.info, *app.error, *app.warning, *app.title, *app.subheader]
    return "\n".join(str(part.value) for part in parts)


@pytest.mark.parametrize("name", PAGES)
def test_an_empty_page_says_what_to_do(name: str, page: Page) -> None:
    app = sound(page(name))
    assert app.title[0].value
    assert "rain" in app.info[0].value  # Train, or how to


@pytest.mark.parametrize("name", PAGES)
def test_with_finished_runs(name: str, page: Page, shelf: Shelf) -> None:
    shelf.finished()
    app = sound(page(name))
    if name in ("", "compare", "runs"):
        assert len(app.dataframe) >= 1
        assert "ACE-ODE-Net" in app.dataframe[0].value.to_csv()
    if name == "mnist":
        assert any(m.label == "test accuracy" for m in app.metric)


@pytest.mark.parametrize("name", PAGES)
def test_with_a_running_run(name: str, page: Page, shelf: Shelf) -> None:
    run = shelf.running()
    app = sound(page(name))
    if name == "mnist":
        assert app.multiselect(key="shown/mnist").value == [run.id]
        assert app.button(key=f"Stop/{run.id}")


@pytest.mark.parametrize("name", PAGES)
def test_with_a_failed_run(name: str, page: Page, shelf: Shelf) -> None:
    run = shelf.failed()
    app = sound(page(name, runs=run.id))
    if name in ("mnist", "runs"):
        assert "loosen rtol and atol" in said(app)
    if name == "mnist":
        assert app.button(key=f"Resume/{run.id}")


@pytest.mark.parametrize("name", PAGES)
def test_torn_and_foreign_folders_break_nothing(name: str, page: Page, shelf: Shelf) -> None:
    shelf.finished()
    shelf.foreign("not-a-run", readme_txt="hello")
    shelf.foreign("torn", config_json='{"format": 1, "config": {"experi', status_json="{")
    shelf.foreign("newer", config_json='{"format": 99, "config": {}}')
    shelf.foreign("![x](http://nowhere) <img src=x onerror=alert(1)>")
    app = sound(page(name))
    if name == "runs":
        assert app.dataframe[0].value.to_csv().count("unreadable") == 4


def test_train_starts_a_run_and_shows_it(page: Page, lab: Lab) -> None:
    app = page("mnist")
    app.button(key="train").click().run()
    sound(app)
    assert [e.state in ("queued", "running") for e in lab.catalogue.entries()] == [True]
    (entry,) = lab.catalogue.entries()
    assert (entry.method, entry.data, entry.seed) == ("ace", "sample", 0)
    assert app.multiselect(key="shown/mnist/1").value == [entry.id]
    assert app.query_params["runs"] == entry.id
    app.button(key=f"Stop/{entry.id}").click().run()
    sound(app)
    assert lab.launcher.wait(60)
    assert lab.catalogue.entries()[0].state == "stopped"


def test_the_demo_button_trains_ace(page: Page, lab: Lab) -> None:
    app = page("")
    app.button(key="demo").click().run()
    sound(app)
    (entry,) = lab.catalogue.entries()
    assert (entry.experiment, entry.method) == ("mnist", "ace")
    lab.launcher.stop(entry.run)
    assert lab.launcher.wait(60)


def field(app: AppTest, kind: str, name: str) -> object:
    """A field of the form by the setting's name."""
    return next(w for w in getattr(app, kind) if w.key and f"/{name}/" in w.key)


def test_the_form_shows_what_has_a_meaning(page: Page) -> None:
    app = page("mnist", method="ResNet")
    labels = {w.label for kind in ("text_input", "number_input", "selectbox") for w in getattr(app, kind)}
    assert "learning rate" in labels
    assert not labels & {"solver", "rtol", "penalty weight"}
    app = page("mnist", method="ODE-Net")
    solver = field(app, "selectbox", "solver")
    solver.select("rk4").run()  # type: ignore[attr-defined]
    labels = {w.label for w in app.text_input}
    assert "step size" in labels
    assert "rtol" not in labels


@pytest.mark.parametrize(("kind", "name", "value", "words"), [
    ("text_input", "learning_rate", "20", "at most 10"),
    ("text_input", "rtol", "abc", "must be a number"),
    ("number_input", "batch_size", 0, "at least 1"),
])
def test_values_out_of_bounds_are_refused_with_the_reason(kind: str, name: str, value: object, words: str, page: Page,
                                                          lab: Lab) -> None:
    app = page("mnist")
    field(app, kind, name).set_value(value).run()  # type: ignore[attr-defined]
    assert words in app.error[0].value
    assert app.button(key="train").disabled


@pytest.mark.parametrize("text", ["", "a", "1.5", "-1", "5-1", "0-99", "3000000000"])
def test_wrong_seeds_are_refused(text: str, page: Page) -> None:
    app = page("mnist")
    app.text_input(key="seeds/").set_value(text).run()
    assert app.error
    assert app.button(key="train").disabled


def test_several_seeds_are_several_runs(page: Page, lab: Lab) -> None:
    app = page("mnist", method="ODE-Net")
    app.text_input(key="seeds/").set_value("0-1, 7").run()
    app.button(key="train").click().run()
    sound(app)
    assert sorted(e.seed for e in lab.catalogue.entries()) == [0, 1, 7]
    for entry in lab.catalogue.entries():
        lab.launcher.stop(entry.run)
    assert lab.launcher.wait(60)


def test_the_ablation_set_says_how_many(page: Page, lab: Lab) -> None:
    app = page("mnist")
    app.multiselect(key="grid/methods").set_value(["odenet", "ace"]).run()
    app.multiselect(key="grid/attention").set_value(["evolving", "fixed", "none"]).run()
    app.text_input(key="grid/seeds").set_value("0, 1").run()
    sound(app)
    assert "**8 runs**" in said(app)  # ODE-Net has no attention to vary: 1 + 3, twice
    assert app.button(key="grid/queue").disabled  # not before it is said how long
    app.button(key="grid/how_long").click().run()
    sound(app)
    assert "one after the other" in said(app)
    app.button(key="grid/queue").click().run()
    sound(app)
    assert len(lab.catalogue.entries()) == 8
    for entry in lab.catalogue.entries():
        lab.launcher.stop(entry.run)
    assert lab.launcher.wait(60)


def test_full_data_that_is_not_there_offers_its_download(page: Page) -> None:
    app = sound(page("mnist", data="full"))
    assert "not on this machine" in said(app)
    assert app.button(key="download")
    assert app.button(key="train").disabled


def test_a_run_is_repeated_with_changes(page: Page, shelf: Shelf) -> None:
    run = shelf.waiting(learning_rate=0.07, seed=5)
    run.set_state("stopped")
    app = sound(page("mnist", **{"from": run.id}))
    assert field(app, "text_input", "learning_rate").value == "0.07"  # type: ignore[attr-defined]
    assert app.text_input(key=f"seeds/{run.id}").value == "5"


def test_a_deleted_run_in_the_url_is_no_trouble(page: Page, shelf: Shelf) -> None:
    shelf.finished()
    for name in ("mnist", "compare", "runs"):
        sound(page(name, runs="mnist-ace-gone,../../etc,<b>"))
        sound(page(name, runs=",".join([run.id for run in shelf.lab.store] * 6)))  # too many, and twice


def test_compare_knows_mean_spread_and_baseline(page: Page, shelf: Shelf) -> None:
    shelf.finished()
    app = sound(page("compare"))
    table = app.dataframe[1].value
    assert list(table["n"]) == [2, 1] or list(table["n"]) == [1, 2]
    assert any("baseline" in g and g.startswith("ODE-Net") for g in table["group"])
    assert any("±" in v for v in table["test accuracy"])
    assert "paper" not in table  # a sample's number never stands beside the paper's


def test_delete_is_asked_twice(page: Page, shelf: Shelf, lab: Lab) -> None:
    runs = shelf.finished()
    app = page("runs", runs=runs[0].id)
    app.button(key="runs/delete").click().run()
    sound(app)
    assert runs[0].path.exists()
    app.button(key="delete/yes").click().run()
    sound(app)
    assert not runs[0].path.exists()
    assert len(lab.catalogue.entries()) == 2


def test_notes_and_tags_are_kept_and_harmless(page: Page, shelf: Shelf, lab: Lab) -> None:
    run = shelf.finished()[0]
    evil = "<script>alert(1)</script> **x** ![i](http://nowhere)"
    app = page("runs", runs=run.id)
    app.text_area(key=f"notes/{run.id}").set_value(evil).run()
    sound(app)
    entry = lab.catalogue.entry(run.id)
    assert entry is not None
    assert entry.notes == evil
    assert evil not in said(app)  # in the table and the box alone, which interpret nothing
