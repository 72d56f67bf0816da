"""Pausing the garbage collector."""

from __future__ import annotations

import gc
import threading

import pytest

from acenode.garbage import collector_paused


def test_collection_resumes_when_the_last_block_ends() -> None:
    inside, end = threading.Event(), threading.Event()

    def pause() -> None:
        with collector_paused():
            inside.set()
            end.wait(60)

    thread = threading.Thread(target=pause, daemon=True)
    try:
        with collector_paused():
            thread.start()
            assert inside.wait(60)
        assert not gc.isenabled()  # the thread's block goes on
    finally:
        end.set()
        thread.join()
    assert gc.isenabled()


def test_an_error_resumes_collection() -> None:
    with pytest.raises(KeyError), collector_paused():
        raise KeyError
    assert gc.isenabled()
