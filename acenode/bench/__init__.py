"""The benchmarks of `acenode bench`: how they take time and memory, and how their results are printed.

A benchmark compares implementations in one run on one machine, so its ratios mean more than its times.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import statistics
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acenode.errors import UserError

if TYPE_CHECKING:
    import torch

Row = dict[str, Any]
REPEATS = 3


def run(options: Namespace) -> int:
    """Run the benchmark function of this name and print its result."""
    module, _, name = options.benchmark.partition(".")
    result: Row = getattr(importlib.import_module(f"{__name__}.{module}"), name)(options)
    print(json.dumps(result) if options.json else render(result))
    return 0


def chosen(kind: str, text: str, known: Iterable[str]) -> list[str]:
    """Return the names in a comma-separated list, each once."""
    names, known = [name.strip() for name in text.split(",")], list(known)
    if unknown := [name for name in names if name not in known]:
        raise UserError(f"there is no {kind} {unknown[0]!r}: choose from {', '.join(known)}")
    return list(dict.fromkeys(names))


def progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def measured(row: Row, work: Callable[[], Row]) -> Row:
    """Return a row with what `work` measures, or with its error, so that the next row is measured too."""
    progress(", ".join(map(str, row.values())))
    try:
        return row | work()
    except Exception as error:
        text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        return row | {"error": text.splitlines()[0]}


def render(result: Row) -> str:
    """Write the values of a result as lines, and its lists of rows as tables with a column for each key."""
    import pandas as pd

    parts = []
    for name, value in result.items():
        if name == "environment":
            parts.append(f"on {value['device']}, {value['threads']} threads, torch {value['versions']['torch']}")
        elif isinstance(value, list):
            rows = pd.DataFrame(value, dtype=object).dropna(axis=1, how="all")
            parts.append(f"\n{rows.map(_text).to_string(index=False)}\n")
        else:
            parts.append(value if name == "notes" else f"{name}: {_text(value)}")
    return "\n".join(parts).strip()


def _text(value: Any) -> str:
    if value is None or value != value:
        return "—"
    return f"{value:,.0f}" if isinstance(value, int) or (isinstance(value, float) and value >= 1000) else \
        f"{value:.4g}" if isinstance(value, float) else str(value)


# Time, processor time and memory ------------------------------------------------------------------------------------


def cost_of(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds and the processor time of a call; on a GPU, from idle to idle."""
    import torch

    synchronise = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    synchronise()
    begun, used = time.perf_counter(), time.process_time()
    work()
    synchronise()
    return time.perf_counter() - begun, time.process_time() - used


def seconds_of(work: Callable[[], object]) -> float:
    """Return the seconds that a call takes; on a GPU, from idle to idle."""
    return cost_of(work)[0]


def in_turns(works: Mapping[str, Callable[[], object]], repeats: int = REPEATS) -> dict[str, float]:
    """Time functions in turns, so that a busy machine slows all of them alike; return medians in seconds."""
    times = [{name: seconds_of(work) for name, work in works.items()} for _ in range(repeats)]
    return {name: statistics.median(found[name] for found in times) for name in works}


def peak_megabytes(work: Callable[[], Any], device: torch.device) -> float:
    """Run the work; return its peak memory in MB above what was in use before, on a CPU by sampling."""
    import torch

    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        return (torch.cuda.max_memory_allocated(device) - before) / 1e6
    before = memory()
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


def memory(pids: Iterable[int] | None = None) -> int:
    """Return the resident memory of processes together, in bytes, or of this one after collecting its garbage."""
    if pids is None:
        gc.collect()
        pids = [os.getpid()]
    return sum(int(words[21]) for words in map(_stat, pids) if words) * os.sysconf("SC_PAGE_SIZE")


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that they have started."""
    parents = {int(name): int(words[1]) for name in os.listdir("/proc") if name.isdigit() and (words := _stat(name))}
    found = [pid]
    for one in found:  # grows meanwhile
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def _stat(pid: int | str) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return []
