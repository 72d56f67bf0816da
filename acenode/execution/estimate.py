"""Estimate how long runs take one after the other, from similar finished runs or from a timed iteration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from acenode import experiments
from acenode.compare.reproduction import PREFERRED, REQUIRED, RunTime, time_of, trained_on
from acenode.config import Config
from acenode.errors import UserError
from acenode.execution.engine_choice import choose_engine
from acenode.execution.environment import child_environment, device_of, device_title, run_context
from acenode.runs.catalogue import Catalogue, Entry
from acenode.training.task import SilentListener
from acenode.training.trainer import Trainer

MAX_TIMED = 4  # kinds of run that a call times at most
MIN_PROGRESS = 0.03  # of a running run before its speed is used, if it has no whole epoch yet
LONG = 3.0  # seconds that repeated iterations may take
VERY_LONG = 12.0  # seconds: a longer iteration is timed once
REPEATS = 12
LOWEST_PRIORITY = 19
PATIENCE = 600.0  # seconds that a timing process may take

Timer = Callable[[Config, Path], tuple[float, int]]
Kind = tuple[Any, ...]  # the device's type, then the settings that decide how long an iteration takes

_timed: dict[Kind, tuple[Config, float]] = {}  # seconds per epoch, kept while the process lives
_timing_lock = threading.Lock()  # timings at the same time would slow each other


@dataclass(frozen=True)
class Estimate:
    """Time of some runs on one worker, with testing if it is from finished runs; `basis` says what it is from, or why
    `seconds` is None."""

    runs: int
    seconds: float | None
    basis: str
    seconds_each: dict[Config, float] = field(default_factory=dict)  # of the runs with an estimate


def estimate(configs: Sequence[Config], catalogue: Catalogue, data_root: Path,
             timer: Timer | None = None) -> Estimate:
    """Estimate the time that `configs` take together; `timer` times an iteration where no similar run tells."""
    try:
        kinds = {config: _kind(config) for config in configs}
    except UserError as error:  # there is no such device
        return Estimate(len(configs), None, str(error))
    entries = catalogue.entries()
    times = {config: time_of(config, _trained_here(config, entries)) for config in kinds}
    reasons = _time({config: kinds[config] for config, known in times.items() if known is None}, data_root,
                    timer or time_iteration)
    for config, kind in kinds.items():
        if times[config] is None and kind not in reasons:
            times[config] = _from_timing(config, kind)
    each = {config: time.seconds(config) for config, time in times.items() if time is not None}
    unknown = next((config for config in configs if config not in each), None)
    if unknown is not None:
        reason = reasons.get(kinds[unknown], "no similar run could be timed")
        return Estimate(len(configs), None, reason, each)
    most = max((time.runs for time in times.values() if time), default=0)
    timed = {kinds[config] for config, time in times.items() if time and not time.runs}
    others = timed - _timed.keys()  # extrapolated from the timing of another kind of run
    sources = [f"{most} similar finished run{'s' * (most > 1)}"] * (most > 0)
    if timed := timed - others:
        sources.append(f"timing {len(timed)} configuration{'s' * (len(timed) > 1)}")
    basis = (f"from {' and '.join(sources)}" + "; others extrapolated" * bool(others) if sources else
             "extrapolated from similar configurations" if others else "no runs")
    basis += "; testing time not included" * bool(timed or (others and not sources))
    return Estimate(len(configs), sum(each[config] for config in configs), basis, each)


def measured(config: Config, entries: Iterable[Entry]) -> RunTime | None:
    """Return the time of similar runs on this device, from finished runs or else from those that train now; None if no
    run is similar or there is no such device."""
    here = _trained_here(config, entries)
    return time_of(config, here) or time_of(config, (  # running ones as they will be at their present speed
        replace(e, state="finished", seconds=e.seconds / e.progress) for e in here if e.state == "running" and e.seconds
        and (e.progress >= MIN_PROGRESS or (e.epoch >= 1 and e.progress > 0))))


def trains_now(config: Config, entries: Iterable[Entry]) -> bool:
    """Return True if a similar run trains on this device now: after its first epoch, `measured` knows the time."""
    running = (entry for entry in _trained_here(config, entries) if entry.state == "running")
    return time_of(config, (replace(entry, state="finished", seconds=1.0, epochs=1) for entry in running)) is not None


def _kind(config: Config) -> Kind:
    return device_of(config.device).type, *(config.get(name) for name in (*REQUIRED, *PREFERRED))


def _trained_here(config: Config, entries: Iterable[Entry]) -> list[Entry]:
    try:
        device = device_of(config.device).type
    except UserError:
        return []
    return trained_on(entries, device, device_title(torch.device(device)))


def _time(new: dict[Config, Kind], data_root: Path, timer: Timer) -> dict[Kind, str]:
    """Time kinds of run that were not timed yet, at most a few; return the reasons of those that failed."""
    with _timing_lock:
        wanted: dict[Kind, Config] = {}
        by_data: dict[tuple[str, str], Kind] = {}
        for config, kind in new.items():
            if kind not in _timed:
                wanted.setdefault(kind, config)
                by_data.setdefault((config.experiment, config.data), kind)
        reasons = {}
        for kind in list(dict.fromkeys([*by_data.values(), *wanted]))[:MAX_TIMED]:  # one for each data set first
            config = wanted[kind]
            try:
                seconds, iterations = timer(config, data_root)
                _timed[kind] = config, seconds * iterations
            except UserError as error:  # most likely the data has not been downloaded
                reasons[kind] = str(error)
            except Exception as error:  # a failed solve, or a device without memory
                reasons[kind] = f"an iteration of {config.method} could not be timed: {' '.join(str(error).split())}"
        return reasons


def _from_timing(config: Config, kind: Kind) -> RunTime | None:
    """Return the time of a kind of run as it was timed, or from the most similar one on this device and data."""
    def passes(of: Config) -> int:
        return 2 if of.get("schedule") == "alternating" and of.get("attention") == "evolving" else 1

    known = dict(_timed)
    if kind in known:
        return RunTime(known[kind][1])
    candidates = [other for other in known if other[0] == kind[0] and known[other][0].data == config.data]
    if not candidates:
        return None
    timed, seconds = known[max(candidates, key=lambda other: tuple(a == b for a, b in zip(other, kind, strict=True)))]
    return RunTime(seconds * passes(config) / passes(timed))


# An iteration, in this process or in one of its own that leaves the cores to others ---------------------------------


def time_iteration(config: Config, data_root: Path) -> tuple[float, int]:
    """Time an iteration, trained as in a run; return its seconds and the iterations per epoch."""
    device = device_of(config.device)
    with run_context(device, config.get("engine")) as backend, ExitStack() as at_end:
        task = experiments.get(config.experiment).make(config, data_root, device, backend)
        recipe = task.recipe()
        engine = choose_engine(task, device, config.get("engine"), backend).engine
        if engine is not None:
            at_end.callback(engine.close)
        trainer = Trainer(task, recipe, SilentListener(), engine)
        task.model.train()
        return warm_seconds(trainer, device), task.iterations


def warm_seconds(trainer: Trainer, device: torch.device) -> float:
    """Return the seconds of the fastest iteration after warm-up: what else the machine does only makes them longer."""
    def once() -> float:
        start = time.perf_counter()
        trainer.train_batch()
        if device.type == "cuda":  # this stream only: other threads may be recording
            torch.cuda.current_stream(device).synchronize()
        return time.perf_counter() - start

    first = once()
    if first >= VERY_LONG and device.type == "cpu":  # on a GPU the first one compiles and records
        return first
    seconds = [once()]
    while len(seconds) < REPEATS and sum(seconds) < LONG:
        seconds.append(once())
    return min(seconds)


def time_aside(config: Config, data_root: Path) -> tuple[float, int]:
    """Time an iteration on the CPU in a process of lowest priority, so that a server goes on answering meanwhile; on a
    GPU, for which a process only waits, in this one."""
    if device_of(config.device).type != "cpu":
        return time_iteration(config, data_root)
    command = [sys.executable, "-P", "-m", "acenode.execution.estimate"]
    request = json.dumps({"config": config.to_dict(), "data": str(data_root), "threads": torch.get_num_threads()})
    try:
        done = subprocess.run(command, input=request, capture_output=True, text=True, timeout=PATIENCE,
                              env=child_environment())
        answer = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, IndexError, ValueError):
        raise UserError("the process that times an iteration ended without an answer") from None
    if isinstance(answer, str):
        raise UserError(answer)
    return answer[0], answer[1]


def main() -> None:
    """Read a configuration from standard input; print the time of an iteration, or what is wrong, as a line of JSON."""
    os.nice(LOWEST_PRIORITY)
    given = json.load(sys.stdin)
    torch.set_num_threads(given["threads"])
    found: object
    try:
        found = time_iteration(Config.from_dict(given["config"]), Path(given["data"]))
    except UserError as error:
        found = str(error)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
