"""Estimate how long runs take one after the other, from similar finished runs or from a timed iteration."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch

from acenode import experiments
from acenode.config import Config
from acenode.config.groups import Training
from acenode.errors import UserError
from acenode.execution.engine_choice import choose_engine
from acenode.execution.environment import device_of, run_context
from acenode.runs.catalogue import Catalogue, Entry
from acenode.training.task import SilentListener
from acenode.training.trainer import Trainer

# settings that a finished run must share, besides its device
REQUIRED = ("experiment", "data", "method", "size", "engine", "sample", "at_jump", "attention_every", "impute")
PREFERRED = ("attention", "schedule", "solver", "gradient", "batch_size")  # settings it should share, in this order
MAX_TIMED = 4  # kinds of run that a call times at most
LONG = 3.0  # seconds: a longer iteration is timed once, a shorter one is repeated, since the first includes warm-up
REPEATS = 4


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
class _Pace:
    """Seconds per epoch, seconds besides the epochs, and where these numbers are from."""

    epoch: float
    beside: float = 0.0
    runs: int = 0  # finished runs that it is the median of; 0 if an iteration was timed
    borrowed: bool = False  # from another kind of run


_timed: dict[RunKind, float] = {}  # seconds per epoch, kept while the process lives
_timing = threading.Lock()  # timings at the same time would slow each other


def estimate(configs: Sequence[Config], catalogue: Catalogue, data_root: Path) -> Estimate:
    """Estimate the time that `configs` take together."""
    try:
        kinds = {config: _kind(config) for config in configs}
    except UserError as error:  # there is no such device
        return Estimate(len(configs), None, str(error))
    finished = [entry for entry in catalogue.entries() if entry.state == "finished" and entry.seconds and entry.epochs]
    paces = {config: _from_runs(config, kind, finished) for config, kind in kinds.items()}
    reasons = _time([config for config, pace in paces.items() if pace is None], kinds, data_root)
    for config, pace in paces.items():
        if pace is None and kinds[config] not in reasons:
            paces[config] = _from_timing(kinds[config])
    each = {config: pace.epoch * config.part(Training).epochs + pace.beside for config, pace in paces.items()
            if pace is not None}
    unknown = next((config for config in configs if config not in each), None)
    if unknown is not None:
        reason = reasons.get(kinds[unknown], "no similar run could be timed")
        return Estimate(len(configs), None, reason, each)
    return Estimate(len(configs), sum(each[config] for config in configs), _basis(paces, kinds), each)


def forget() -> None:
    """Forget all timings."""
    with _timing:
        _timed.clear()


def _kind(config: Config) -> RunKind:
    return RunKind(device_of(config.device).type, **{name: config.get(name) for name in (*REQUIRED, *PREFERRED)})


# From finished runs -------------------------------------------------------------------------------------------------


def _from_runs(config: Config, kind: RunKind, finished: Iterable[Entry]) -> _Pace | None:
    """Return the median over the most similar finished runs, or None if there are none."""
    similar: dict[tuple[bool, ...], list[Entry]] = {}
    for entry in finished:
        device = "cpu" if entry.device.startswith("cpu") else "cuda"
        if device == kind.device and all(entry.config.get(name) == config.get(name) for name in REQUIRED):
            shared = tuple(entry.config.get(name) == config.get(name) for name in PREFERRED)
            similar.setdefault(shared, []).append(entry)
    if not similar:
        return None
    nearest = similar[max(similar)]
    beside = [entry.other_seconds for entry in nearest if entry.other_seconds is not None]
    return _Pace(median((entry.seconds or 0.0) / entry.epochs for entry in nearest), median(beside or [0.0]),
                 runs=len(nearest))


# From a timed iteration ---------------------------------------------------------------------------------------------


def _time(configs: Iterable[Config], kinds: dict[Config, RunKind], data_root: Path) -> dict[RunKind, str]:
    """Time kinds of run that were not timed yet, at most a few; return the reasons of those that failed."""
    with _timing:
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
                seconds, iterations = _time_iteration(config, data_root)
                _timed[kind] = seconds * iterations
            except UserError as error:  # most likely the data has not been downloaded
                reasons[kind] = str(error)
            except Exception as error:  # a failed solve, or a device without memory
                reasons[kind] = f"an iteration of {config.method} could not be timed: {' '.join(str(error).split())}"
        return reasons


def _time_iteration(config: Config, data_root: Path) -> tuple[float, int]:
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
        return _warm_seconds(trainer, device), task.iterations


def _warm_seconds(trainer: Trainer, device: torch.device) -> float:
    """Return the seconds of an iteration after warm-up."""
    def once() -> float:
        start = time.perf_counter()
        trainer.train_batch()
        if device.type == "cuda":  # this stream only: other threads may be recording
            torch.cuda.current_stream(device).synchronize()
        return time.perf_counter() - start

    first = once()
    if first >= LONG and device.type == "cpu":  # on a GPU the first one compiles and records
        return first
    seconds = [once()]
    while len(seconds) < REPEATS and sum(seconds) < LONG:
        seconds.append(once())
    return median(seconds)


def _passes(kind: RunKind) -> int:
    """Return the number of passes of Algorithm 1 over a mini-batch."""
    return 2 if kind.schedule == "alternating" and kind.attention == "evolving" else 1


def _from_timing(kind: RunKind) -> _Pace | None:
    """Return the timing of this kind, or of the most similar kind on the same device and data."""
    known = dict(_timed)
    if kind in known:
        return _Pace(known[kind])
    candidates = [other for other in known if (other.device, other.data) == (kind.device, kind.data)]
    if not candidates:
        return None
    nearest = max(candidates, key=lambda other: tuple(a == b for a, b in zip(other, kind, strict=True)))
    return _Pace(known[nearest] * _passes(kind) / _passes(nearest), borrowed=True)


def _basis(paces: dict[Config, _Pace | None], kinds: dict[Config, RunKind]) -> str:
    """Say what the estimate is based on."""
    parts = []
    most = max((pace.runs for pace in paces.values() if pace), default=0)
    if most:
        parts.append(f"{most} similar finished run{'s' if most > 1 else ''}")
    timed = {kinds[config] for config, pace in paces.items() if pace and not pace.runs and not pace.borrowed}
    if timed:
        parts.append(f"a timed iteration of {len(timed)} kind{'s' if len(timed) > 1 else ''} of run")
    if any(pace and pace.borrowed for pace in paces.values()):
        parts.append("for the others the most similar of these")
    basis = ", and ".join(parts) or "no runs"
    return f"{basis}; without testing" if timed else basis
