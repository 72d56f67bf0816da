"""Several sessions, and moving between pages: no session undoes another's changes, and no choice is lost."""

from __future__ import annotations

from collections.abc import Callable

from acenode_app.labels import label
from acenode_app.services import Services
from conftest import RunFolder, config
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash
from test_pages import field, no_exception, page_text

from acenode import experiments
from acenode.bench.synthetic import finished_runs
from acenode.execution.execute import create
from acenode.runs.notes import write_notes

Page = Callable[..., AppTest]


def go(app: AppTest, name: str, **query: str) -> AppTest:
    """Open another page in the same session."""
    app.query_params.clear()
    for key, value in query.items():
        app.query_params[key] = value
    app._page_hash = calc_hash(name)
    return no_exception(app.run())


def test_sessions_share_notes(page: Page, run_folder: RunFolder, services: Services) -> None:
    run = run_folder.finished()[0]
    first, second = page("runs", runs=run.id), page("runs", runs=run.id)
    second.text_area(key=f"notes/{run.id}/0").set_value("seen by both").run()
    no_exception(first.run())  # as when any run changes its state
    entry = services.catalogue.entry(run.id)
    assert entry is not None
    assert entry.notes == "seen by both"
    assert first.text_area(key=f"notes/{run.id}/1").value == "seen by both"


def test_an_edit_of_notes_keeps_the_tags_of_another_session(page: Page, run_folder: RunFolder,
                                                            services: Services) -> None:
    run = run_folder.finished()[0]
    first, second = page("runs", runs=run.id), page("runs", runs=run.id)
    second.multiselect(key=f"tags/{run.id}/0").set_value(["good"]).run()
    first.text_area(key=f"notes/{run.id}/0").set_value("seen").run()
    entry = services.catalogue.entry(run.id)
    assert entry is not None
    assert (entry.notes, entry.tags) == ("seen", ("good",))
    assert no_exception(first).multiselect(key=f"tags/{run.id}/1").value == ["good"]


def test_tags_are_stripped(page: Page, run_folder: RunFolder, services: Services) -> None:
    run = run_folder.finished()[0]
    app = page("runs", runs=run.id)
    app.multiselect(key=f"tags/{run.id}/0").set_value([" good "]).run()
    no_exception(app)
    entry = services.catalogue.entry(run.id)
    assert entry is not None
    assert entry.tags == ("good",)


def test_sessions_share_the_number_of_workers(page: Page, run_folder: RunFolder, services: Services) -> None:
    run_folder.finished()
    first, second = page("runs"), page("runs")
    second.number_input(key="workers/cpu").set_value(3).run()
    no_exception(first.run())
    assert services.launcher.limits["cpu"] == 3
    assert first.number_input(key="workers/cpu").value == 3


def test_repeating_a_run_of_another_method_fills_the_form(page: Page, run_folder: RunFolder) -> None:
    run = create(run_folder.services.store, config("odenet", learning_rate=0.012345678))
    run.set_state("stopped")
    app = page("mnist")
    assert app.session_state["method"] == "ace"
    app = go(app, "mnist", **{"from": run.id})
    assert app.session_state["method"] == "odenet"
    assert field(app, "text_input", "learning_rate").value == "0.012345678"  # type: ignore[attr-defined]


def test_each_experiment_shows_its_own_runs(page: Page, run_folder: RunFolder) -> None:
    run_folder.finished()
    other = create(run_folder.services.store, experiments.get("cifar10").configure("odenet"))
    other.set_state("stopped")
    app = go(page("mnist"), "cifar10")
    assert app.multiselect(key="shown/cifar10").value == [other.id]
    assert "Deleted or unknown" not in page_text(app)


def test_filter_without_matches_stays(page: Page, run_folder: RunFolder) -> None:
    run_folder.finished()
    app = no_exception(page("runs", states="running"))
    assert app.multiselect(key="states").value == ["running"]
    assert "0 of 3 runs" in page_text(app)


def test_baseline_stays_when_more_runs_are_chosen(page: Page, run_folder: RunFolder) -> None:
    runs = run_folder.finished()
    app = no_exception(page("compare", runs=",".join(r.id for r in runs)))
    ace = next(o for o in app.selectbox(key="base").options if o.startswith("ACE"))
    app.selectbox(key="base").select(ace).run()
    extra = create(run_folder.services.store, config(attention="fixed"))
    extra.set_state("stopped")
    assert no_exception(app.run()).selectbox(key="base").value == ace


def test_compare_five_hundred_runs(page: Page, services: Services) -> None:
    finished_runs(services.store.root, 500)
    app = no_exception(page("compare", runs=",".join(e.id for e in services.catalogue.entries())))
    assert app.dataframe[1].value["Runs"].astype(int).sum() >= 1
    assert "The first 12 of 500" in page_text(app)


def test_metric_name_is_never_interpreted_as_markup(page: Page, run_folder: RunFolder) -> None:
    run = run_folder.finished()[0]
    status = (run.path / "status.json").read_text().replace('"accuracy"', '"![x](http://nowhere/x.png)"')
    (run.path / "status.json").write_text(status)
    app = no_exception(page("mnist", runs=run.id))
    assert not [m for m in app.metric if "![x](" in m.label]


def test_notes_are_shown_again_after_visiting_another_page(page: Page, run_folder: RunFolder) -> None:
    first, second = run_folder.finished()[:2]
    app = page("runs", runs=first.id)
    app.text_area(key=f"notes/{first.id}/0").set_value("keep me").run()
    app = go(app, "compare")
    app = go(app, "runs", runs=first.id)
    assert app.text_area(key=f"notes/{first.id}/0").value == "keep me"
    assert second.path.exists()


def test_training_settings_survive_a_change_of_method(page: Page) -> None:
    app = page("mnist")
    field(app, "number_input", "epochs").set_value(2).run()  # type: ignore[attr-defined]
    app.session_state["method"] = "augmented"
    no_exception(app.run())
    assert field(app, "number_input", "epochs").value == 2  # type: ignore[attr-defined]
    assert not [w for w in app.text_input if "/penalty_weight/" in (w.key or "")]


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
