"""The benchmarks of `acenode bench`: what each measures, which options it takes, and how all of them measure.

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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acenode.errors import UserError

if TYPE_CHECKING:
    import torch

FAMILY_NAMES = "images,baselines,series,windows,sporadic"
PART_NAMES = "rates,head,search,trials"  # of bench scale
Row = dict[str, Any]


@dataclass(frozen=True)
class Benchmark:
    """Where a benchmark is (a function of its name), what it measures, how long it takes, and its options' defaults."""

    module: str
    about: str
    lasts: str
    options: Mapping[str, Any]


BENCHMARKS = {
    "image": Benchmark("models", "time and memory of one ACE training iteration on images, against a direct "
                       "implementation", "4 minutes", {"repeats": 3, "batch": 128, "device": "auto"}),
    "gpu": Benchmark("workloads", "time and memory of one training iteration of each model family with each engine, on "
                     "a GPU", "2 to 3 minutes", {"repeats": 3, "families": FAMILY_NAMES, "full": False}),
    "epoch": Benchmark("training", "accuracy of ACE after one epoch with each engine, over seeds",
                       "1 minute; on MNIST with a GPU, 5 minutes per seed",
                       {"seeds": "0-2", "engines": None, "jobs": 1, "device": "auto"}),
    "validation": Benchmark("training", "share of an epoch that is validation, for one method of each model family",
                            "1 minute on a GPU; on two CPU cores 5 minutes with the real data",
                            {"repeats": 2, "device": "auto"}),
    "app": Benchmark("pages", "response times of the app, and how much open pages slow training down; needs Chromium",
                     "6 minutes", {}),
    "playground": Benchmark("pages", "training steps and drawn frames a second of the playground; needs Chromium",
                            "1 minute", {}),
    "latent": Benchmark("models", "time of one PhysioNet-sized training batch, against a union time grid", "1 minute",
                        {"repeats": 3}),
    "ushcn": Benchmark("models", "time of one USHCN-sized training batch on the CPU, against one time grid for the "
                       "batch", "2 minutes", {"repeats": 3}),
    "named": Benchmark("models", "time of one ACE training iteration on named variables, with and without C, and on a "
                       "large set", "2 minutes", {"repeats": 3, "device": "auto"}),
    "search": Benchmark("pages", "seconds to list and show a search with 10,000 trials, as a command and on the page",
                        "1 minute", {}),
    "scale": Benchmark("scale", "runs an hour in threads and on a local Ray, the cost of the head, a search of 200 "
                       "trials, and 10,000 trials without training", "15 minutes", {"parts": PART_NAMES}),
    "together": Benchmark("training", "time, shares and memory of several runs one after another, in threads and in "
                          "processes", "4 minutes",
                          {"train": "physionet/ace:1,physionet/latent-ode:2", "each": 1, "data": "sample",
                           "jobs": None, "ways": None, "device": "auto"}),
}
OPTIONS = ("repeats", "batch", "device", "families", "full", "seeds", "engines", "jobs", "train", "each", "data",
           "ways", "parts")


def run(options: Namespace) -> int:
    """Run one benchmark and print what it found; the exit status is 1 if it missed a target."""
    settle(options)
    module = importlib.import_module(f"{__name__}.{BENCHMARKS[options.what].module}")
    result: Row = getattr(module, options.what)(options)
    print(json.dumps(result) if options.json else render(result))
    return 1 if result.get("missed") else 0


def settle(options: Namespace) -> None:
    """Set the options that were not given to their defaults; refuse those that the benchmark does not take."""
    if options.what is None:
        raise UserError(f"name a benchmark: acenode bench {'|'.join(BENCHMARKS)}; `acenode bench --help` "
                        "describes them")
    defaults = BENCHMARKS[options.what].options
    for name in OPTIONS:
        if getattr(options, name) is None:
            setattr(options, name, defaults.get(name))
        elif name not in defaults:
            takers = ", ".join(other for other, entry in BENCHMARKS.items() if name in entry.options)
            raise UserError(f"--{name} does not apply to bench {options.what}: leave it out; it applies to {takers}")
    counts = [name for name in ("repeats", "batch", "each") if name in defaults]
    if any(getattr(options, name) < 1 for name in counts):
        raise UserError(f"{' and '.join(f'--{name}' for name in counts)} must be at least 1")


def chosen(kind: str, text: str, known: Iterable[str]) -> list[str]:
    """Return the names in a comma-separated list, each once."""
    names, known = [name.strip() for name in text.split(",")], list(known)
    if unknown := [name for name in names if name not in known]:
        raise UserError(f"there is no {kind} {unknown[0]!r}: choose from {', '.join(known)}")
    return list(dict.fromkeys(names))


def summary() -> str:
    """Describe every benchmark in one line."""
    lines = (f"  {name:<11}{entry.about}; about {entry.lasts}" for name, entry in BENCHMARKS.items())
    return "\n".join(["benchmarks, with their duration on two CPU cores or one GPU:", *lines])


def progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def error_line(error: Exception) -> str:
    """Describe an error in one line."""
    text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    return text.splitlines()[0]


# Results as text ----------------------------------------------------------------------------------------------------

UNITS = ("_seconds", "_megabytes")  # at the end of a name: they are part of the values in a text


def render(result: Row) -> str:
    """Write the values of a result as lines, and its lists of rows as tables with a column for each key."""
    parts = []
    for name, value in result.items():
        if name == "environment":
            parts.append(f"on {value['device']}, {value['threads']} threads, torch {value['versions']['torch']}")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            keys = [k for k in dict.fromkeys(key for row in value for key in row)
                    if any(row.get(k) is not None for row in value)]
            lines = [[_head(key) for key in keys], *([_text(key, row.get(key)) for key in keys] for row in value)]
            widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
            parts.append("\n" + "\n".join("  ".join(f"{cell:{'>' if i else '<'}{width}}" for i, (cell, width) in
                         enumerate(zip(line, widths, strict=True))).rstrip() for line in lines) + "\n")
        elif value:
            parts.append(value if name == "notes" else f"{_head(name)}: {_text(name, value)}")
    return "\n".join(parts).strip()


def _head(name: str) -> str:
    for unit in UNITS:
        name = name.removesuffix(unit)
    return name.replace("_", " ")


def _text(name: str, value: Any) -> str:
    """Format a value in the unit that its name ends with: seconds, megabytes, or a share in percent."""
    if value is None:
        return "—"
    if not isinstance(value, int | float) or isinstance(value, bool):
        return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    if name.endswith("seconds"):
        digits = 1 if value < 0.0995 else 0
        return f"{value:.2f} s" if value >= 0.9995 else f"{1e3 * value:.{digits}f} ms"
    if name.endswith("megabytes"):
        return f"{value / 1e3:.2f} GB" if value >= 999.5 else f"{value:.0f} MB"
    if name.endswith("share"):
        return f"{value:.1%}"
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{value:.4g}"


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


def in_turns(works: Mapping[str, Callable[[], object]], repeats: int, *, warm: int = 0) -> dict[str, float]:
    """Time several functions in turns, so that a busy machine slows all of them alike; return medians in seconds."""
    times = [{name: seconds_of(work) for name, work in works.items()} for _ in range(warm + repeats)][warm:]
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
