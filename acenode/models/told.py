"""What takes series through their times, told once to whoever listens: a run's log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

KERNELS, COMPILED, OPERATIONS = "kernels of the GPU", "compiled C", "torch's operations, row by row"
_thread = threading.local()  # a thread trains one run at a time


@contextmanager
def telling(say: Callable[[str], None]) -> Iterator[None]:
    """Whoever is to hear it meanwhile, of what happens in this thread."""
    before = getattr(_thread, "say", None), getattr(_thread, "told", set[str]())
    _thread.say, _thread.told = say, set[str]()
    try:
        yield
    finally:
        _thread.say, _thread.told = before


def tell(by: str) -> None:
    complain(f"series are taken through their times by {by}")


def complain(line: str) -> None:
    """Any other line, once."""
    say: Callable[[str], None] | None = getattr(_thread, "say", None)
    if say is not None and line not in _thread.told:
        _thread.told.add(line)
        say(line)
