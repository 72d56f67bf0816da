"""Which runs of a queue are trained as one computation."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from quick_settings import quick_settings

from acenode import experiments
from acenode.config import Config
from acenode.execution import launcher as launcher_module
from acenode.execution.launcher import Launcher
from acenode.execution.seed_group import Seat, fallback_line, separate_reason
from acenode.runs.store import Run, RunStore

LIMIT = 60.0  # seconds


class StartedRuns:
    """Stands in for training: a run ends once it is released."""

    def __init__(self) -> None:
        self.release, self.changed = threading.Event(), threading.Condition()
        self.groups: list[tuple[int, int]] = []  # seed, and how many seeds its computation has

    def attempt(self, run: Run, data_root: Path, stop: threading.Event, device: str, seat: Seat | None) -> None:
        with self.changed:
            self.groups.append((run.config().seed, 1 if seat is None else len(seat.group.seats)))
            self.changed.notify_all()
        self.release.wait(LIMIT)
        run.set_state("finished")

    def wait_for(self, count: int) -> list[tuple[int, int]]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.groups) >= count, LIMIT)
            return sorted(self.groups)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> StartedRuns:
    runs = StartedRuns()
    monkeypatch.setattr(launcher_module, "attempt", runs.attempt)
    return runs


@pytest.fixture
def launcher(tmp_path: Path, started: StartedRuns) -> Iterator[Launcher]:
    made = Launcher(RunStore(tmp_path), tmp_path)
    yield made
    started.release.set()
    made.close()


def configure(method: str, seed: int, **given: Any) -> Config:
    return experiments.get("mnist").configure(method, seed=seed, **quick_settings(method, {"device": "cpu", **given}))


def test_seeds_that_are_queued_together_start_together(launcher: Launcher, started: StartedRuns) -> None:
    with launcher.queue_together():
        for seed in range(3):
            launcher.start(configure("odenet", seed))
        other = launcher.start(configure("odenet", 3, learning_rate=0.01))
    assert started.wait_for(3) == [(0, 3), (1, 3), (2, 3)]
    assert launcher.queue() == [other.id]  # the device trains one computation at a time
    assert launcher.device_states()[0].running == 1  # they share one worker
    started.release.set()
    assert started.wait_for(4)[3] == (3, 1)


def test_seeds_that_are_queued_one_by_one_are_ordinary_runs(launcher: Launcher, started: StartedRuns) -> None:
    """What a run computes does not depend on how fast the next one was queued."""
    first, *others = (launcher.start(configure("odenet", seed)) for seed in range(3))
    assert started.wait_for(1) == [(0, 1)]
    assert launcher.queue() == [run.id for run in others]
    started.release.set()
    assert started.wait_for(3) == [(0, 1), (1, 1), (2, 1)]
    assert not (first.path / "log.txt").exists()


def test_seeds_of_an_unsupported_method_train_one_after_another_and_say_why(launcher: Launcher,
                                                                            started: StartedRuns) -> None:
    with launcher.queue_together():
        runs = [launcher.start(configure("resnet", seed)) for seed in range(3)]
    assert started.wait_for(1) == [(0, 1)]
    started.release.set()
    assert started.wait_for(3) == [(0, 1), (1, 1), (2, 1)]
    line = fallback_line("this method has no ODE layer between an encoder and a read-out")
    for run in runs:
        assert (run.path / "log.txt").read_text().count(line) == 1


@pytest.mark.parametrize(("experiment", "method", "given", "device", "reason"), [
    ("mnist", "ace", {}, "cpu", None), ("mnist", "ace", {"attention": "none"}, "cpu", None),
    ("mnist", "resnet", {}, "cpu", "this method has no ODE layer between an encoder and a read-out"),
    *(("mnist", method, given, "cpu", "it needs our own Runge–Kutta steps with gradient=backprop")
      for method, given in (("rknet", {}), ("odenet", {"solver": "explicit_adams"}),
                            ("odenet", {"gradient": "checkpointed"}), ("odenet", {"engine": "reference"}))),
    *(("mnist", "ace", given, "cpu", "the model keeps running averages, which belong to one seed")
      for given in ({"initial": "correlation"}, {"attention": "fixed"})),
    *((experiment, "ace", {}, "cpu", "this model is not an encoder, an ODE layer and a read-out")
      for experiment in ("physionet", "ushcn")),
    ("mnist", "ace", {}, "cuda:0", "on a GPU every run has a process of its own")])
def test_which_seeds_are_one_computation(experiment: str, method: str, given: dict[str, Any], device: str,
                                         reason: str | None) -> None:
    assert separate_reason(experiments.get(experiment).configure(method, **given), device) == reason
