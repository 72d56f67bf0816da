"""The page Searches without a browser: list, form, one search, and the trials that its charts read."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from acenode_app import asset_files, estimates, index_page
from acenode_app.questions import search_draft, search_live, search_range
from acenode_app.services import Services
from search_launcher import a_search
from starlette.requests import Request
from streamlit.testing.v1 import AppTest
from test_pages import no_exception, page_text
from test_routes import get

from acenode import experiments
from acenode.bench.synthetic import synthetic_search
from acenode.config.ranges import read_range
from acenode.errors import UserError
from acenode.runs.questions import SearchStore, StudyStore
from acenode.search.plan import winner_study

Page = Callable[..., AppTest]


@pytest.fixture
def store(services: Services) -> SearchStore:
    return SearchStore(services.store)


def test_an_empty_list_says_what_to_do(page: Page) -> None:
    app = no_exception(page("searches"))
    assert app.title[0].value == "Searches"
    assert "press **Start**" in app.info[0].value


def test_the_list_shows_how_far_searches_are(page: Page, store: SearchStore) -> None:
    synthetic_search(store, "many", 30)
    store.path("bad").mkdir()
    (store.path("bad") / "search.json").write_text("{")
    app = no_exception(page("searches"))
    text = page_text(app)
    assert "22 of 30 trials finished, 8 pruned" in text
    assert "cannot be read" in text


def test_the_form_offers_ranges_around_the_defaults(page: Page) -> None:
    app = no_exception(page("searches", experiment="mnist"))
    assert "The first trial is the default" in page_text(app)
    assert "30 trials" in page_text(app)
    low = next(field for field in app.text_input if field.label == "From")
    assert low.value == "0.015"
    low.set_value("0").run()
    assert app.error[0].value.replace("\\", "") == "From must be above 0 on a logarithmic scale"
    low.set_value("0.2").run()
    assert "The first trial is not the default" in page_text(app)


@pytest.mark.parametrize(("name", "low", "high", "log", "message"), [
    ("learning_rate", "0", "1", True, "From must be above 0 on a logarithmic scale"),
    ("learning_rate", "2", "1", False, "From must be smaller than To"),
    ("learning_rate", "1", "1", True, "From must be smaller than To"),
    ("learning_rate", "", "1", True, "From: enter a number"),
    ("learning_rate", "0.1", "1e", True, "To: learning rate must be a number, not '1e'"),
    ("learning_rate", "0.1", "11", False, "To: learning rate must be above 0 and at most 10, not 11"),
    ("learning_rate", "nan", "1", False, "From: "),
    ("epochs", "1.5", "3", False, "From: epochs must be a whole number, not '1.5'")])
def test_errors_of_a_range_are_in_the_words_of_the_form(name: str, low: str, high: str, log: bool,
                                                        message: str) -> None:
    with pytest.raises(UserError) as error:
        search_range.interval(name, low, high, log=log)
    assert str(error.value).startswith(message)
    assert not any(written in str(error.value) for written in ("..", "log:", "=", "_", "--"))


@pytest.mark.parametrize(("text", "message"), [
    ("", "Give at least two values"), ("0.1", "Give at least two values"), ("0.1, 0.1", "Give at least two values"),
    ("0.1, x", "Values: learning rate must be a number, not 'x'"), ("0.1..1", "Values are single numbers"),
    (", ".join(f"{n / 100}" for n in range(1, 102)), "Give at most 100 values")])
def test_errors_of_a_list_are_in_the_words_of_the_form(text: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        search_range.listed("learning_rate", text)
    assert str(error.value).startswith(message)
    assert not any(written in str(error.value) for written in ("..", "log:", "=", "_", "--"))


def test_fields_of_a_range_are_read_as_in_the_terminal() -> None:
    assert search_range.interval("learning_rate", " 1e-3", "0.1 ", log=True) == read_range(
        "learning_rate", "log:1e-3..0.1")
    assert search_range.interval("epochs", "1", "3", log=False) == read_range("epochs", "1..3")
    assert search_range.listed("learning_rate", "0.1, 0.2,") == read_range("learning_rate", "0.1,0.2")


@pytest.mark.parametrize(("trials", "known"), [(30, "up to about 5 min here, one after the other"),
                                               (300, "each up to about 5 min here")])
def test_the_time_of_a_search_reads_well_before_it_is_known(trials: int, known: str, page: Page,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    found = estimates.TimeHere(None, "some iterations are being timed", pending=True)
    monkeypatch.setattr(estimates, "time_here", lambda configs: found)
    app = page("searches", experiment="mnist")
    app.number_input(key="search/trials").set_value(trials).run()
    assert "over learning rate from 0.015 to 1.5, estimating the time…\n" in page_text(app).replace("\\", "")
    found = estimates.TimeHere(300.0, "similar runs")
    assert f", {known}" in page_text(no_exception(app.run()))


def test_edited_fields_survive_another_choice_of_data_and_method(page: Page) -> None:
    app = no_exception(page("searches", experiment="mnist"))
    app.number_input(key="search/trials").set_value(7).run()
    labelled(app.multiselect, "Settings to search").set_value(["learning_rate", "attention", "penalty_weight"]).run()
    ends(app)[0].set_value("0.02").run()
    labelled(app.multiselect, "Attention (a)").set_value(["evolving", "fixed"]).run()
    labelled(app.text_input, "Name").set_value("mine").run()
    labelled(app.number_input, "Epochs").set_value(9).run()
    usual = ends(app)[1].value

    def edited() -> list[Any]:
        return [app.number_input(key="search/trials").value, ends(app)[0].value, labelled(app.text_input, "Name").value,
                labelled(app.number_input, "Epochs").value]

    for value in ("full", "sample"):
        no_exception(app.segmented_control(key="search/data").set_value(value).run())
        assert edited() == [7, "0.02", "mine", 9]
        assert ends(app)[1].value == ("0.1" if value == "full" else usual)  # not edited: the default of the data
        assert labelled(app.multiselect, "Attention (a)").value == ["evolving", "fixed"]
    no_exception(app.selectbox(key="search/mnist/method").set_value("odenet").run())
    assert edited() == [7, "0.02", "mine", 9]
    assert labelled(app.multiselect, "Settings to search").value == ["learning_rate"]  # this method has no attention
    no_exception(app.selectbox(key="search/mnist/method").set_value("ace").run())
    assert labelled(app.multiselect, "Settings to search").value == ["learning_rate", "attention", "penalty_weight"]
    assert labelled(app.multiselect, "Attention (a)").value == ["evolving", "fixed"]
    labelled(app.number_input, "Epochs").set_value(12).run()
    ends(app)[0].set_value("0.015").run()  # the defaults again
    no_exception(app.segmented_control(key="search/data").set_value("full").run())
    assert labelled(app.number_input, "Epochs").value == 160
    assert ends(app)[0].value == "0.001"


def labelled(fields: Any, label: str) -> Any:
    return next(field for field in fields if field.label == label)


def ends(app: AppTest) -> tuple[Any, Any]:
    """Return the fields of the first range."""
    return labelled(app.text_input, "From"), labelled(app.text_input, "To")


@pytest.mark.parametrize("name", ["mnist", "physionet", "ushcn", "oscillators"])
def test_every_number_has_a_usual_range(name: str) -> None:
    from acenode.config import SETTINGS
    from acenode.config.ranges import read_range

    experiment = experiments.get(name)
    for method in experiment.methods:
        base = experiment.configure(method)
        for key in search_draft.settings_to_search(experiment, method):
            if SETTINGS[key].type in (int, float):
                found = search_draft.usual_range(key, base.get(key))
                assert read_range(key, found.text) == found
                if base.get(key):
                    assert found.contains(base.get(key))


def test_an_unknown_experiment_and_search_are_one_line(page: Page) -> None:
    assert "There is no experiment" in no_exception(page("searches", experiment="nothing")).error[0].value
    for name in ("nothing", "../x"):
        text = no_exception(page("searches", search=name)).error[0].value.replace("\\", "")
        assert text == f"There is no search {name!r}: press All searches to choose one"


def test_the_page_of_a_search_offers_what_its_state_allows(page: Page, store: SearchStore) -> None:
    synthetic_search(store, "done", 30)
    app = no_exception(page("searches", search="done"))
    labels = [button.label for button in app.button]
    assert "Train over seeds and test" in labels
    assert "Stop" not in labels
    assert "Trials are never tested" in page_text(app).replace("\\", "")
    synthetic_search(store, "now", 30, running=2)
    labels = [button.label for button in no_exception(page("searches", search="now")).button]
    assert "Stop" in labels
    assert "Resume" not in labels
    store.write(a_search("stopped"))
    assert "Resume" in [button.label for button in no_exception(page("searches", search="stopped")).button]


def test_the_page_of_a_search_does_not_load_torch() -> None:
    code = "import sys; from acenode_app.questions import search_pages, search_view; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def html_of(name: str, query: str = "") -> str:
    """Return the HTML of the page with this address."""
    scope = {"type": "http", "path_params": {"name": name}, "headers": [], "query_string": query.encode()}
    return bytes(index_page.index(Request(scope)).body).decode()


def imported(name: str) -> set[str]:
    """Return a module of the browser's with all that it imports."""
    path = asset_files.find(name)
    assert path is not None
    found = re.findall(r'^import .* from "\./(.+)";', path.read_text(encoding="utf-8"), re.MULTILINE)
    return {name}.union(*map(imported, found))


def test_the_charts_and_trials_of_a_search_are_fetched_before_streamlit_starts() -> None:
    html = html_of("searches", "search=many")
    head = html[:html.index("<script")]
    assert imported("search_charts.js") <= set(re.findall(r'"modulepreload" href="\./lab/assets/\w+/(.+?)"', html))
    assert 'href="./lab/search/many?since="' in head
    for name, query in (("searches", ""), ("searches", "search=%22%3E%3Cb%3E"), ("studies", "search=many")):
        other = html_of(name, query)
        assert "lab/search/" not in other
        assert "search_charts.js" not in other
        assert "<b>" not in other


def test_the_best_settings_are_queued_as_a_study(page: Page, store: SearchStore, services: Services,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    from acenode_app.questions import study_actions

    queued: list[Any] = []
    monkeypatch.setattr(study_actions, "start", lambda study, device="auto": queued.append(study) or 6)
    synthetic_search(store, "done", 30)
    app = no_exception(page("searches", search="done"))
    next(button for button in app.button if button.label == "Train over seeds and test").click().run()
    (study,) = queued
    assert (study.name, study.seeds, len(study.groups)) == ("done-winner", (0, 1, 2), 2)


def test_the_page_links_the_study_of_the_best_settings(page: Page, store: SearchStore) -> None:
    synthetic_search(store, "done", 30)

    def links() -> list[str]:
        found = no_exception(page("searches", search="done")).get("page_link")
        return [link.proto.label.replace("\\", "") for link in found]

    assert "Best settings over seeds: done-winner" not in links()
    StudyStore(store.runs).write(winner_study(search_live.report("done")))
    assert "Best settings over seeds: done-winner" in links()
    assert "best settings so far" not in page_text(page("searches", search="done"))
    store.write_status("done", "running")
    assert "these are the best settings so far" in page_text(page("searches", search="done"))


def test_the_charts_follow_what_is_new(store: SearchStore) -> None:
    synthetic_search(store, "now", 30, running=2)
    first = get("/lab/search/now").json()
    assert first["trials"] == 30
    assert [one["title"] for one in first["figures"][3:]] == [
        "Learning rate", "Weight of the penalty", "Convolutions in the derivative of the state"]
    assert first["state"] == "running"
    assert len(first["table"]["rows"]) == 10
    assert first["now"].count("trial ") == 2
    assert sum(first["figures"][1]["figure"]["data"][0]["x"]) == pytest.approx(100)
    assert "figures" not in get(f"/lab/search/now?since={first['revision']}").json()
    with open(store.journal("now"), "ab") as file:
        file.write(b'{"op_code":6,"worker_id":"x","trial_id":29,"state":1,"values":[0.99],"datetime_complete":null}\n')
    again = get(f"/lab/search/now?since={first['revision']}").json()
    done = again["figures"][0]["figure"]["data"][1]
    assert (done["customdata"][-1], done["y"][-1]) == (29, 99.0)
    assert again["words"]["29"].startswith("trial 29: 99<br>learning rate: ")
    assert again["best"].startswith("Best validation accuracy 99.00% (trial 29")
    assert get("/lab/search/now?since=nonsense").json()["figures"]
    assert get("/lab/search/nothing").status == 404


@pytest.mark.parametrize("state", ["stopped", "interrupted", "failed"])
def test_open_trials_of_a_search_that_does_not_run_are_unfinished(state: str, page: Page, store: SearchStore) -> None:
    synthetic_search(store, "open", 1, running=1)
    before = get("/lab/search/open").json()
    assert before["summary"] == "0 of 1 trials finished, 1 running"
    assert before["now"].count("trial ") == 1
    assert before["figures"][0]["empty"] == "Waiting for the first finished trial…"
    store.write_status("open", state)
    after = get("/lab/search/open").json()
    assert after["summary"] == "0 of 1 trials finished, 1 unfinished"
    assert after["now"] == ""
    assert after["figures"][0]["empty"] == "No trial is finished yet: press Resume"
    assert "Resume" in [button.label for button in page("searches", search="open").button]
    assert "0 of 1 trials finished, 1 unfinished" in page_text(page("searches"))


def test_no_test_number_is_in_what_the_page_reads(store: SearchStore) -> None:
    synthetic_search(store, "done", 30)
    assert "test" not in get("/lab/search/done").body.decode()


def test_importance_is_computed_again_after_a_tenth_more_trials(store: SearchStore,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []
    monkeypatch.setattr(search_live, "importance", lambda ranges, trials, higher: computed.append(1) or {})
    synthetic_search(store, "done", 30)
    for _ in range(3):
        search_live.view("done")
    assert len(computed) == 1
