"""Downloads in the background: their progress, their end, and how seldom files are read to report them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from acenode.data.images import ImageSource
from acenode.data.registry import Fetcher
from acenode.data.source import DataState
from acenode.errors import UserError


def test_a_download_goes_from_idle_to_done(tmp_path, official, mirror):
    made, gate = official("mnist"), threading.Event()
    last = list(made.files)[-1]
    mirror.answers[f"/{last}"].gate = gate
    fetcher = Fetcher(tmp_path, {"mnist": made.source})
    idle = fetcher.state("mnist")
    assert (idle.name, idle.phase, idle.done, idle.total, idle.error) == ("mnist", "idle", 0, None, None)
    assert idle.data.state == "missing"
    fetcher.start("mnist")
    while f"/{last}" not in mirror.requests:  # the others are complete
        assert fetcher.state("mnist").phase == "running"
    state = fetcher.state("mnist")
    size = len(made.files[state.label])
    assert (state.phase, state.done, state.total) == ("running", size, size)
    fetcher.start("mnist")  # a second press of the button
    gate.set()
    assert fetcher.wait("mnist", 30)
    state = fetcher.state("mnist")
    assert (state.phase, state.error, state.data.state) == ("done", None, "ready")
    assert len(mirror.requests) == len(made.files)
    assert made.source.load(tmp_path).x_train.shape[0] == 15


def test_a_failure_is_reported_and_can_be_retried(tmp_path, official, mirror):
    made = official("svhn")
    name, body = "test_32x32.mat", made.files["test_32x32.mat"]
    mirror.serve(name, body, status=503)
    fetcher = Fetcher(tmp_path, {"svhn": made.source})
    fetcher.start("svhn")
    assert fetcher.wait("svhn", 30)
    state = fetcher.state("svhn")
    assert (state.phase, state.data.state) == ("failed", "missing")
    assert "cannot download test_32x32.mat" in str(state.error)
    assert "503" in str(state.error)
    mirror.serve(name, body)
    fetcher.start("svhn")
    assert fetcher.wait("svhn", 30)
    assert fetcher.state("svhn").phase == "done"
    assert fetcher.state("svhn").error is None


def test_an_unexpected_error_ends_the_download_with_a_message(tmp_path, official, monkeypatch):
    def broken(*args: object, **kwargs: object) -> Path:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(ImageSource, "prepare", broken)
    fetcher = Fetcher(tmp_path, {"mnist": official("mnist").source})
    fetcher.start("mnist")
    assert fetcher.wait("mnist", 30)
    assert fetcher.state("mnist").phase == "failed"
    assert fetcher.state("mnist").error == "ZeroDivisionError: division by zero"


def test_files_are_checked_again_only_after_a_change(tmp_path, official, monkeypatch):
    made, checks = official("cifar10"), []
    check = ImageSource.check

    def count(*args: object) -> DataState:
        checks.append(args)
        return check(*args)  # type: ignore[arg-type]

    path = made.source.prepare(tmp_path)
    monkeypatch.setattr(ImageSource, "check", count)
    fetcher = Fetcher(tmp_path, {"cifar10": made.source})
    assert [fetcher.state("cifar10").data.state for _ in range(5)] == ["ready"] * 5
    assert len(checks) == 1
    path.write_bytes(path.read_bytes()[:-40])  # damaged since
    assert [fetcher.state("cifar10").data.state for _ in range(5)] == ["broken"] * 5
    assert len(checks) == 2
    path.unlink()
    assert fetcher.state("cifar10").data.state == "missing"


def test_unknown_sets_are_refused(tmp_path):
    fetcher = Fetcher(tmp_path)
    assert list(fetcher.sources) == ["mnist", "svhn", "cifar10", "physionet2012", "activity", "ushcn"]
    for ask in (fetcher.start, fetcher.state):
        with pytest.raises(UserError, match="no data set 'imagenet': choose one of mnist, svhn, cifar10"):
            ask("imagenet")
