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
from typing import NamedTuple

import torch

from acenode import experiments
from acenode.compare.reproduction import PREFERRED, REQUIRED, RunTime, time_of
from acenode.config import Config
from acenode.config.groups import Training
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


class RunKind(NamedTuple):
    """The settings that decide how long an iteration takes, the most important first."""

    device: str
    experiment: str
    data: str
    method: str
    size: str | None
    engine: str | None
    sample: str | None
    at_jump: str | None
    attention_every: int | None
    g: str | None
    impute: bool | None
    attention: str | None
    schedule: str | None
    solver: str | None
    gradient: str | None
    batch_size: int | None


@dataclass(frozen=True)
class Estimate:
    """Time of some runs on one worker. Where `seconds` is None, `basis` says why there is no estimate.

    Validation and testing are included where the estimate is from finished runs.
    """

    runs: int
    seconds: float | None
    basis: str
    seconds_each: dict[Config, float] = field(default_factory=dict)  # of the runs with an estimate


@dataclass(frozen=True)
class _Timing:
    """Seconds per epoch, seconds outside the epochs, and where these numbers are from."""

    epoch: float
    overhead: float = 0.0
    runs: int = 0  # number of finished runs it is the median of; 0 if an iteration was timed
    extrapolated: bool = False  # from the timing of another kind of run


_timed: dict[RunKind, float] = {}  # seconds per epoch, kept while the process lives
_timing_lock = threading.Lock()  # timings at the same time would slow each other


def estimate(configs: Sequence[Config], catalogue: Catalogue, data_root: Path,
             timer: Timer | None = None) -> Estimate:
    """Estimate the time that `configs` take together; `timer` times an iteration where no similar run tells."""
    try:
        kinds = {config: _kind(config) for config in configs}
    except UserError as error:  # there is no such device
        return Estimate(len(configs), None, str(error))
    finished = [entry for entry in catalogue.entries() if entry.state == "finished" and entry.seconds and entry.epochs]
    timings = {config: _from_runs(config, kind, finished) for config, kind in kinds.items()}
    unknown_yet = [config for config, timing in timings.items() if timing is None]
    reasons = _time(unknown_yet, kinds, data_root, timer or time_iteration)
    for config, timing in timings.items():
        if timing is None and kinds[config] not in reasons:
            timings[config] = _from_timing(kinds[config])
    each = {config: timing.epoch * config.part(Training).epochs + timing.overhead for config, timing in timings.items()
            if timing is not None}
    unknown = next((config for config in configs if config not in each), None)
    if unknown is not None:
        reason = reasons.get(kinds[unknown], "no similar run could be timed")
        return Estimate(len(configs), None, reason, each)
    return Estimate(len(configs), sum(each[config] for config in configs), _basis(timings, kinds), each)


def measured(config: Config, entries: Iterable[Entry]) -> RunTime | None:
    """Return the time of similar runs on this device, from finished runs or else from those that train now.

    Takes a millisecond, trains nothing. None if no run is similar or there is no such device.
    """
    here = _trained_here(config, entries)
    return time_of(config, here) or time_of(config, (  # running ones as they will be at their present speed
        replace(e, state="finished", seconds=e.seconds / e.progress) for e in here if e.state == "running" and e.seconds
        and (e.progress >= MIN_PROGRESS or (e.epoch >= 1 and e.progress > 0))))


def trains_now(config: Config, entries: Iterable[Entry]) -> bool:
    """Return True if a similar run trains on this device now: after its first epoch, `measured` knows the time."""
    running = (entry for entry in _trained_here(config, entries) if entry.state == "running")
    return time_of(config, (replace(entry, state="finished", seconds=1.0, epochs=1) for entry in running)) is not None


def _trained_here(config: Config, entries: Iterable[Entry]) -> list[Entry]:
    try:
        kind = _kind(config)
    except UserError:
        return []
    return [entry for entry in entries if _same_device(entry, kind)]


def forget() -> None:
    """Forget all timings."""
    with _timing_lock:
        _timed.clear()


def _kind(config: Config) -> RunKind:
    return RunKind(device_of(config.device).type, **{name: config.get(name) for name in (*REQUIRED, *PREFERRED)})


def _from_runs(config: Config, kind: RunKind, finished: Iterable[Entry]) -> _Timing | None:
    found = time_of(config, (entry for entry in finished if _same_device(entry, kind)))
    return _Timing(found.epoch, found.overhead, found.runs) if found else None


def _same_device(entry: Entry, kind: RunKind) -> bool:
    if entry.recorded:
        return kind.device == "cuda" and entry.device == device_title(torch.device(kind.device))
    return kind.device == ("cpu" if entry.device.startswith("cpu") else "cuda")


# From a timed iteration ---------------------------------------------------------------------------------------------


def _time(configs: Iterable[Config], kinds: dict[Config, RunKind], data_root: Path,
          timer: Timer) -> dict[RunKind, str]:
    """Time kinds of run that were not timed yet, at most a few; return the reasons of those that failed."""
    with _timing_lock:
        new: dict[RunKind, Config] = {}
        for config in configs:
            if kinds[config] not in _timed:
                new.setdefault(kinds[config], config)
        by_data: dict[tuple[str, str], RunKind] = {}
        for kind in new:
            by_data.setdefault((kind.experiment, kind.data), kind)
        reasons = {}
        for kind in list(dict.fromkeys([*by_data.values(), *new]))[:MAX_TIMED]:  # one for each data set first
            config = new[kind]
            try:
                seconds, iterations = timer(config, data_root)
                _timed[kind] = seconds * iterations
            except UserError as error:  # most likely the data has not been downloaded
                reasons[kind] = str(error)
            except Exception as error:  # a failed solve, or a device without memory
                reasons[kind] = f"an iteration of {config.method} could not be timed: {' '.join(str(error).split())}"
        return reasons


def _passes(kind: RunKind) -> int:
    return 2 if kind.schedule == "alternating" and kind.attention == "evolving" else 1


def _from_timing(kind: RunKind) -> _Timing | None:
    known = dict(_timed)
    if kind in known:
        return _Timing(known[kind])
    candidates = [other for other in known if (other.device, other.data) == (kind.device, kind.data)]
    if not candidates:
        return None
    nearest = max(candidates, key=lambda other: tuple(a == b for a, b in zip(other, kind, strict=True)))
    return _Timing(known[nearest] * _passes(kind) / _passes(nearest), extrapolated=True)


def _basis(timings: dict[Config, _Timing | None], kinds: dict[Config, RunKind]) -> str:
    """Say what the estimate is based on."""
    sources = []
    most = max((timing.runs for timing in timings.values() if timing), default=0)
    if most:
        sources.append(f"{most} similar finished run{'s' * (most > 1)}")
    timed = {kinds[config] for config, timing in timings.items()
             if timing and not timing.runs and not timing.extrapolated}
    if timed:
        sources.append(f"timing {len(timed)} configuration{'s' * (len(timed) > 1)}")
    extrapolated = any(timing and timing.extrapolated for timing in timings.values())
    if not sources:
        return "extrapolated from similar configurations; testing time not included" if extrapolated else "no runs"
    basis = f"from {' and '.join(sources)}" + "; others extrapolated" * extrapolated
    return basis + "; testing time not included" * bool(timed)


# An iteration, in this process or in one of its own that leaves the cores to others ---------------------------------


def time_iteration(config: Config, data_root: Path) -> tuple[float, int]:
    """Time an iteration, trained as in a run; return its seconds and the iterations per epoch."""
    device = device_of(config.device)
    with run_context(device, config.get("engine")) as backend, ExitStack() as at_end:
        task = experiments.get(config.experiment).make(config, data_root, device, backend)
        recipe = task.recipe()
        engine = choose_engine(task, device, config.get("engine"), backend, task.iterations * recipe.epochs).engine
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


# In a process of its own --------------------------------------------------------------------------------------------


def time_aside(config: Config, data_root: Path) -> tuple[float, int]:
    """Time an iteration on the CPU in a process of lowest priority, so that a server goes on answering meanwhile.

    A GPU is timed in this process, which has its libraries loaded and waits for it most of the time.
    """
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
    if "error" in answer:
        raise UserError(answer["error"])
    return answer["seconds"], answer["iterations"]


def main() -> None:
    """Read a configuration from standard input and print the time of an iteration as one line of JSON."""
    os.nice(LOWEST_PRIORITY)
    given = json.load(sys.stdin)
    torch.set_num_threads(given["threads"])
    try:
        seconds, iterations = time_iteration(Config.from_dict(given["config"]), Path(given["data"]))
        print(json.dumps({"seconds": seconds, "iterations": iterations}))
    except UserError as error:
        print(json.dumps({"error": str(error)}))


if __name__ == "__main__":
    main()
