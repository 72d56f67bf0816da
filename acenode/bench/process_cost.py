"""Time, processor time and memory: of a call, and of other processes from Linux's /proc."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, order=True)
class Cost:
    """Seconds, and the processor time of this process with all its threads."""

    seconds: float = 0.0
    cpu: float = 0.0

    @classmethod
    def now(cls) -> Cost:
        return cls(time.perf_counter(), time.process_time())

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.seconds + other.seconds, self.cpu + other.cpu)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.seconds - other.seconds, self.cpu - other.cpu)

    def __truediv__(self, count: int) -> Cost:
        return Cost(self.seconds / count, self.cpu / count)

    def __str__(self) -> str:
        return f"{_text(self.seconds)} ({_text(self.cpu)})"


def _text(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.1f} ms"


def cost_of(action: Callable[[], object]) -> Cost:
    """Return what a call costs."""
    begun = Cost.now()
    action()
    return Cost.now() - begun


def own_cpu_seconds() -> float:
    """Return the processor time of this process and all its threads."""
    return time.process_time()


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the processor time of processes together; one that has ended counts nothing."""
    return sum(int(words[11]) + int(words[12]) for words in map(_stat, pids) if words) / os.sysconf("SC_CLK_TCK")


def memory(pids: Iterable[int]) -> int:
    """Return the resident memory of processes together, in bytes; pages that they share are counted for each."""
    return sum(int(words[21]) for words in map(_stat, pids) if words) * os.sysconf("SC_PAGE_SIZE")


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that they have started."""
    parents = {int(name): int(words[1]) for name in os.listdir("/proc") if name.isdigit() and (words := _stat(name))}
    found = [pid]
    for one in found:  # grows meanwhile
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def _stat(pid: int | str) -> list[str]:
    """Return the words of /proc/PID/stat after the name; none if the process has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return []
