"""What a study still trains, in which order and for how long, before and while it runs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
from study_entries import attention_study, finished, one

from acenode.compare.study_grid import make_grid, preset
from acenode.config import Config
from acenode.errors import UserError
from acenode.execution.study_run import StudyTime, check_data, plan, queue_study, time_left
from acenode.runs.store import Run


class StartedRuns:
    """A launcher that trains nothing."""

    def __init__(self) -> None:
        self.resumed: list[Run] = []

    def queue_together(self) -> AbstractContextManager[None]:
        return nullcontext()

    def trains_together(self, config: Config) -> bool:
        return False

    def start(self, config: Config) -> Run:
        return Run(Path(f"new-{config.get('attention')}"))

    def resume(self, run: Run) -> None:
        self.resumed.append(run)

    def stop(self, run: Run) -> None: ...

    def wait(self, timeout: float | None = None) -> bool:
        return True


def test_a_plan_has_what_is_missing_the_first_seeds_first_and_on_the_chosen_device() -> None:
    study = attention_study(seeds=(0, 1))
    runs = [*finished(study, {0: [0.9]}), one(study, 1, 0, None, state="running"),
            one(study, 2, 0, None, state="stopped", progress=0.75)]
    found = plan(make_grid(study, runs), "cpu", lambda config: 100.0)
    assert [run.title for run in found] == [
        "no attention, seed 0", "evolving attention, seed 1", "fixed attention, seed 1", "no attention, seed 1"]
    assert [run.seconds for run in found] == [25.0, 100.0, 100.0, 100.0]
    assert {run.config.device for run in found} == {"cpu"}


def test_queueing_starts_what_is_missing_and_resumes_what_is_unfinished() -> None:
    study = attention_study(seeds=(0,))
    runs = [*finished(study, {0: [0.9]}), one(study, 1, 0, None, state="stopped", progress=0.5)]
    launcher = StartedRuns()
    queued = queue_study(make_grid(study, runs), launcher, runs, device="cpu")
    assert [run.id for run in queued] == ["run-1-0", "new-none"]
    assert launcher.resumed == [runs[1].run]
    assert queue_study(make_grid(study, finished(study, {g: [0.9] for g in range(3)})), launcher, []) == []


def test_the_time_is_that_of_missing_runs_and_of_what_is_left_of_others() -> None:
    study = attention_study(seeds=(0, 1))
    empty = time_left(make_grid(study, []), lambda config: 100.0)
    assert (empty.runs, empty.seconds) == (6, 600.0)
    runs = [*finished(study, {0: [0.9, 0.8]}), one(study, 1, 0, None, state="running", progress=0.5, seconds_left=7.0),
            one(study, 1, 1, None, state="stopped", progress=0.75)]
    left = time_left(make_grid(study, runs), lambda config: 100.0)
    assert (left.runs, left.seconds) == (4, 7.0 + 25.0 + 200.0)
    assert time_left(make_grid(study, runs), lambda config: 100.0, workers=2).seconds == 116.0
    assert time_left(make_grid(study, runs), lambda config: 100.0, workers=9).seconds == 100.0  # the longest run


def test_times_are_corrected_by_the_runs_that_have_finished() -> None:
    study = attention_study(seeds=(0, 1))
    seconds = [100.0]
    grid = make_grid(study, finished(study, {0: [0.9]}))
    assert time_left(grid, lambda config: seconds[0]).seconds == 500.0
    seconds[0] = 10.0
    assert time_left(grid, lambda config: seconds[0]).seconds == 50.0


def test_times_in_words() -> None:
    assert StudyTime(0, 0.0).text == "all runs are finished"
    assert StudyTime(1, 40.0, basis="from 1 similar finished run").text == (
        "1 run, about 40 s (from 1 similar finished run)")
    assert StudyTime(9, 600.0, 2, 3).text == "9 runs, about 10 min 3 at a time and 2 of unknown time"
    assert StudyTime(9, None, 9).text == "9 runs, time unknown"


def test_missing_data_is_an_error_that_says_how_to_get_it(tmp_path: Path) -> None:
    check_data(preset("mnist", "host"), tmp_path)
    with pytest.raises(UserError, match="acenode data get mnist"):
        check_data(preset("mnist", "host", "full"), tmp_path)
