"""What takes series through their times, told once to whoever listens: a run's log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

KERNELS, COMPILED, OPERATIONS = "kernels of the GPU", "compiled C", "torch's operations, row by row"
_thread = threading.local()  # a thread trains one run at a time


@contextmanager
def telling(say: Callable[[str], None], note: Callable[[str], None] = lambda by: None) -> Iterator[None]:
    """Whoever is to hear it meanwhile, of what happens in this thread; `note` is told what did it and nothing else."""
    before = {k: getattr(_thread, k, None) for k in ("say", "note", "told")}
    _thread.say, _thread.note, _thread.told = say, note, set[str]()
    try:
        yield
    finally:
        vars(_thread).update(before)


def tell(by: str) -> None:
    if mention(f"series are taken through their times by {by}"):
        _thread.note(by)


def mention(line: str) -> bool:
    """A line, once: whether it was said now."""
    say: Callable[[str], None] | None = getattr(_thread, "say", None)
    if say is None or line in _thread.told:
        return False
    _thread.told.add(line)
    say(line)
    return True
