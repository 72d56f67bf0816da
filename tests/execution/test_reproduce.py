"""Training a plan: order, workers, the time limit, stopping, and going on where it stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from quick_settings import QUICK

from acenode import experiments
from acenode.compare.paper import CELLS
from acenode.compare.reproduction import PlannedRun
from acenode.config import Config
from acenode.errors import UserError
from acenode.execution import reproduce
from acenode.execution.devices import quick_device
from acenode.execution.launcher import Launcher
from acenode.execution.reproduce import Event, Reproduction, default_workers
from acenode.runs.catalogue import Catalogue
from acenode.runs.store import Run, RunStore

CELL = CELLS["mnist/resnet/accuracy"]


def planned(seed: int = 0, seconds: float | None = None, **given: Any) -> PlannedRun:
    """Plan a run on the bundled digits that takes seconds."""
    settings = {**QUICK, "device": "cpu", **given}
    return PlannedRun(experiments.get("mnist").configure("resnet", seed=seed, **settings), (CELL,), 0, seconds=seconds)


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
        return False

    def start(self, config: Config) -> Run:
        run = self.store.create(config, {})
        self.calls.append(("start", config.seed))
        self._begin(run)
        return run

    def resume(self, run: Run) -> None:
        self.calls.append(("resume", run.config().seed))
        self._begin(run)

    def _begin(self, run: Run) -> None:
        state = self.state(run.config())
        run.set_state(state, error="no luck" if state == "failed" else None)
        if state == "running":
            self.busy[run.id] = run
            self.most = max(self.most, len(self.busy))

    def stop(self, run: Run) -> None:
        self.calls.append(("stop", run.config().seed))
        run.set_state("stopped", progress=0.5)
        self.busy.pop(run.id)

    def wait(self, timeout: float | None = None) -> bool:
        return True


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path)


def test_runs_are_trained_in_order_and_a_failure_fails_one_only(store: RunStore) -> None:
    launcher = InstantLauncher(store, lambda config: "failed" if config.seed == 1 else "finished")
    events: list[Event] = []
    found = Reproduction([planned(i) for i in (2, 1, 0)], launcher, Catalogue(store), on_event=events.append).run()
    assert launcher.calls == [("start", 2), ("start", 1), ("start", 0)]
    assert (len(found.finished), list(found.failed.values()), found.left) == (2, ["no luck"], [])
    assert [e.kind for e in events] == ["started", "finished", "started", "failed", "started", "finished"]


def test_stopped_runs_are_resumed_and_trained_ones_left_alone(store: RunStore) -> None:
    catalogue = Catalogue(store)
    stop = threading.Event()
    launcher = InstantLauncher(store, lambda config: "running")
    timer = threading.Timer(0.2, stop.set)
    timer.start()
    found = Reproduction([planned(i) for i in range(4)], launcher, catalogue, workers=3).run(stop)
    assert (len(found.stopped), len(found.left), launcher.most) == (3, 1, 3)
    again = InstantLauncher(store)
    plan = [planned(i) for i in range(4)]
    found = Reproduction(plan, again, catalogue).run()
    assert again.calls == [("resume", 0), ("resume", 1), ("resume", 2), ("start", 3)]
    assert len(found.finished) == 4
    assert len(list(store)) == 4


def test_seeds_of_one_computation_start_together_and_need_one_worker(store: RunStore) -> None:
    class Grouping(InstantLauncher):
        def trains_together(self, config: Config) -> bool:
            return config.get("learning_rate") == 0.1

    launcher, stop = Grouping(store, lambda config: "running"), threading.Event()
    plan = [planned(seed, learning_rate=rate) for seed in range(3) for rate in (0.1, 0.2)]
    threading.Timer(0.2, stop.set).start()
    Reproduction(plan, launcher, Catalogue(store), workers=2).run(stop)
    assert [call for call in launcher.calls if call[0] == "start"] == [("start", 0), ("start", 0), ("start", 1),
                                                                       ("start", 2)]


def test_a_run_that_another_process_trained_meanwhile_is_skipped(store: RunStore) -> None:
    launcher = InstantLauncher(store)
    reproduction = Reproduction([planned(0), planned(1)], launcher, Catalogue(store))
    store.create(planned(0).config, {}).set_state("running")
    found = reproduction.run()
    assert launcher.calls == [("start", 1)]
    assert found.elsewhere == [planned(0).title]


def test_the_time_limit_stops_runs_and_starts_only_what_can_get_somewhere(
        store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "STOP_SECONDS", 0.5)
    monkeypatch.setattr(reproduce, "START_SECONDS", 60.0)
    launcher = InstantLauncher(store, lambda config: "running")
    plan = [planned(0), planned(1, seconds=1e4), planned(2, seconds=0.1)]
    start = time.monotonic()
    found = Reproduction(plan, launcher, Catalogue(store), workers=3, seconds=1.0).run()
    assert time.monotonic() - start < 1.0
    assert launcher.calls == [("start", 2), ("stop", 2)]  # the only one that can finish in time
    assert [run.config.seed for run in found.left] == [0, 1]
    assert Reproduction(plan, launcher, Catalogue(store), seconds=100).seconds_left() > 99


def test_a_run_that_cannot_start_is_a_failure(store: RunStore) -> None:
    class Refusing(InstantLauncher):
        def start(self, config: Config) -> Run:
            raise UserError("there is no CUDA device here")

    found = Reproduction([planned()], Refusing(store), Catalogue(store)).run()
    assert list(found.failed.values()) == ["there is no CUDA device here"]


def test_an_interrupted_reproduction_continues_from_checkpoints(store: RunStore, tmp_path: Path,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop a real run after its first epoch, then finish it: it is one run, trained from its checkpoint."""
    monkeypatch.setattr(reproduce, "POLL_SECONDS", 0.02)
    plan, stop = [planned(epochs=5)], threading.Event()

    def after_an_epoch(now: Reproduction) -> None:
        if any(record["kind"] == "epoch" for run, _ in now.running.values() for record in run.metrics()[0]):
            stop.set()

    for event, listener in ((stop, after_an_epoch), (None, lambda now: None)):
        launcher = Launcher(store, tmp_path)
        try:
            found = Reproduction(plan, launcher, Catalogue(store), on_progress=listener).run(event)
        finally:
            launcher.close()
    (run,) = store
    assert found.finished == [run.id]
    assert "resumed on cpu" in (run.path / "log.txt").read_text()
    assert [r["epoch"] for r in run.metrics()[0] if r["kind"] == "epoch"] == [1, 2, 3, 4, 5]


def test_a_gpu_takes_more_runs_than_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, cpu, cuda in ((1, 1, 1), (4, 2, 2), (16, 8, 6)):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        assert (default_workers("cpu"), default_workers("cuda")) == (cpu, cuda)


def test_the_device_is_found_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert quick_device("auto", tmp_path) == ("cpu", None)
    assert quick_device("cuda", tmp_path) == ("cuda", None)
    folder = tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text("Model: \t\t NVIDIA H200\nIRQ: 12\n")
    assert quick_device("auto", tmp_path) == ("cuda", "NVIDIA H200")
    assert quick_device("cpu", tmp_path) == ("cpu", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert quick_device("auto", tmp_path) == ("cpu", None)
