"""Pause Python's garbage collector, in several threads at once if need be."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LOCK = threading.Lock()
_pauses = 0  # blocks that are running


@contextmanager
def collector_paused() -> Iterator[None]:
    """Run the block without garbage collection, which pauses in all threads until the last such block has ended."""
    global _pauses
    with _LOCK:
        gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _LOCK:
            _pauses -= 1
            if _pauses == 0:
                gc.enable()
