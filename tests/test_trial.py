"""Kernels are tried once for all; what does not run is told to every run."""

from __future__ import annotations

import pytest
import torch

from acenode.models import trial
from acenode.models.told import telling


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
        assert lines == ["kernels of the GPU do not run here: no such instruction"]
    assert attempts == [1]
    assert trial.works("another", lambda: None)


def test_an_error_without_words_has_its_name() -> None:
    def attempt() -> None:
        raise NotImplementedError

    lines: list[str] = []
    with telling(lines.append):
        trial.works("kind", attempt)
    assert lines == ["kernels of the GPU do not run here: NotImplementedError"]


def test_memory_that_is_short_says_nothing_about_kernels() -> None:
    def attempt() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        trial.works("kind", attempt)
    assert trial.works("kind", lambda: None)
