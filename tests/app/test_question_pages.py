"""The pages of studies and searches without a browser: list, form, one of them, and what their charts read."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from acenode_app import estimates, messages, routes
from acenode_app.questions import live, search_form, searches, studies, study_form
from acenode_app.questions import page as common
from acenode_app.services import Services
from app_routes import get
from conftest import Page, no_exception, page_text, titled, wait_for_times
from export_runs import metrics, result, snapshot
from search_launcher import a_search
from streamlit.testing.v1 import AppTest
from study_entries import attention_study, finished, one

from acenode import experiments
from acenode.bench.synthetic import synthetic_search
from acenode.compare import study_answer
from acenode.compare.study_grid import check_study, group_names, make_grid, preset
from acenode.config import SETTINGS, Config
from acenode.config.ranges import read_range
from acenode.errors import UserError
from acenode.files import write_json
from acenode.runs.entry import Entry
from acenode.runs.process import identity
from acenode.runs.questions import SearchStore, Study, StudyGroup, StudyStore
from acenode.runs.store import RunStore
from acenode.runs.writer import RunWriter

QUICK = {"initial": "conv", "epochs": 1}
VALUES = {0: [0.91, 0.92, 0.93], 1: [0.85, 0.86, 0.88], 2: [0.90, 0.90, 0.91]}


def write(services: Services, entry: Entry, **status: Any) -> None:
    """Write the folder of a run that an entry describes, with curves and one snapshot."""
    folder = services.store.root / entry.id
    folder.mkdir(parents=True)
    write_json(folder / "config.json", {"format": 1, "id": entry.id, "created": 1e9, "params": 15_346,
                                        "config": {"format": 1, **entry.config}, "environment": {"device": "cpu"}})
    write_json(folder / "status.json", {"state": "finished", "error": None, "seconds": 2.0, "heartbeat": 0.0,
                                        "process": {"pid": 1}, "epochs": 2, "epoch": 2, "progress": 1.0, **status})
    writer = RunWriter(services.store.open(entry.id))
    writer.append(metrics())
    writer.snapshot("epoch-00001", snapshot(entry.seed))
    if entry.value is not None:
        write_json(folder / "result.json", result() | {"test": {"accuracy": entry.value}})


@pytest.fixture
def study(services: Services) -> Study:
    """Store a study with a question, without runs."""
    made = attention_study(question="Does it help?", held=QUICK)
    StudyStore(services.store).write(made)
    return made


def test_the_list_shows_how_far_studies_are_and_deleting_one_keeps_its_runs(page: Page, services: Services,
                                                                            study: Study) -> None:
    write(services, one(study, 0, 0, 0.9))
    (services.store.root / "studies" / "torn.json").write_text("{")
    app = page("studies")
    assert "1 of 9 runs finished" in page_text(app)
    assert "cannot be read" in app.error[0].value
    assert "evolving attention, fixed attention, no attention; 3 seeds each" in page_text(app)
    app = page("studies", study="attention")
    no_exception(app.button(key="study/delete").click().run())
    assert not StudyStore(services.store).exists("attention")
    assert [run.id for run in services.store] == ["run-0-0"]
    assert app.title[0].value == "Studies"


def test_the_form_says_time_and_fairness_before_it_queues(page: Page, services: Services) -> None:
    app = page("studies", experiment="mnist", preset="attention")
    wait_for_times()
    text = page_text(app.run())
    assert "**9 runs**, about 9 min here, one after the other" in text
    assert "The number of parameters differs: 31,690 in evolving attention, 15,346 in no attention" in text
    app.toggle(key="study/equal/mnist-attention").set_value(True)
    assert "Changed: f_layers" in page_text(app.run())
    no_exception(app.button(key="study/save").click().run())
    assert not list(services.store)  # nothing is queued
    assert [stored.name for stored in StudyStore(services.store).list()] == ["mnist-attention-equal"]


def test_start_queues_the_runs_and_opens_the_study(page: Page, started: list[Config]) -> None:
    app = page("studies", experiment="mnist", preset="attention")
    titled(app.pills, "Length of each run").set_value("Trial: 1 epoch, coarse solver").run()
    no_exception(app.button(key="study/start").click().run())
    assert [(c.get("attention"), c.seed) for c in started[:4]] == [("evolving", 0), ("fixed", 0), ("none", 0),
                                                                    ("evolving", 1)]
    assert {c.get("epochs") for c in started} == {1}
    assert app.query_params["study"] == "mnist-attention"
    assert app.title[0].value.replace("\\", "") == preset("mnist", "attention").question


@pytest.mark.parametrize(("experiment", "kind"), [("mnist", "host"), ("ushcn", "schedule"), ("mnist", "size"),
                                                  ("physionet", "own"), ("liver", "host")])
def test_every_question_has_a_form(experiment: str, kind: str, page: Page) -> None:
    app = page("studies", experiment=experiment, preset=kind)
    assert "runs**" in page_text(app)
    assert not app.error


@pytest.mark.parametrize(("name", "query", "words"), [
    ("studies", {"experiment": "nope", "preset": "host"}, "There is no experiment"),
    ("studies", {"experiment": "ushcn", "preset": "size"}, "has no study"),
    ("studies", {"study": "nope"}, "there is no study"), ("searches", {"experiment": "nope"}, "There is no experiment"),
    ("searches", {"search": "nope"}, "There is no search 'nope': press All searches to choose one"),
    ("searches", {"search": "../x"}, "There is no search '../x': press All searches to choose one")])
def test_a_link_to_nothing_says_so(name: str, query: dict[str, str], words: str, page: Page) -> None:
    assert words in page(name, **query).error[0].value.replace("\\", "")


def test_a_study_whose_runs_exist_needs_neither_data_nor_training(page: Page, services: Services) -> None:
    full = preset("mnist", "attention", "full")
    for entry in finished(full, VALUES):
        write(services, entry)
    app = page("studies", experiment="mnist", preset="attention")
    app.segmented_control(key="study/data").set_value("full").run()
    assert "All runs of this study are finished already" in page_text(app)
    no_exception(app.button(key="study/start").click().run())
    assert app.query_params["study"] == "mnist-full-attention"
    assert len(list(services.store)) == 9


def test_a_study_answers_in_words_and_offers_its_exports(page: Page, services: Services, study: Study) -> None:
    for entry in finished(study, VALUES):
        write(services, entry)
    app = page("studies", study="attention")
    text = page_text(app)
    assert "Evolving attention helps: accuracy +1.67 points against no attention, 95% interval +0.23 to +3.10" in text
    assert ":red-badge[hurts] Fixed attention hurts" in text
    assert "All runs are finished" in text
    assert "majority class" in "".join(part.proto.body for part in app.get("html"))
    assert {d.label for d in app.get("download_button")} >= {"Table as LaTeX", "HTML page", "Static site"}
    assert "\\begin{table}" in app.code[0].value
    grid = make_grid(replace(study, seeds=(0,)), services.catalogue.entries())
    names = zipfile.ZipFile(BytesIO(studies.pack([study_answer.report(grid)]))).namelist()
    assert {"index.html", "attention.html", "runs/run-0-0.html"} <= set(names)


def test_the_sidebar_names_runs_of_a_study_by_their_group(services: Services, study: Study) -> None:
    runs = [one(study, 1, 1, None), one(study, 0, 2, None)]
    other = replace(runs[0], id="other", config=runs[0].config | {"batch_size": 7})
    assert services.launcher.device_states()  # torch is loaded
    assert routes.run_names([*runs, other])["run-1-1"] == "fixed attention, seed 1 · MNIST"
    assert routes.run_names(runs[1:]) == {"run-0-2": "evolving attention, seed 2 · MNIST"}
    assert routes.run_names([other])["other"].startswith("MNIST · ACE-ODE-Net · ")
    StudyStore(services.store).delete(study.name)
    assert "MNIST · ACE-ODE-Net" in routes.run_names(runs[:1])["run-1-1"]
    assert routes.run_names([]) == {}


def test_the_grid_follows_the_runs(services: Services, study: Study) -> None:
    here = {"process": identity(), "heartbeat": 4e9}
    write(services, one(study, 0, 0, 0.9))
    write(services, one(study, 1, 0, None), state="running", progress=0.4, epoch=0, seconds_left=12.0, best=0.5, **here)
    write(services, one(study, 2, 0, None), state="queued", progress=0.0, **here)
    write(services, one(study, 0, 1, None), state="stopped", progress=0.25)
    view = get("/lab/study/attention").json()
    assert view["columns"] == ["seed 0", "seed 1", "seed 2"]
    assert [row["name"] for row in view["rows"]] == ["evolving attention", "fixed attention", "no attention"]
    texts = [[cell["text"] for cell in row["cells"]] for row in view["rows"]]
    assert texts == [["90.00", "stopped at 25%", "–"], ["40%", "–", "–"], ["queued", "–", "–"]]
    assert view["now"] == ["fixed attention, seed 0: epoch 1 of 2, validation 50.00%, 12 s left"]
    assert view["left"].startswith("about 1")  # what the running run says itself, and as long for the queued one
    assert (view["finished"], view["runs"]) == (1, 9)
    assert view["rows"][0]["cells"][0]["link"] == "mnist?runs=run-0-0"
    assert get("/lab/study/nope").status == 404
    json.dumps(live.study("attention"), allow_nan=False)


def test_stop_and_resume_act_on_all_runs_of_a_study(page: Page, services: Services, study: Study, started: list[Config],
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(study, name="small", seeds=(0,))
    StudyStore(services.store).write(small)
    write(services, one(small, 0, 0, None), state="queued", progress=0.0, process=identity(), heartbeat=4e9)
    stopped: list[str] = []
    monkeypatch.setattr(services.launcher, "stop", lambda run: stopped.append(run.id))
    app = page("studies", study="small")
    assert "**2 runs** not trained yet" in page_text(app)
    commands = "acenode study run small\nacenode study show small"  # before a run has finished, they come first
    assert app.code[0].value.endswith(messages.commands(commands))
    no_exception(app.button(key="study/stop").click().run())
    assert stopped == ["run-0-0"]
    no_exception(app.button(key="study/resume").click().run())
    assert [c.get("attention") for c in started] == ["fixed", "none"]


def test_experiments_and_home_link_to_studies(page: Page) -> None:
    def links(name: str) -> dict[str, str]:
        return {link.proto.label: link.proto.query_string for link in page(name).get("page_link")}

    assert links("")["Study: does attention help?"] == "experiment=mnist&preset=attention"
    for name in ("mnist", "ushcn"):
        assert links(name)["Does attention help?"] == f"experiment={name}&preset=attention"


START = preset("mnist", "attention")


def test_fields_change_length_seeds_baseline_and_what_is_held() -> None:
    study = study_form.make_study(START, seeds="0-4", length={"epochs": 1}, held="rtol=0.01 initial=conv", baseline=0,
                              name="mine", question="Why?")
    assert (study.name, study.question, study.baseline, study.seeds) == ("mine", "Why?", 0, (0, 1, 2, 3, 4))
    assert study.held == {"epochs": 1, "initial": "conv", "rtol": 0.01}
    assert study_form.make_study(START, seeds="0 1 2", held=study_form.settings_line(START.held)) == START


@pytest.mark.parametrize(("fields", "words"), [
    ({"seeds": "x"}, "seed"), ({"seeds": "0", "held": "rtol"}, "written as"), ({"held": "rtol=1 rtol=1"}, "twice"),
    ({"held": "attention=none"}, "varies"), ({"name": "a b"}, "name")])
def test_a_wrong_field_says_what_to_do(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        study_form.make_study(START, **fields)


def test_lengths_are_a_trial_a_quick_look_and_the_default() -> None:
    lengths = study_form.lengths(START)
    assert lengths["Quick look: 3 epochs"] == {"epochs": 3}
    assert list(lengths.items())[-1] == ("Default: 12 epochs", {})
    trial = study_form.make_study(START, length=lengths["Trial: 1 epoch, coarse solver"])
    assert trial.held["solver"] == "rk4"  # it applies to images
    full = preset("mnist", "attention", "full")
    assert list(study_form.lengths(full))[-1] == f"Default: {full.held['epochs']} epochs"
    assert study_form.make_study(full, length={}).held["epochs"] == full.held["epochs"]
    assert next(iter(study_form.lengths(preset("ushcn", "attention")))).startswith("Quick look")


def test_a_question_of_ones_own_combines_methods_and_values() -> None:
    mnist = experiments.get("mnist")
    study = study_form.own_start(mnist, "sample", ["ace", "odenet"], {"attention": ["evolving", "fixed"]})
    assert study.groups == (StudyGroup("ace", {"attention": "evolving"}), StudyGroup("ace", {"attention": "fixed"}),
                            StudyGroup("odenet"))  # which has no attention to vary
    assert group_names(check_study(study)) == ["evolving attention, ACE-ODE-Net", "fixed attention, ACE-ODE-Net",
                                               "ODE-Net"]
    varying = common.settings_of(mnist, list(mnist.methods))
    assert "attention" in varying
    assert "snapshots" not in varying
    with pytest.raises(UserError, match="choose two methods"):
        study_form.own_start(mnist, "sample", ["ace"], {})


def test_a_stored_study_is_used_again_only_if_it_is_the_same(tmp_path: Path) -> None:
    store = StudyStore(RunStore(tmp_path))
    assert common.stored_as(START, store) == START == store.read(START.name)
    assert common.stored_as(START, store).name == START.name
    longer = replace(START, seeds=(0, 1, 2, 3))
    assert common.stored_as(longer, store).name == "mnist-attention-2"
    store.path("mnist-attention-2").write_text("{")
    assert common.stored_as(longer, store).name == "mnist-attention-3"


@pytest.fixture
def store(services: Services) -> SearchStore:
    return SearchStore(services.store)


def test_the_form_offers_ranges_around_the_defaults(page: Page) -> None:
    app = page("searches", experiment="mnist")
    assert "The first trial is the default" in page_text(app)
    assert "30 trials" in page_text(app)
    low, _ = ends(app)
    assert low.value == "0.015"
    low.set_value("0").run()
    assert app.error[0].value.replace("\\", "") == "From must be above 0 on a logarithmic scale"
    assert "The first trial is not the default" in page_text(low.set_value("0.2").run())


@pytest.mark.parametrize(("name", "low", "high", "log", "message"), [
    ("learning_rate", "0", "1", True, "From must be above 0 on a logarithmic scale"),
    ("learning_rate", "1", "1", False, "From must be smaller than To"),
    ("learning_rate", "", "1", True, "From: enter a number"),
    ("learning_rate", "0.1", "1e", True, "To: learning rate must be a number, not '1e'"),
    ("learning_rate", "0.1", "11", False, "To: learning rate must be above 0 and at most 10, not 11"),
    ("learning_rate", "nan", "1", False, "From: "),
    ("epochs", "1.5", "3", False, "From: epochs must be a whole number, not '1.5'"),
    ("learning_rate", "0.1, 0.1", None, False, "Give at least two values"),
    ("learning_rate", "0.1, x", None, False, "Values: learning rate must be a number, not 'x'"),
    ("learning_rate", "0.1..1", None, False, "Values are single numbers"),
    ("learning_rate", ", ".join(f"{n / 100}" for n in range(1, 102)), None, False, "Give at most 100 values")])
def test_errors_of_ranges_are_in_the_words_of_the_form(name: str, low: str, high: str | None, log: bool,
                                                       message: str) -> None:
    """Without `high`, the text is a list of values."""
    with pytest.raises(UserError) as error:
        search_form.listed(name, low) if high is None else search_form.interval(name, low, high, log=log)
    assert str(error.value).startswith(message)
    assert not any(written in str(error.value) for written in ("..", "log:", "=", "_", "--"))


@pytest.mark.parametrize(("trials", "known"), [(30, "up to about 5 min here, one after the other"),
                                               (300, "each up to about 5 min here")])
def test_the_time_of_a_search_reads_well_before_it_is_known(trials: int, known: str, page: Page,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    found = estimates.TimeHere(None, "some iterations are being timed", pending=True)
    monkeypatch.setattr(estimates, "time_here", lambda configs: found)
    app = page("searches", experiment="mnist")
    app.number_input(key="search/trials").set_value(trials).run()
    assert "over learning rate from 0.015 to 1.5, estimating the time…\n" in page_text(app)
    found = estimates.TimeHere(300.0, "similar runs")
    assert f", {known}" in page_text(app.run())


def test_edited_fields_survive_another_choice_of_data_and_method(page: Page) -> None:
    def edited() -> list[Any]:
        return [app.number_input(key="search/trials").value, ends(app)[0].value, titled(app.text_input, "Name").value,
                titled(app.number_input, "Epochs").value]

    def chosen(label: str) -> list[str]:
        return titled(app.multiselect, label).value  # type: ignore[no-any-return]

    app = page("searches", experiment="mnist")
    app.number_input(key="search/trials").set_value(7).run()
    names = ["learning_rate", "attention", "penalty_weight"]
    titled(app.multiselect, "Settings to search").set_value(names).run()
    ends(app)[0].set_value("0.02").run()
    titled(app.multiselect, "Attention (a)").set_value(["evolving", "fixed"]).run()
    titled(app.text_input, "Name").set_value("mine").run()
    titled(app.number_input, "Epochs").set_value(9).run()
    usual = ends(app)[1].value
    for value in ("full", "sample"):
        no_exception(app.segmented_control(key="search/data").set_value(value).run())
        assert edited() == [7, "0.02", "mine", 9]
        assert ends(app)[1].value == ("0.1" if value == "full" else usual)  # not edited: the default of the data
        assert chosen("Attention (a)") == ["evolving", "fixed"]
    for method, searched in (("odenet", names[:1]), ("ace", names)):  # the first has no attention
        no_exception(app.selectbox(key="search/mnist/method").set_value(method).run())
        assert edited() == [7, "0.02", "mine", 9]
        assert chosen("Settings to search") == searched
    assert chosen("Attention (a)") == ["evolving", "fixed"]
    titled(app.number_input, "Epochs").set_value(12).run()
    ends(app)[0].set_value("0.015").run()  # the defaults again
    no_exception(app.segmented_control(key="search/data").set_value("full").run())
    assert [ends(app)[0].value, titled(app.number_input, "Epochs").value] == ["0.001", 160]


def ends(app: AppTest) -> tuple[Any, Any]:
    """Return the fields of the first range."""
    return titled(app.text_input, "From"), titled(app.text_input, "To")


@pytest.mark.parametrize("name", ["mnist", "physionet", "ushcn", "oscillators"])
def test_every_number_has_a_usual_range(name: str) -> None:
    experiment = experiments.get(name)
    for method in experiment.methods:
        base = experiment.configure(method)
        for key in common.settings_of(experiment, [method]):
            if SETTINGS[key].type in (int, float):
                found = search_form.usual_range(key, base.get(key))
                assert read_range(key, found.text) == found
                if base.get(key):
                    assert found.contains(base.get(key))


def test_the_list_shows_how_far_searches_are_and_each_offers_what_its_state_allows(page: Page,
                                                                                   store: SearchStore) -> None:
    synthetic_search(store, "done", 30)
    store.path("bad").mkdir()
    (store.path("bad") / "search.json").write_text("{")
    text = page_text(page("searches"))
    assert "22 of 30 trials finished, 8 pruned" in text
    assert "cannot be read" in text
    synthetic_search(store, "now", 30, running=2)
    store.write(a_search("stopped"))
    offered = {name: {button.label for button in page("searches", search=name).button}
               for name in ("done", "now", "stopped")}
    assert {"Train over seeds and test", "Continue"} <= offered["done"]
    assert [name for name, labels in offered.items() if "Stop" in labels] == ["now"]
    assert [name for name, labels in offered.items() if "Resume" in labels] == ["stopped"]
    assert "Trials are never tested" in page_text(page("searches", search="done"))


def test_the_best_settings_are_queued_as_a_study(page: Page, store: SearchStore, services: Services,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    queued: list[Any] = []
    monkeypatch.setattr(searches, "start_study", lambda study, device="auto": queued.append(study) or 6)
    synthetic_search(store, "done", 30)
    app = page("searches", search="done")
    titled(app.button, "Train over seeds and test").click().run()
    (study,) = queued
    assert (study.name, study.seeds, len(study.groups)) == ("done-winner", (0, 1, 2), 2)


def test_the_charts_follow_what_is_new(store: SearchStore) -> None:
    synthetic_search(store, "now", 30, running=2)
    first = get("/lab/search/now").json()
    assert first["trials"] == 30
    assert [one["title"] for one in first["figures"][3:]] == [
        "Learning rate", "Weight of the penalty", "Convolutions in the derivative of the state"]
    assert (first["busy"], first["states"]) == (True, "running/True")
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
    assert titled(page("searches", search="open").button, "Resume")
    assert "0 of 1 trials finished, 1 unfinished" in page_text(page("searches"))
