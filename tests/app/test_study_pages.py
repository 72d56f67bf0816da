"""The pages of studies without a browser: list, form, and a study in every state."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from typing import Any

import pytest
from acenode_app import active, estimates
from acenode_app.questions import study_list, study_live, study_site
from acenode_app.services import Services
from export_runs import metrics, result, snapshot
from streamlit.testing.v1 import AppTest
from study_entries import attention_study, finished, one
from test_pages import no_exception, page_text
from test_routes import get

from acenode.compare.study_grid import make_grid, preset
from acenode.files import write_json
from acenode.runs.entry import Entry
from acenode.runs.process import identity
from acenode.runs.questions import Study, StudyGroup, StudyStore
from acenode.runs.writer import RunWriter

Page = Callable[..., AppTest]
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


def test_the_list_offers_questions_and_shows_how_far_studies_are(page: Page, services: Services, study: Study) -> None:
    write(services, one(study, 0, 0, 0.9))
    (services.store.root / "studies" / "torn.json").write_text("{")
    app = no_exception(page("studies"))
    assert "1 of 9 runs finished" in page_text(app).replace("\\", "")
    assert "cannot be read" in app.error[0].value
    assert "evolving attention, fixed attention, no attention; 3 seeds each" in page_text(app).replace("\\", "")


def test_the_list_calls_only_samples_of_the_papers_data_samples() -> None:
    own = Study("own", "predator-prey", (StudyGroup("ace"), StudyGroup("no-attention")))
    assert "(sample)" not in study_list.progress_text(make_grid(own, []))
    assert "MNIST (sample), " in study_list.progress_text(make_grid(attention_study(), []))


def test_the_form_says_time_and_fairness_before_it_queues(page: Page, services: Services) -> None:
    app = page("studies", experiment="mnist", preset="attention")
    assert estimates.wait(300)
    no_exception(app.run())
    text = page_text(app).replace("\\", "")
    assert "**9 runs**, about 9 min here, one after the other" in text
    assert "The number of parameters differs: 31,690 in evolving attention, 15,346 in no attention" in text
    assert not any(button.label.startswith("Estimate") for button in app.button)
    app.toggle(key="study/equal/mnist-attention").set_value(True)
    no_exception(app.run())
    assert "Changed: f_layers" in page_text(app).replace("\\", "")
    assert not list(services.store)  # nothing is queued yet
    app.button(key="study/save").click()
    no_exception(app.run())
    (stored,) = StudyStore(services.store).list()
    assert stored.study is not None
    assert stored.name == "mnist-attention-equal"


def test_start_queues_the_runs_and_opens_the_study(page: Page, services: Services,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    services.launcher.set_workers("cpu", 1)
    started: list[Any] = []
    monkeypatch.setattr(services.launcher, "start", lambda config: started.append(config) or Any)
    app = page("studies", experiment="mnist", preset="attention")
    length = next(w for w in app.pills if w.label == "Length of each run")
    length.set_value("Trial: 1 epoch, coarse solver")
    no_exception(app.run())
    app.button(key="study/start").click()
    no_exception(app.run())
    assert [(c.get("attention"), c.seed) for c in started[:4]] == [("evolving", 0), ("fixed", 0), ("none", 0),
                                                                    ("evolving", 1)]
    assert {c.get("epochs") for c in started} == {1}
    assert app.query_params["study"] == "mnist-attention"
    assert app.title[0].value.replace("\\", "") == preset("mnist", "attention").question


@pytest.mark.parametrize(("experiment", "kind"), [("mnist", "host"), ("ushcn", "schedule"), ("mnist", "size"),
                                                  ("physionet", "own"), ("liver", "host")])
def test_every_question_has_a_form(experiment: str, kind: str, page: Page) -> None:
    app = no_exception(page("studies", experiment=experiment, preset=kind))
    assert not app.error
    assert "runs**" in page_text(app)


@pytest.mark.parametrize(("query", "words"), [({"experiment": "nope", "preset": "host"}, "no experiment"),
                                              ({"experiment": "ushcn", "preset": "size"}, "has no study"),
                                              ({"study": "nope"}, "there is no study")])
def test_a_link_to_nothing_says_so(query: dict[str, str], words: str, page: Page) -> None:
    assert words in no_exception(page("studies", **query)).error[0].value


def test_a_study_whose_runs_exist_needs_neither_data_nor_training(page: Page, services: Services) -> None:
    full = preset("mnist", "attention", "full")
    for entry in finished(full, VALUES):
        write(services, entry)
    app = page("studies", experiment="mnist", preset="attention")
    app.segmented_control(key="study/data").set_value("full").run()
    assert "All runs of this study are finished already" in page_text(app)
    app.button(key="study/start").click()
    no_exception(app.run())
    assert app.query_params["study"] == "mnist-full-attention"
    assert len(list(services.store)) == 9


def test_a_study_answers_in_words_and_offers_its_exports(page: Page, services: Services, study: Study) -> None:
    for entry in finished(study, VALUES):
        write(services, entry)
    app = no_exception(page("studies", study="attention"))
    text = page_text(app).replace("\\", "")
    assert "Evolving attention helps: accuracy +1.67 points against no attention, 95% interval +0.23 to +3.10" in text
    assert ":red-badge[hurts] Fixed attention hurts" in text
    assert "All runs are finished" in text
    assert "majority class" in "".join(part.proto.body for part in app.get("html"))
    assert {d.label for d in app.get("download_button")} >= {"Table as LaTeX", "HTML page", "Static site"}
    assert "\\begin{table}" in app.code[0].value
    names = zipfile.ZipFile(BytesIO(study_site.pack([replace(study, seeds=(0,))]))).namelist()
    assert {"index.html", "attention.html", "runs/run-0-0.html"} <= set(names)


def test_an_undecided_study_names_both_groups_first(page: Page, services: Services, study: Study) -> None:
    held = replace(study, name="short", held={"epochs": 3, "initial": "conv"})
    StudyStore(services.store).write(held)
    for entry in finished(held, {0: [0.91], 1: [0.91], 2: [0.90]}):
        write(services, entry)
    text = page_text(no_exception(page("studies", study="short"))).replace("\\", "")
    assert ":gray-badge[undecided] Evolving against no attention: cannot be told with 1 seed" in text
    assert ":gray-badge[undecided] Evolving against fixed attention: cannot be told with 1 seed" in text
    assert "; epochs: 3, how attention starts: conv in all groups" in text


def test_the_sidebar_names_runs_of_a_study_by_their_group(services: Services, study: Study) -> None:
    runs = [one(study, 1, 1, None), one(study, 0, 2, None)]
    other = replace(runs[0], id="other", config=runs[0].config | {"batch_size": 7})
    assert services.launcher.device_states()  # torch is loaded
    assert active._names([*runs, other])["run-1-1"] == "fixed attention, seed 1 · MNIST"
    assert active._names(runs[1:]) == {"run-0-2": "evolving attention, seed 2 · MNIST"}
    assert active._names([other])["other"].startswith("MNIST · ACE-ODE-Net · ")
    StudyStore(services.store).delete(study.name)
    assert "MNIST · ACE-ODE-Net" in active._names(runs[:1])["run-1-1"]
    assert active._names([]) == {}


def test_the_commands_of_a_study_work_in_the_terminal(page: Page, study: Study,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acenode_app.commands.program", lambda: ".venv/bin/acenode")
    app = no_exception(page("studies", study="attention"))
    lines = app.code[0].value.splitlines()  # before a run has finished, the commands come first
    assert lines[1:] == [".venv/bin/acenode study run attention", ".venv/bin/acenode study show attention"]


def test_a_study_that_learned_nothing_says_so_first(page: Page, services: Services, study: Study) -> None:
    for entry in finished(study, {0: [0.10, 0.10, 0.10], 1: [0.09, 0.09, 0.09], 2: [0.08, 0.08, 0.08]}):
        write(services, entry)
    text = page_text(no_exception(page("studies", study="attention"))).replace("\\", "")
    assert "No group beats always answering the most frequent class (10.03%): the runs learned nothing yet" in text


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
    json.dumps(study_live.view("attention"), allow_nan=False)


def test_stop_and_resume_act_on_all_runs_of_a_study(page: Page, services: Services, study: Study,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(study, name="small", seeds=(0,))
    StudyStore(services.store).write(small)
    write(services, one(small, 0, 0, None), state="queued", progress=0.0, process=identity(), heartbeat=4e9)
    stopped: list[str] = []
    monkeypatch.setattr(services.launcher, "stop", lambda run: stopped.append(run.id))
    app = no_exception(page("studies", study="small"))
    assert "**2 runs** not trained yet" in page_text(app)
    app.button(key="study/stop").click()
    no_exception(app.run())
    assert stopped == ["run-0-0"]
    started: list[Any] = []
    monkeypatch.setattr(services.launcher, "start", lambda config: started.append(config.get("attention")) or Any)
    app.button(key="study/resume").click()
    no_exception(app.run())
    assert started == ["fixed", "none"]


def test_deleting_a_study_keeps_its_runs(page: Page, services: Services, study: Study) -> None:
    write(services, one(study, 0, 0, 0.9))
    app = page("studies", study="attention")
    app.button(key="study/delete").click()
    no_exception(app.run())
    assert not StudyStore(services.store).exists("attention")
    assert [run.id for run in services.store] == ["run-0-0"]
    assert app.title[0].value == "Studies"


def test_experiments_and_home_link_to_studies(page: Page) -> None:
    def links(name: str) -> dict[str, str]:
        return {link.proto.label: link.proto.query_string for link in no_exception(page(name)).get("page_link")}

    assert links("")["Study: does attention help?"] == "experiment=mnist&preset=attention"
    for name in ("mnist", "ushcn"):
        assert links(name)["Does attention help?"] == f"experiment={name}&preset=attention"
