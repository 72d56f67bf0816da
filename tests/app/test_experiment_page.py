"""An experiment's page: which run it opens with, the line that trains, what it says about data, settings and links."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import catalogue_entries
import pytest
from acenode_app import estimates, labels
from acenode_app.experiment import shown_runs
from acenode_app.services import Services
from conftest import RunFolder, config
from streamlit.testing.v1 import AppTest
from test_pages import field, no_exception, page_text

from acenode import experiments
from acenode.bench.synthetic import finished_runs
from acenode.compare.reproduction import RunTime
from acenode.config import SETTINGS, Config
from acenode.errors import UserError
from acenode.experiments import EXPERIMENTS
from acenode.runs.store import Run

Page = Callable[..., AppTest]
SYMBOLS = "θλσ∇Δ"


def line(app: AppTest) -> str:
    """Return the sentence that says what Train trains."""
    return next(m.value for m in app.markdown if m.value.startswith("**") and " on the " in m.value).replace("\\", "")


def shown(app: AppTest) -> list[str]:
    return next(w.value for w in app.multiselect if w.label == "Runs shown")


# The run it opens with ----------------------------------------------------------------------------------------------


def test_page_opens_on_the_newest_finished_run(page: Page, run_folder: RunFolder) -> None:
    run_folder.finished()
    run_folder.failed()  # newer
    newest = next(e for e in run_folder.services.catalogue.entries() if e.state == "finished")
    assert shown(no_exception(page("mnist"))) == [newest.id]


def test_page_opens_on_the_run_that_trains(page: Page, run_folder: RunFolder) -> None:
    run_folder.finished()
    running = run_folder.running()
    assert shown(no_exception(page("mnist"))) == [running.id]


def test_own_runs_come_before_recorded_ones(run_folder: RunFolder) -> None:
    run_folder.finished()
    entries = run_folder.services.catalogue.entries()
    recorded = [replace(e, id=f"recorded-{e.seed}", recorded=True, created=9e9) for e in entries if e.method == "ace"]
    assert shown_runs.first_choice([*recorded, *entries]) == [entries[0].id]
    assert shown_runs.first_choice(recorded) == ["recorded-0"]
    assert shown_runs.first_choice([]) == []


def test_of_finished_runs_of_named_variables_ace_comes_first() -> None:
    plain, mixed, old, new = (catalogue_entries.entry(method, experiment="predator-prey", seed=seed)
                              for seed, method in enumerate(("no-attention", "mixed", "ace", "ace")))
    fixed = catalogue_entries.entry("ace", experiment="predator-prey", seed=9, attention="fixed")
    failed = replace(new, id="failed", state="failed")
    assert shown_runs.first_choice([plain, failed, mixed, fixed, new, old], ace_first=True) == [new.id]
    assert shown_runs.first_choice([plain, failed, fixed], ace_first=True) == [fixed.id]
    assert shown_runs.first_choice([failed, plain, mixed], ace_first=True) == [plain.id]
    assert shown_runs.first_choice([plain, new]) == [plain.id]


def test_the_page_of_named_variables_opens_on_ace(page: Page, services: Services) -> None:
    made = experiments.get("predator-prey")
    runs = []
    for method in ("ace", "no-attention"):
        run = services.store.create(made.configure(method, device="cpu"), {})
        run.set_state("finished")
        runs.append(run.id)
    assert shown(no_exception(page("predator-prey"))) == runs[:1]


def trial_of(services: Services, seed: int) -> str:
    run = services.store.create(config(seed=seed), {"search": "rates", "trial": seed})
    run.set_state("finished")
    return run.id


def test_trials_of_a_search_are_offered_on_demand(page: Page, services: Services, run_folder: RunFolder) -> None:
    trials = [trial_of(services, seed) for seed in range(3)]
    assert shown(no_exception(page("mnist"))) == trials[-1:]  # there is nothing else
    run_folder.finished()
    newest = next(e.id for e in services.catalogue.entries() if e.state == "finished" and not e.search)
    later = trial_of(services, 3)
    app = no_exception(page("mnist"))
    assert shown(app) == [newest]
    chooser = next(w for w in app.multiselect if w.label == "Runs shown")
    assert not {labels.label(e) for e in services.catalogue.entries() if e.search} & set(chooser.options)
    box = next(one for one in app.checkbox if one.label == "Offer trials of searches as well (4)")
    app = no_exception(box.check().run())
    assert shown(app) == [newest]
    assert len(next(w for w in app.multiselect if w.label == "Runs shown").options) == len(chooser.options) + 4
    app = no_exception(page("mnist", runs=later))  # a link to a trial
    assert shown(app) == [later]


def test_the_first_of_many_started_runs_are_shown(page: Page, services: Services) -> None:
    app = page("mnist", method="ODE-Net")
    app.text_input(key="seeds/").set_value("0-9").run()
    app.button(key="train").click().run()
    no_exception(app)
    assert {services.catalogue.entry(name).seed for name in shown(app)} == set(range(8))  # type: ignore[union-attr]
    assert len(services.launcher.queue()) == 2  # eight seeds are trained as one computation
    for entry in services.catalogue.entries():
        services.launcher.stop(entry.run)
    assert services.launcher.wait(60)


@pytest.mark.parametrize("name", ["mnist", "compare", "runs"])
def test_links_to_missing_runs_say_so(name: str, page: Page, run_folder: RunFolder) -> None:
    run_folder.finished()
    app = no_exception(page(name, runs="mnist-ace-gone"))
    assert "mnist\\-ace\\-gone" in app.warning[0].value
    assert "mnist\\-ace\\-gone" in no_exception(app.run()).warning[0].value  # it stays
    found = next(iter(run_folder.services.store)).id
    assert not no_exception(page(name, runs=found)).warning


def test_a_missing_run_to_repeat_is_reported(page: Page, services: Services) -> None:
    app = no_exception(page("mnist", **{"from": "mnist-ace-gone"}))
    assert "There is no run mnist\\-ace\\-gone" in app.warning[0].value


# What it says about data and settings -------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "words"), [("cifar10", "handwritten digits"), ("svhn", "handwritten digits"),
                                             ("physionet", "simulated patients"), ("ushcn", "simulated series")])
def test_title_says_what_the_sample_is(name: str, words: str, page: Page) -> None:
    app = no_exception(page(name))
    assert f"sample ({words}" in app.title[0].value
    assert "Not comparable with the paper" in page_text(app)


def test_title_follows_the_data_of_the_shown_runs(page: Page, run_folder: RunFolder) -> None:
    run_folder.finished()
    full = no_exception(page("mnist", data="full"))
    assert "shown: sample (handwritten digits)" in full.title[0].value  # the form asks for full data


def test_line_describes_the_run_and_marks_changed_settings(page: Page) -> None:
    app = no_exception(page("mnist"))
    assert line(app).startswith("**ACE-ODE-Net** on the sample, 12 epochs, seed 0, ")
    field(app, "text_input", "learning_rate").set_value("0.07").run()  # type: ignore[attr-defined]
    assert [w.label for w in app.text_input if "eed" in w.label] == ["Seeds"]  # one field, for the ablation set too
    app.text_input(key="seeds/").set_value("0 1").run()
    assert "changed: Learning rate = 0.07, 2 seeds" in line(no_exception(app))
    assert "Changed from 0\\.15" in page_text(app)
    assert app.button(key="train").label == "Train 2 runs"


def test_folding_the_form_keeps_its_values(page: Page) -> None:
    app = page("mnist")
    app.button(key="change").click().run()
    field(app, "number_input", "epochs").set_value(3).run()  # type: ignore[attr-defined]
    app.button(key="change").click().run()
    assert "3 epochs (changed)" in line(no_exception(app))
    assert field(app, "number_input", "epochs").value == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_symbols_follow_a_plain_name(name: str, page: Page) -> None:
    app = no_exception(page(name))
    kinds = ("text_input", "number_input", "selectbox", "multiselect", "toggle", "segmented_control", "pills", "button")
    for widget in (w for kind in kinds for w in getattr(app, kind, [])):
        outside = re.sub(r"\(.*?\)", "", widget.label)
        assert not set(outside) & set(SYMBOLS), widget.label
        assert len(outside.split()[0]) > 1, widget.label  # not z, h or q


def test_unclear_settings_are_explained(page: Page, run_folder: RunFolder) -> None:
    for name, words in {"latent": "latent state", "detach_attention": "gradients", "at_jump": "observation",
                        "penalty_weight": "weight", "initial": "start", "f_layers": "derivative"}.items():
        assert words in SETTINGS[name].help
    assert labels.setting("initial") == "How attention starts (q)"
    assert labels.setting("penalty") == "Penalty on the attention's parameters (θ_g)"
    (nfe,) = (m for m in page("mnist", runs=run_folder.finished()[0].id).metric if "NFE" in m.label)
    assert nfe.label == "Function evaluations (NFE)"
    assert "evaluates the derivative of the state" in nfe.help


def test_tables_leave_missing_values_empty(page: Page, run_folder: RunFolder) -> None:
    run_folder.finished()
    run_folder.failed()
    for name in ("", "compare", "runs"):
        for table in no_exception(page(name)).dataframe:
            assert table.proto.HasField("placeholder"), name
            assert table.proto.placeholder == ""


# Time ---------------------------------------------------------------------------------------------------------------


def test_time_is_estimated_in_the_background(page: Page, services: Services) -> None:
    app = no_exception(page("mnist"))
    assert estimates.wait(300)
    assert line(no_exception(app.run())).endswith("seed 0, about 60 s here")
    app.text_input(key="seeds/").set_value("0-4").run()
    assert line(no_exception(app)).endswith("5 seeds, about 5 min here")


def test_time_of_similar_runs_comes_first(page: Page, run_folder: RunFolder) -> None:
    run_folder.finished()
    asked = config(epochs=12)
    assert not estimates.time_here([asked]).pending
    found = no_exception(page("mnist"))
    assert re.search(r"about \d+ (s|min) here$", line(found))
    assert "60 s" not in line(found)


def test_unknown_time_does_not_prevent_training(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(estimates, "estimate", fail)
    app = no_exception(page("mnist"))
    assert estimates.wait(300)
    assert line(no_exception(app.run())).endswith("time unknown")
    assert not app.button(key="train").disabled


# The queue ----------------------------------------------------------------------------------------------------------


def test_a_queued_run_moves_earlier_and_later(page: Page, services: Services) -> None:
    slow = experiments.get("mnist").configure("ace", device="cpu")
    runs = [services.launcher.start(slow) for _ in range(4)]
    first, second, third = (run.id for run in runs[1:])
    app = no_exception(page("runs", runs=third))
    assert "3rd in queue" in page_text(app)
    assert app.button(key="runs/later").disabled
    app.button(key="runs/earlier").click().run()
    assert services.launcher.queue() == [first, third, second]
    no_exception(app).button(key="runs/later").click().run()
    assert services.launcher.queue() == [first, second, third]
    no_exception(app).button(key="runs/first").click().run()
    assert services.launcher.queue() == [third, first, second]
    for run in reversed(runs):
        services.launcher.stop(run)
    assert services.launcher.wait(60)


def test_a_queued_run_says_when_it_starts_and_can_be_next(page: Page, services: Services,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "measured", lambda config, entries: RunTime(60.0))
    slow = experiments.get("mnist").configure("ace", device="cpu")
    runs = [services.launcher.start(slow) for _ in range(4)]
    queued = services.launcher.jobs
    monkeypatch.setattr(services.launcher, "jobs", lambda: [job for job in queued() if not job.running])
    first, second, third = (run.id for run in runs[1:])
    app = no_exception(page("mnist", runs=third))
    seconds = RunTime(60.0).seconds(slow)
    assert f"3rd in queue, starts in about {labels.duration(2 * seconds)}" in page_text(app)
    app.button(key=f"Run next/{third}").click().run()
    assert services.launcher.queue() == [third, first, second]
    assert f"Run next/{third}" not in {button.key for button in no_exception(app).button}
    for run in reversed(runs):
        services.launcher.stop(run)
    assert services.launcher.wait(60)


def test_runs_queued_before_an_error_are_shown(page: Page, services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = services.launcher.start, list[str]()

    def refused_twice(given: Config) -> Run:
        if started:
            raise UserError("the disk is full")
        run = start(given)
        started.append(run.id)
        return run

    monkeypatch.setattr(services.launcher, "start", refused_twice)
    app = page("mnist")
    app.text_input(key="seeds/").set_value("0 1").run()
    app.button(key="train").click().run()
    assert shown(no_exception(app)) == started
    assert shown(app.run()) == started
    services.launcher.stop(services.store.open(started[0]))
    assert services.launcher.wait(60)


def test_a_run_that_is_run_again_is_shown_beside_seven_others(page: Page, run_folder: RunFolder,
                                                              services: Services) -> None:
    finished_runs(services.store.root, shown_runs.MAX_RUNS)
    old = [e.id for e in services.catalogue.entries() if not e.recorded][:shown_runs.MAX_RUNS]
    app = no_exception(page("mnist", runs=",".join(old)))
    app.button(key=f"Run again/{old[0]}").click().run()
    (new,) = {e.id for e in services.catalogue.busy_entries()}
    assert shown(no_exception(app)) == [new, *old[:-1]]
    services.launcher.stop(services.store.open(new))
    assert services.launcher.wait(60)
