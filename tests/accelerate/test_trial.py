"""Kernels are tried once for all; what does not run is told to every run."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from acenode.accelerate import trial
from acenode.accelerate.told import telling


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_trouble", {})


def test_what_works_is_tried_once() -> None:
    attempts: list[int] = []
    with telling(attempts.append):  # type: ignore[arg-type]
        assert all(trial.works("kind", lambda: attempts.append(1)) for _ in range(3))
    assert attempts == [1]


def test_what_does_not_is_told_once_to_every_run() -> None:
    attempts: list[int] = []

    def attempt() -> None:
        attempts.append(1)
        raise ValueError("no such instruction\nsm_20")

    for _ in range(2):
        lines: list[str] = []
        with telling(lines.append):
            assert not any(trial.works("kind", attempt) for _ in range(3))
        assert lines == ["kernels of the GPU do not run here: ValueError: no such instruction"]
    assert attempts == [1]
    assert trial.works("another", lambda: None)


def test_threads_make_one_attempt_together() -> None:
    attempts: list[int] = []
    ready, answers = threading.Barrier(4), list[bool]()

    def attempt() -> None:
        attempts.append(1)
        time.sleep(0.05)

    def ask() -> None:
        ready.wait()
        answers.append(trial.works("kind", attempt))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (attempts, answers) == ([1], [True] * 4)


def test_an_error_without_words_has_its_name() -> None:
    def attempt() -> None:
        raise NotImplementedError

    lines: list[str] = []
    with telling(lines.append):
        trial.works("kind", attempt)
    assert lines == ["kernels of the GPU do not run here: NotImplementedError"]


@pytest.mark.parametrize("trouble", [
    torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("Triton Error [CUDA]: out of memory"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED")], ids=str)
def test_memory_that_is_short_says_nothing_about_kernels(trouble: Exception) -> None:
    def attempt() -> None:
        raise trouble

    with pytest.raises(type(trouble)):
        trial.works("kind", attempt)
    assert trial.works("kind", lambda: None)
