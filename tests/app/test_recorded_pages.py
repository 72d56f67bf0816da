"""Pages with the recorded runs that come with the project: shown and repeated, never changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from acenode_app import routes
from acenode_app.services import Services
from streamlit.testing.v1 import AppTest

from acenode.experiments import get
from acenode.runs.recorded import recorded_runs

Page = Callable[..., AppTest]


@pytest.fixture
def recorded_folder() -> Path | None:
    """Let the pages show the recorded runs."""
    return recorded_runs()


def text(app: AppTest) -> str:
    return "\n".join(str(part.value) for part in [*app.markdown, *app.caption, *app.info, *app.error])


def recorded(services: Services, experiment: str, method: str = "ace") -> str:
    return next(e.id for e in services.catalogue.entries() if e.experiment == experiment and e.method == method)


@pytest.mark.parametrize("name", ["mnist", "physionet", "ushcn"])
def test_an_experiment_shows_a_recorded_run_of_ace_first(name: str, page: Page, services: Services) -> None:
    app = page(name)
    assert not app.exception
    (shown,) = app.multiselect(key=f"shown/{name}").value
    entry = services.catalogue.entry(shown)
    assert entry is not None
    assert entry.recorded
    assert (entry.method, entry.config["attention"], bool(entry.run.snapshots())) == ("ace", "evolving", True)
    assert "NVIDIA H200, code 0\\.1\\.0" in text(app)
    assert app.button(key=f"Run again/{shown}")
    assert not [b for b in app.button if b.label in ("Stop", "Resume")]


@pytest.mark.parametrize(("name", "question", "links"), [
    ("ushcn", "Is ACE-GRU-ODE-Bayes better than GRU-ODE-Bayes on the full data?", "paper?cell=ushcn%2Face%2Fnegll"),
    ("oscillators", "Is ACE better than no attention?", "compare?runs=oscillators-ace-")])
def test_an_experiment_leads_with_what_the_runs_show(name: str, question: str, links: str, page: Page) -> None:
    app = page(name)
    assert not app.exception
    (answer,) = [part.proto.body for part in app.get("html") if 'class="ace-verdict"' in part.proto.body]
    assert question in answer
    assert f'<a href="{links}' in answer
    assert "95% interval" in answer


def test_a_run_that_did_not_get_better_says_so(page: Page, services: Services) -> None:
    note = "Validation was never better than after the first epoch"
    runs = {e.best_epoch: e.id for e in services.catalogue.entries() if e.experiment == "stocks" and e.method == "ace"}
    assert note in text(page("stocks", runs=runs[1]))
    assert note not in text(page("oscillators"))


def test_home_says_where_ace_is_ahead(page: Page) -> None:
    assert "Does attention help? **Here ACE is ahead of the method it extends in " in text(page("")).replace("\\", "")


def test_the_list_of_runs_offers_nothing_that_changes_a_recorded_run(page: Page, services: Services) -> None:
    run = recorded(services, "ushcn")
    app = page("runs", runs=run)
    assert not app.exception
    assert "No runs of your own yet" in app.info[0].value
    assert {"Compare", "Run again", "Repeat with changes"} <= {b.label for b in app.button}
    assert not [b for b in app.button if b.label in ("Stop", "Resume", "Delete")]
    assert not app.text_area
    assert "Recorded run" in text(app)
    assert "Data\\: rebuilt from the station files" in text(app)


def test_filters_leave_recorded_runs_out(page: Page, services: Services) -> None:
    count = len(services.catalogue.entries())
    assert f"{count} of {count} runs" in text(page("runs"))
    assert f"0 of {count} runs" in text(page("runs", states="finished"))
    assert f"{count} of {count} runs" in text(page("runs", states="recorded"))


def test_a_recorded_run_can_be_run_again(page: Page, services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    monkeypatch.setattr(services.launcher, "retry", lambda run: started.append(run) or run)
    run = recorded(services, "ushcn")
    page("runs", runs=run).button(key="runs/again").click().run()
    page("ushcn", runs=run).button(key=f"Run again/{run}").click().run()
    assert [(r.id, r.recorded) for r in started] == 2 * [(run, True)]


def test_home_offers_all_recorded_experiments_and_your_data(page: Page, services: Services) -> None:
    app = page("")
    offered = set(app.selectbox(key="on").options)
    titles = {get(e.experiment).title for e in services.catalogue.entries() if e.method == "ace" and e.run.snapshots()}
    assert "Stock prices" in titles
    assert offered == titles
    assert "Your data: train on a table of your own" in [link.proto.label for link in app.get("page_link")]


def test_compare_reads_recorded_runs(page: Page) -> None:
    app = page("compare", experiment="physionet")
    assert not app.exception
    assert "◆ recorded" in app.dataframe[0].value.to_csv()


def test_routes_serve_curves_and_player_of_recorded_runs(services: Services) -> None:
    run = services.store.open(recorded(services, "physionet"))
    answer = routes._live(run.id, 0)
    records = [json.loads(line) for line in answer["lines"].splitlines()]
    assert records == run.metrics()[0]
    assert (answer["status"]["state"], answer["more"]) == ("finished", False)
    assert routes._live(run.id, answer["offset"])["lines"] == ""
