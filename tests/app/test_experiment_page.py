"""An experiment's page: which runs it shows, the form, the line that trains and its time, the queue, and links."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import catalogue_entries
import pytest
from acenode_app import components, estimates, labels
from acenode_app.experiment import live_runs
from acenode_app.services import Services
from conftest import Page, RunFolder, config, field, no_exception, page_text, titled, wait_for_times
from streamlit.testing.v1 import AppTest

from acenode import experiments
from acenode.compare.reproduction import RunTime
from acenode.config import Config
from acenode.errors import UserError
from acenode.execution.estimate import Estimate
from acenode.runs.store import Run


def line(app: AppTest) -> str:
    """Return the sentence that says what Train trains."""
    return next(m.value for m in app.markdown if m.value.startswith("**") and " on the " in m.value).replace("\\", "")


def shown(app: AppTest) -> list[str]:
    return titled(app.multiselect, "Runs shown").value  # type: ignore[no-any-return]


def test_own_runs_come_before_recorded_ones(run_folder: RunFolder) -> None:
    run_folder.finished()
    entries = run_folder.services.catalogue.entries()
    recorded = [replace(e, id=f"recorded-{e.seed}", recorded=True, created=9e9) for e in entries if e.method == "ace"]
    assert live_runs.first_choice([*recorded, *entries]) == [entries[0].id]
    assert live_runs.first_choice(recorded) == ["recorded-0"]
    assert live_runs.first_choice([]) == []


def test_of_finished_runs_of_named_variables_ace_comes_first() -> None:
    plain, mixed, old, new = (catalogue_entries.entry(method, experiment="predator-prey", seed=seed)
                              for seed, method in enumerate(("no-attention", "mixed", "ace", "ace")))
    fixed = catalogue_entries.entry("ace", experiment="predator-prey", seed=9, attention="fixed")
    failed = replace(new, id="failed", state="failed")
    assert live_runs.first_choice([plain, failed, mixed, fixed, new, old], ace_first=True) == [new.id]
    assert live_runs.first_choice([plain, failed, fixed], ace_first=True) == [fixed.id]
    assert live_runs.first_choice([failed, plain, mixed], ace_first=True) == [plain.id]
    assert live_runs.first_choice([plain, new]) == [plain.id]


def trial_of(services: Services, seed: int) -> str:
    run = services.store.create(config(seed=seed), {"search": "rates", "trial": seed})
    run.set_state("finished")
    return run.id


def test_trials_of_a_search_are_offered_on_demand(page: Page, services: Services, run_folder: RunFolder) -> None:
    trials = [trial_of(services, seed) for seed in range(3)]
    assert shown(page("mnist")) == trials[-1:]  # there is nothing else
    run_folder.finished()
    newest = next(e.id for e in services.catalogue.entries() if e.state == "finished" and not e.search)
    later = trial_of(services, 3)
    app = page("mnist")
    assert shown(app) == [newest]
    chooser = titled(app.multiselect, "Runs shown")
    assert not {labels.label(e) for e in services.catalogue.entries() if e.search} & set(chooser.options)
    app = no_exception(titled(app.checkbox, "Offer trials of searches as well (4)").check().run())
    assert shown(app) == [newest]
    assert len(titled(app.multiselect, "Runs shown").options) == len(chooser.options) + 4
    assert shown(page("mnist", runs=later)) == [later]  # a link to a trial


def test_the_first_of_many_started_runs_are_shown(page: Page, services: Services) -> None:
    app = page("mnist", method="ODE-Net")
    app.text_input(key="seeds/").set_value("0-9").run()
    no_exception(app.button(key="train").click().run())
    assert {services.catalogue.entry(name).seed for name in shown(app)} == set(range(8))  # type: ignore[union-attr]
    assert len(services.launcher.queue()) == 2  # eight seeds are trained as one computation


@pytest.mark.parametrize("name", ["mnist", "compare", "runs"])
def test_links_to_missing_runs_say_so(name: str, page: Page, run_folder: RunFolder) -> None:
    run_folder.finished()
    app = page(name, runs="mnist-ace-gone")
    assert "mnist\\-ace\\-gone" in app.warning[0].value
    assert "mnist\\-ace\\-gone" in no_exception(app.run()).warning[0].value  # it stays
    found = next(iter(run_folder.services.store)).id
    assert not page(name, runs=found).warning


def test_title_follows_the_data_of_the_shown_runs_and_missing_data_can_be_downloaded(page: Page,
                                                                                     run_folder: RunFolder) -> None:
    run_folder.finished()
    full = page("mnist", data="full")
    assert "shown: sample (handwritten digits)" in full.title[0].value  # the form asks for full data
    assert "not on this machine" in page_text(full)
    assert full.button(key="download")
    assert full.button(key="train").disabled


def test_line_describes_the_run_and_marks_changed_settings(page: Page) -> None:
    app = page("mnist")
    assert line(app).startswith("**ACE-ODE-Net** on the sample, 12 epochs, seed 0, ")
    field(app, "text_input", "learning_rate").set_value("0.07").run()
    assert [w.label for w in app.text_input if "eed" in w.label] == ["Seeds"]  # one field, for the ablation set too
    app.text_input(key="seeds/").set_value("0 1").run()
    assert "changed: Learning rate = 0.07, 2 seeds" in line(no_exception(app))
    assert "Changed from 0.15" in page_text(app)
    assert app.button(key="train").label == "Train 2 runs"


def test_time_is_estimated_in_the_background(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    app = page("mnist")
    wait_for_times()
    assert line(no_exception(app.run())).endswith("seed 0, about 60 s here")
    app.text_input(key="seeds/").set_value("0-4").run()
    assert line(no_exception(app)).endswith("5 seeds, about 5 min here")

    def fail(*_: object) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(estimates, "estimate", fail)
    field(app, "text_input", "learning_rate").set_value("0.07").run()
    wait_for_times()
    assert line(no_exception(app.run())).endswith("time unknown")
    assert not app.button(key="train").disabled


@pytest.fixture
def waiting(services: Services) -> list[Run]:
    """Return three queued runs, behind one that trains."""
    slow = experiments.get("mnist").configure("ace", device="cpu")
    return [services.launcher.start(slow) for _ in range(4)][1:]


def test_a_queued_run_moves_earlier_and_later(page: Page, services: Services, waiting: list[Run]) -> None:
    first, second, third = (run.id for run in waiting)
    app = page("runs", runs=third)
    assert "3rd in queue" in page_text(app)
    assert app.button(key="runs/later").disabled
    for button, order in (("earlier", [first, third, second]), ("later", [first, second, third]),
                          ("first", [third, first, second])):
        no_exception(app).button(key=f"runs/{button}").click().run()
        assert services.launcher.queue() == order


def test_a_queued_run_says_when_it_starts_and_can_be_next(page: Page, services: Services, waiting: list[Run],
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "measured", lambda config, entries: RunTime(60.0))
    queued = services.launcher.jobs
    monkeypatch.setattr(services.launcher, "jobs", lambda: [job for job in queued() if not job.running])
    first, second, third = (run.id for run in waiting)
    app = page("mnist", runs=third)
    seconds = RunTime(60.0).seconds(waiting[0].config())
    assert f"3rd in queue, starts in about {labels.duration(2 * seconds)}" in page_text(app)
    app.button(key=f"Run next/{third}").click().run()
    assert services.launcher.queue() == [third, first, second]
    assert f"Run next/{third}" not in {button.key for button in no_exception(app).button}


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


def test_train_starts_and_shows_a_run_that_two_sessions_may_stop(page: Page, services: Services) -> None:
    app = page("mnist")
    no_exception(app.button(key="train").click().run())
    (entry,) = services.catalogue.entries()
    assert (entry.method, entry.data, entry.seed, entry.busy) == ("ace", "sample", 0, True)
    assert app.multiselect(key="shown/mnist/1").value == [entry.id]
    assert app.query_params["runs"] == entry.id
    second = page("mnist", runs=entry.id)
    no_exception(app.button(key=f"Stop/{entry.id}").click().run())
    assert services.launcher.wait(60)
    no_exception(second.button(key=f"Stop/{entry.id}").click().run())  # it still shows the button
    assert services.catalogue.entries()[0].state == "stopped"


def test_form_shows_only_settings_that_apply(page: Page) -> None:
    app = page("mnist", method="ResNet")
    labels = {w.label for kind in ("text_input", "number_input", "selectbox") for w in getattr(app, kind)}
    assert "Learning rate" in labels
    assert not labels & {"Solver", "Relative tolerance (rtol)", "Weight of the penalty (λ)"}
    app = page("mnist", method="ODE-Net")
    field(app, "selectbox", "solver").select("rk4").run()
    labels = {w.label for w in app.text_input}
    assert "Step size" in labels
    assert "Relative tolerance (rtol)" not in labels


@pytest.mark.parametrize(("kind", "key", "value", "words"), [
    ("text_input", "/learning_rate/", "20", "at most 10"), ("text_input", "/rtol/", "abc", "must be a number"),
    ("number_input", "/batch_size/", 0, "at least 1"), *(("text_input", "seeds/", text, "")
                                                         for text in ("", "1.5", "5-1", "3000000000"))])
def test_bad_values_are_rejected_with_a_reason(kind: str, key: str, value: object, words: str, page: Page) -> None:
    app = page("mnist")
    next(w for w in getattr(app, kind) if w.key and key in w.key).set_value(value).run()
    assert words in app.error[0].value
    assert app.button(key="train").disabled


def test_ablation_set_shows_count_and_time_before_queueing(page: Page, services: Services) -> None:
    app = page("mnist")
    app.session_state["grid/box"] = True  # opened
    app.multiselect(key="grid/methods").set_value(["odenet", "ace"]).run()
    app.multiselect(key="grid/attention").set_value(["evolving", "fixed", "none"]).run()
    app.text_input(key="seeds/").set_value("0 1").run()  # the form's seeds hold for the set too
    wait_for_times()
    no_exception(app.run())  # ODE-Net has no attention setting: (1 + 3) × 2 seeds
    assert "**8 runs**, about 8 min here, one after the other" in page_text(app)
    no_exception(app.button(key="grid/queue").click().run())
    assert len(services.catalogue.entries()) == 8


def test_no_click_is_lost_when_the_time_becomes_known_while_the_page_is_drawn(
        page: Page, services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    app = page("mnist", method="ODE-Net")
    pending, known = estimates.TimeHere(None, "", pending=True), estimates.TimeHere(60.0, "timing")
    answers = iter([pending])
    monkeypatch.setattr(estimates, "time_here", lambda configs: next(answers, known))
    app.button(key="train").click().run()
    assert len(services.catalogue.entries()) == 1


def test_the_time_of_several_runs_depends_on_how_they_are_trained(services: Services,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "measured", lambda config, entries: RunTime(60.0))
    assert services.launcher
    monkeypatch.setattr(services.launcher, "trains_together", lambda config: True)
    made = experiments.get("mnist").configure("ace", epochs=10)
    seeds = [replace(made, seed=seed) for seed in range(9)]
    three, nine = (estimates.time_here(seeds[:count]) for count in (3, 9))  # eight together, and one by itself
    assert (three.seconds, three.order) == (pytest.approx(1.3 * 600), ", seeds of the same settings together")
    assert nine.seconds == pytest.approx((1 + 0.15 * 7 + 1) * 600)
    trials = estimates.time_here([made] * 3)  # of a search
    assert (trials.seconds, trials.order) == (pytest.approx(1800), ", one after the other")
    monkeypatch.setattr(services.launcher, "trains_together", lambda config: False)
    found = estimates.time_here(seeds[:5])
    assert found.text + found.order == "about 50 min here, one after the other"
    monkeypatch.setattr(services.launcher, "devices", lambda device: 8)
    found = estimates.time_here(seeds[:5])
    assert found.text + found.order == "about 10 min here, on 5 GPUs"  # not less than one run takes
    assert estimates.time_here(seeds[:1]).order == ""


def test_the_rest_of_a_page_waits_once_until_the_player_has_the_data_of_all_runs(
        page: Page, run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    runs = [run.id for run in run_folder.finished()][:2]

    def read_data() -> None:
        for run in (*runs[1:], "another", runs[0]):
            order.append("data")
            components.data_sent(run)

    def show_player(*given: Any, **more: Any) -> None:
        if not order:
            threading.Timer(0.2, read_data).start()
        order.append("player")

    monkeypatch.setattr(components, "is_served", lambda: True)
    monkeypatch.setattr(components, "LIMIT", 60.0)
    monkeypatch.setattr(components, "player", show_player)
    monkeypatch.setattr(components, "curves", lambda *given, **more: order.append("curves"))
    app = page("mnist", runs=",".join(runs))
    no_exception(app.run())
    assert order == ["player", "data", "data", "data", "curves", "player", "curves"]


def test_requests_are_timed_one_at_a_time_and_the_newest_first(services: Services,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    configs = [experiments.get("mnist").configure("ace", epochs=2, batch_size=size) for size in (10, 20, 30)]
    timed: list[Config] = []
    begun, release = threading.Event(), threading.Event()

    def estimate(given: list[Config], *_: object) -> Estimate:
        timed.extend(given)
        begun.set()
        assert release.wait(60)
        return Estimate(1, 60.0, "timing", dict.fromkeys(given, 60.0))

    monkeypatch.setattr(estimates, "estimate", estimate)
    assert estimates.time_here(configs[:1]).pending
    assert begun.wait(60)
    for one in (*configs[1:], configs[1]):  # a page that is drawn again asks again
        assert estimates.time_here([one]).pending
    assert timed == configs[:1]
    release.set()
    wait_for_times()
    assert timed == [configs[0], configs[2], configs[1]]
    assert all(not estimates.time_here([one]).pending for one in configs)


def test_nothing_is_timed_while_a_similar_run_trains(services: Services, run_folder: RunFolder,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[Config] = []

    def estimate(given: list[Config], *_: object) -> Estimate:
        timed.extend(given)
        return Estimate(len(given), 0.0, "timing")

    monkeypatch.setattr(estimates, "estimate", estimate)
    run = run_folder.running(progress=0.001)
    asked = replace(run.config(), seed=5)
    assert "after the first epoch" in estimates.time_here([asked]).text
    estimates._time_in_background([asked])  # asked for before the run was started
    wait_for_times()
    assert timed == []
    assert estimates.time_here([asked]).pending
    run_folder.running(progress=0.01, epoch=1, epochs=100)  # after an epoch of it
    assert not estimates.time_here([asked]).pending
