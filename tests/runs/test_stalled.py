"""A mount that has stalled: reading from it blocks, and nobody else waits for it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acenode import UserError, experiments
from acenode.cli import main
from acenode.execution.execute import create
from acenode.execution.launcher import Launcher
from acenode.player import data as player_data
from acenode.runs import stalled
from acenode.runs.catalogue import Catalogue
from acenode.runs.entry import UNREADABLE
from acenode.runs.stalled import each_within_limit, is_stalled, within_limit
from acenode.runs.store import Run, RunStore

WAIT = 60.0  # seconds, for what ends at once


@pytest.fixture(autouse=True)
def _short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalled, "LIMIT", 0.2)


class Mount:
    """Blocks every look at the paths of one folder, as a stalled mount does, until it answers again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder: Path | None = None
        self.answers = threading.Event()
        self.blocked: list[str] = []
        for name in ("stat", "lstat", "open", "scandir", "listdir"):
            monkeypatch.setattr(os, name, self._through(getattr(os, name)))

    def _through(self, real: Any) -> Any:
        def call(path: Any = ".", *given: Any, **named: Any) -> Any:
            if self.folder is not None and isinstance(path, str | Path) and Path(path).is_relative_to(self.folder):
                self.blocked.append(threading.current_thread().name)
                assert self.answers.wait(WAIT)
            return real(path, *given, **named)

        return call


@pytest.fixture
def mount(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mount]:
    made = Mount(monkeypatch)
    yield made
    made.answers.set()


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    made = RunStore(tmp_path / "runs")
    for _ in range(3):
        create(made, experiments.get("mnist").configure("resnet"))
    return made


def test_a_read_that_does_not_return_is_given_up_and_not_tried_again() -> None:
    answers, tries = threading.Event(), []

    def read() -> str:
        tries.append(threading.current_thread().name)
        assert answers.wait(WAIT)
        return "read"

    for _ in range(3):
        with pytest.raises(TimeoutError, match="does not answer"):
            within_limit("place", read)
    assert len(tries) == 1
    assert tries[0] != threading.current_thread().name
    assert within_limit("other", lambda: 7) == 7
    answers.set()
    _wait_until(lambda: not is_stalled("place"))
    assert within_limit("place", read) == "read"


def test_errors_of_a_read_are_raised_and_nested_reads_need_no_further_thread() -> None:
    with pytest.raises(ZeroDivisionError):
        within_limit("place", lambda: 1 / 0)
    with pytest.raises(TimeoutError, match="of its own"):
        within_limit("place", lambda: (_ for _ in ()).throw(TimeoutError("of its own")))
    assert not is_stalled("place")
    names = within_limit("a", lambda: (threading.current_thread().name,
                                       within_limit("b", lambda: threading.get_ident()) == threading.get_ident(),
                                       each_within_limit(["c"], lambda _: threading.get_ident())))
    assert names[1]


def test_of_many_places_only_those_that_stall_are_left_out() -> None:
    answers = threading.Event()

    def read(place: str) -> str:
        assert place not in ("2", "5") or answers.wait(WAIT)
        return place

    places = [str(i) for i in range(8)]
    for _ in range(2):
        assert each_within_limit(places, read) == ["0", "1", None, "3", "4", None, "6", "7"]
    answers.set()
    _wait_until(lambda: not is_stalled("2") and not is_stalled("5"))
    assert each_within_limit(places, read) == places
    with pytest.raises(ZeroDivisionError):
        each_within_limit(places, lambda place: 1 / 0)


def test_a_stalled_run_is_one_unreadable_entry(store: RunStore, mount: Mount,
                                               capsys: pytest.CaptureFixture[str]) -> None:
    listed = Catalogue(store)
    before = listed.entries()
    run = before[1].run
    mount.folder = run.path
    for catalogue in (listed, listed, Catalogue(store)):
        found = {e.id: e for e in catalogue.entries()}
        assert found.pop(run.id).state == UNREADABLE
        assert [e.state for e in found.values()] == ["queued", "queued"]
    entry = listed.entry(run.id)
    assert entry is not None
    assert "its disk or network mount does not answer" in (entry.error or "")
    assert main(["list", "--runs", str(store.root)]) == 0
    assert "does not answer" in capsys.readouterr().out
    assert main(["show", run.id, "--runs", str(store.root)]) == 2
    assert "does not answer" in capsys.readouterr().err
    assert "does not answer" in player_data.describe(run)["why"]
    with pytest.raises(UserError, match="does not answer"):
        player_data.epoch_block(run, 0)
    launcher = Launcher(store, store.root)
    with pytest.raises(UserError, match="does not answer"):
        launcher.delete(Run(run.path))
    assert launcher.recover() == []
    launcher.close()
    assert len(mount.blocked) <= 2  # nobody waits a second time
    mount.answers.set()
    _wait_until(lambda: not is_stalled(run.path))
    assert listed.entries() == before


def test_a_stalled_folder_of_runs_is_not_an_empty_one(store: RunStore, mount: Mount,
                                                      capsys: pytest.CaptureFixture[str]) -> None:
    listed = Catalogue(store)
    before = listed.entries()
    mount.folder = store.root
    assert listed.entries() == []
    with pytest.raises(UserError, match="does not answer"):
        store.check_readable()
    assert main(["list", "--runs", str(store.root)]) == 2
    caught = capsys.readouterr()
    assert "does not answer" in caught.err
    assert "no runs" not in caught.out
    mount.answers.set()
    _wait_until(lambda: not is_stalled(store.root))
    assert listed.entries() == before


def _wait_until(condition: Any) -> None:
    for _ in range(int(WAIT / 0.02)):
        if condition():
            return
        threading.Event().wait(0.02)
    raise AssertionError("it never happened")
