"""Training studies and plans: order, workers, the time limit, stopping, and going on where it stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from quick_settings import QUICK
from study_entries import attention_study, finished, one

from acenode import experiments
from acenode.compare.paper import CELLS
from acenode.compare.reproduction import PlannedRun
from acenode.compare.study_grid import make_grid, preset
from acenode.config import Config
from acenode.errors import UserError
from acenode.execution import study_run
from acenode.execution.study_run import Event, PlanTrainer, StudyTime, check_data, plan, queue_study, time_left
from acenode.runs.catalogue import Catalogue
from acenode.runs.store import Run, RunStore


class InstantLauncher:
    """A launcher whose runs finish, or fail, as soon as their state is set."""

    def __init__(self, store: RunStore, state: Callable[[Config], str] = lambda config: "finished") -> None:
        self.store, self.state = store, state
        self.calls: list[tuple[str, int]] = []
        self.most = 0
        self.busy: dict[str, Run] = {}

    def queue_together(self) -> AbstractContextManager[None]:
        return nullcontext()

    def trains_together(self, config: Config) -> bool:
        return config.get("learning_rate") == 0.3

    def start(self, config: Config) -> Run:
        if self.state(config) == "refused":
            raise UserError("there is no CUDA device here")
        self.calls.append(("start", config.seed))
        return self._begin(self.store.create(config, {}))

    def resume(self, run: Run) -> None:
        self.calls.append(("resume", run.config().seed))
        self._begin(run)

    def _begin(self, run: Run) -> Run:
        state = self.state(run.config())
        run.set_state(state, error="no luck" if state == "failed" else None)
        if state == "running":
            self.busy[run.id] = run
            self.most = max(self.most, len(self.busy))
        return run

    def stop(self, run: Run) -> None:
        self.calls.append(("stop", run.config().seed))
        run.set_state("stopped", progress=0.5)
        self.busy.pop(run.id)

    def wait(self, timeout: float | None = None) -> bool:
        return True


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path)


# Studies ------------------------------------------------------------------------------------------------------------


def test_a_plan_has_what_is_missing_the_first_seeds_first_and_on_the_chosen_device() -> None:
    study = attention_study(seeds=(0, 1))
    runs = [*finished(study, {0: [0.9]}), one(study, 1, 0, None, state="running"),
            one(study, 2, 0, None, state="stopped", progress=0.75)]
    found = plan(make_grid(study, runs), "cpu", lambda config: 100.0)
    assert [run.title for run in found] == [
        "no attention, seed 0", "evolving attention, seed 1", "fixed attention, seed 1", "no attention, seed 1"]
    assert [run.seconds for run in found] == [25.0, 100.0, 100.0, 100.0]
    assert {run.config.device for run in found} == {"cpu"}


def test_queueing_starts_what_is_missing_and_resumes_what_is_unfinished(store: RunStore) -> None:
    study = attention_study(seeds=(0,))
    grid = make_grid(study, [])
    half = store.create(grid.rows[1].config, {})
    half.set_state("stopped", progress=0.5)
    runs = [*finished(study, {0: [0.9]}), *Catalogue(store).entries()]
    launcher = InstantLauncher(store)
    queued = queue_study(make_grid(study, runs), launcher, runs)
    assert [run.config().get("attention") for run in queued] == ["fixed", "none"]
    assert (queued[0].id, launcher.calls) == (half.id, [("resume", 0), ("start", 0)])
    assert queue_study(make_grid(study, finished(study, {g: [0.9] for g in range(3)})), launcher, []) == []


def test_the_time_is_that_of_missing_runs_and_of_what_is_left_of_others() -> None:
    study = attention_study(seeds=(0, 1))
    empty = time_left(make_grid(study, []), lambda config: 100.0)
    assert (empty.runs, empty.seconds) == (6, 600.0)
    runs = [*finished(study, {0: [0.9, 0.8]}), one(study, 1, 0, None, state="running", progress=0.5, seconds_left=7.0),
            one(study, 1, 1, None, state="stopped", progress=0.75)]
    for workers, seconds in ((1, 7.0 + 25.0 + 200.0), (2, 116.0), (9, 100.0)):  # at last the longest run
        left = time_left(make_grid(study, runs), lambda config: 100.0, workers=workers)
        assert (left.runs, left.seconds, left.unknown) == (4, seconds, 0)
    assert time_left(make_grid(study, runs), lambda config: None).seconds == 7.0  # a running run knows


def test_times_in_words() -> None:
    assert StudyTime(0, 0.0).text == "all runs are finished"
    assert StudyTime(1, 40.0, basis="from 1 similar finished run").text == (
        "1 run, about 40 s (from 1 similar finished run)")
    assert StudyTime(9, 600.0, 2, 3).text == "9 runs, about 10 min 3 at a time and 2 of unknown time"
    assert StudyTime(9, None, 9, basis="why").text == "9 runs, time unknown (why)"


def test_missing_data_is_an_error_that_says_how_to_get_it(tmp_path: Path) -> None:
    check_data(preset("mnist", "host"), tmp_path)
    with pytest.raises(UserError, match="acenode data get mnist"):
        check_data(preset("mnist", "host", "full"), tmp_path)


# Plans --------------------------------------------------------------------------------------------------------------


def planned(seed: int = 0, seconds: float | None = None, **given: Any) -> PlannedRun:
    """Plan a run on the bundled digits that takes seconds."""
    settings = {**QUICK, "device": "cpu", **given}
    return PlannedRun(experiments.get("mnist").configure("resnet", seed=seed, **settings),
                      (CELLS["mnist/resnet/accuracy"],), 0, seconds=seconds)


def test_runs_are_trained_in_order_and_a_failure_fails_one_only(store: RunStore) -> None:
    states = {1: "failed", 3: "refused"}
    launcher = InstantLauncher(store, lambda config: states.get(config.seed, "finished"))
    events: list[Event] = []
    found = PlanTrainer([planned(i) for i in (2, 1, 0, 3)], launcher, Catalogue(store), on_event=events.append).run()
    assert launcher.calls == [("start", 2), ("start", 1), ("start", 0)]
    assert (len(found.finished), list(found.failed.values()), found.left) == (
        2, ["no luck", "there is no CUDA device here"], [])
    assert [e.kind for e in events] == ["started", "finished", "started", "failed", "started", "finished", "failed"]


def test_stopped_runs_are_resumed_and_trained_ones_left_alone(store: RunStore) -> None:
    stop, launcher = threading.Event(), InstantLauncher(store, lambda config: "running")
    found = PlanTrainer([planned(i) for i in range(4)], launcher, Catalogue(store), workers=3,
                         on_progress=lambda _: stop.set()).run(stop)
    assert (len(found.stopped), len(found.left), launcher.most) == (3, 1, 3)
    again = InstantLauncher(store)
    found = PlanTrainer([planned(i) for i in range(4)], again, Catalogue(store)).run()
    assert again.calls == [("resume", 0), ("resume", 1), ("resume", 2), ("start", 3)]
    assert (len(found.finished), len(list(store))) == (4, 4)


def test_seeds_of_one_computation_start_together_and_need_one_worker(store: RunStore) -> None:
    launcher, stop = InstantLauncher(store, lambda config: "running"), threading.Event()
    plan = [planned(seed, learning_rate=rate) for seed in range(3) for rate in (0.3, 0.2)]
    PlanTrainer(plan, launcher, Catalogue(store), workers=2, on_progress=lambda _: stop.set()).run(stop)
    assert [call for call in launcher.calls if call[0] == "start"] == [("start", 0), ("start", 0), ("start", 1),
                                                                       ("start", 2)]


def test_a_run_that_another_process_trained_meanwhile_is_skipped(store: RunStore) -> None:
    launcher = InstantLauncher(store)
    trainer = PlanTrainer([planned(0), planned(1)], launcher, Catalogue(store))
    store.create(planned(0).config, {}).set_state("running")
    assert trainer.run().elsewhere == [planned(0).title]
    assert launcher.calls == [("start", 1)]


def test_the_time_limit_stops_runs_and_starts_only_what_can_get_somewhere(
        store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_run, "STOP_SECONDS", 0.5)
    launcher = InstantLauncher(store, lambda config: "running")
    plan = [planned(0), planned(1, seconds=1e4), planned(2, seconds=0.1)]
    found = PlanTrainer(plan, launcher, Catalogue(store), workers=3, seconds=1.0).run()
    assert launcher.calls == [("start", 2), ("stop", 2)]  # the only one that can finish in time
    assert [run.config.seed for run in found.left] == [0, 1]
