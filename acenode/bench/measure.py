"""What all benchmarks share: timing in turns, memory and processor time, and tables."""

from __future__ import annotations

import contextlib
import gc
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from acenode.errors import UserError


@dataclass(frozen=True)
class Report:
    """What a benchmark found, for programs and for people, and whether it met its targets."""

    result: Mapping[str, Any]
    text: str
    ok: bool = True


def progress(line: str) -> None:
    """Print a line of progress."""
    print(line, file=sys.stderr, flush=True)


def error_line(error: Exception) -> str:
    """Describe an error in one line."""
    text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    return text.splitlines()[0]


# Time ---------------------------------------------------------------------------------------------------------------


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
        return f"{duration(self.seconds)} ({duration(self.cpu)})"


def cost_of(work: Callable[[], object]) -> Cost:
    """Return what a call costs; on a GPU, from idle to idle."""
    synchronise()
    begun = Cost.now()
    work()
    synchronise()
    return Cost.now() - begun


def seconds_of(work: Callable[[], object]) -> float:
    """Return the seconds that a call takes; on a GPU, from idle to idle."""
    return cost_of(work).seconds


def synchronise() -> None:
    """Wait for the GPU, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def in_turns(works: Mapping[str, Callable[[], object]], repeats: int, *, warm: int = 0) -> dict[str, float]:
    """Time several functions in turns, so that a busy machine slows all of them alike; return medians in seconds."""
    if repeats < 1:
        raise UserError("--repeats must be at least 1")
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(warm + repeats):
        for name, work in works.items():
            times[name].append(seconds_of(work))
    return {name: statistics.median(found[warm:]) for name, found in times.items()}


# Memory and processor time ------------------------------------------------------------------------------------------


def peak_megabytes(work: Callable[[], Any], device: torch.device) -> float:
    """Run the work; return its peak memory in MB above what was in use before, on a CPU by sampling."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        return (torch.cuda.max_memory_allocated(device) - before) / 1e6
    gc.collect()
    before = memory([os.getpid()])
    with sampled(lambda: memory([os.getpid()]), 0.005) as peak:
        work()
    return max(0, (peak() or before) - before) / 1e6


@contextlib.contextmanager
def sampled(read: Callable[[], int | None], every: float) -> Iterator[Callable[[], int | None]]:
    """Sample a number in a thread while the block runs; the yielded function returns the highest one."""
    most, done = 0, threading.Event()

    def sample() -> None:
        nonlocal most
        while not done.wait(every):
            most = max(most, read() or 0)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield lambda: most or None
    finally:
        done.set()
        thread.join()


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
    """Return the words of Linux's /proc/PID/stat after the name; none if the process has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return []


# Text ---------------------------------------------------------------------------------------------------------------


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Align rows of cells: the first column to the left, the others to the right."""
    cells = [heads, *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(f"{cell:{'>' if i else '<'}{width}}" for i, (cell, width) in
                               enumerate(zip(row, widths, strict=True))).rstrip() for row in cells)


def duration(seconds: float | None) -> str:
    """Format seconds in a unit that suits them."""
    if seconds is None:
        return "—"
    if seconds >= 0.9995:
        return f"{seconds:.2f} s"
    return f"{1e3 * seconds:.0f} ms" if seconds >= 0.0995 else f"{1e3 * seconds:.1f} ms"


def size(megabytes: float | None) -> str:
    """Format megabytes."""
    if megabytes is None:
        return "—"
    return f"{megabytes / 1e3:.2f} GB" if megabytes >= 999.5 else f"{megabytes:.0f} MB"
