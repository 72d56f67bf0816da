"""How long runs will take, one after the other: from finished runs like them, else from a timed iteration."""

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

# what a finished run must share to count, its device apart
SAME = ("experiment", "data", "method", "size", "engine", "sample", "at_jump", "attention_every", "impute")
NEAR = ("attention", "schedule", "solver", "gradient", "batch_size")  # what makes one of those nearer, in this order
MOST_TIMED = 4  # kinds of run a call may time
LONG = 3.0  # seconds: a longer iteration is not repeated, a shorter one is, as the first also warms up
REPEATS = 4


class Kind(NamedTuple):
    """What decides how long an iteration takes, weightiest first."""

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
    """Time of some runs on one worker; `seconds` is None where it cannot be told, and `basis` says why.

    What comes on top of training, above all validation and the test, is known of finished runs alone.
    """

    runs: int
    seconds: float | None
    basis: str
    seconds_each: dict[Config, float] = field(default_factory=dict)  # of those that could be told


@dataclass(frozen=True)
class _Pace:
    """Seconds an epoch takes and what comes on top of all of them, and how that is known."""

    epoch: float
    beside: float = 0.0
    runs: int = 0  # finished ones it is the median of; none where an iteration was timed
    borrowed: bool = False  # from another kind of run


_timed: dict[Kind, float] = {}  # seconds of an epoch, for as long as the process lives
_timing = threading.Lock()  # one at a time: two at once would slow each other


def estimate(configs: Sequence[Config], catalogue: Catalogue, data_root: Path) -> Estimate:
    """The time that `configs` will take together."""
    try:
        kinds = {config: _kind(config) for config in configs}
    except UserError as error:  # a device that is not here
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
        reason = reasons.get(kinds[unknown], "nothing like it could be timed")
        return Estimate(len(configs), None, reason, each)
    return Estimate(len(configs), sum(each[config] for config in configs), _basis(paces, kinds), each)


def forget() -> None:
    """Time everything afresh."""
    with _timing:
        _timed.clear()


def _kind(config: Config) -> Kind:
    return Kind(device_of(config.device).type, **{name: config.get(name) for name in (*SAME, *NEAR)})


# From finished runs -------------------------------------------------------------------------------------------------


def _from_runs(config: Config, kind: Kind, finished: Iterable[Entry]) -> _Pace | None:
    """The median over the finished runs that are nearest."""
    like: dict[tuple[bool, ...], list[Entry]] = {}
    for entry in finished:
        device = "cpu" if entry.device.startswith("cpu") else "cuda"
        if device == kind.device and all(entry.config.get(name) == config.get(name) for name in SAME):
            nearness = tuple(entry.config.get(name) == config.get(name) for name in NEAR)
            like.setdefault(nearness, []).append(entry)
    if not like:
        return None
    nearest = like[max(like)]
    beside = [entry.other_seconds for entry in nearest if entry.other_seconds is not None]
    return _Pace(median((entry.seconds or 0.0) / entry.epochs for entry in nearest), median(beside or [0.0]),
                 runs=len(nearest))


# From a timed iteration ---------------------------------------------------------------------------------------------


def _time(configs: Iterable[Config], kinds: dict[Config, Kind], data_root: Path) -> dict[Kind, str]:
    """Time what was not timed yet, a few kinds at most; why some could not be."""
    with _timing:
        new: dict[Kind, Config] = {}
        for config in configs:
            if kinds[config] not in _timed:
                new.setdefault(kinds[config], config)
        of_data: dict[tuple[str, str], Kind] = {}
        for kind in new:
            of_data.setdefault((kind.experiment, kind.data), kind)
        reasons = {}
        for kind in list(dict.fromkeys([*of_data.values(), *new]))[:MOST_TIMED]:  # one of each data set first
            config = new[kind]
            try:
                seconds, iterations = _time_iteration(config, data_root)
                _timed[kind] = seconds * iterations
            except UserError as error:  # the full data is not there, most likely
                reasons[kind] = str(error)
            except Exception as trouble:  # a solve that fails, a device that is full
                reasons[kind] = f"an iteration of {config.method} could not be timed: {' '.join(str(trouble).split())}"
        return reasons


def _time_iteration(config: Config, data_root: Path) -> tuple[float, int]:
    """Seconds of an iteration, trained as a run of it would be, and iterations an epoch."""
    device = device_of(config.device)
    with run_context(device, config.get("engine")) as backend, ExitStack() as at_end:
        task = experiments.get(config.experiment).make(config, data_root, device, backend)
        recipe = task.recipe()
        engine = choose_engine(task, device, config.get("engine"), backend, task.iterations * recipe.epochs).engine
        if engine is not None:
            at_end.callback(engine.close)
        trainer = Trainer(task, recipe, SilentListener(), engine)
        task.model.train()
        return _usual(trainer, device), task.iterations


def _usual(trainer: Trainer, device: torch.device) -> float:
    """Seconds of an iteration when all is warm."""
    def once() -> float:
        start = time.perf_counter()
        trainer.train_batch()
        if device.type == "cuda":  # of this thread's work alone: other threads may be recording
            torch.cuda.current_stream(device).synchronize()
        return time.perf_counter() - start

    first = once()
    if first >= LONG and device.type == "cpu":  # on a GPU the first also compiles and records
        return first
    seconds = [once()]
    while len(seconds) < REPEATS and sum(seconds) < LONG:
        seconds.append(once())
    return median(seconds)


def _passes(kind: Kind) -> int:
    """How often Algorithm 1 goes over a mini-batch."""
    return 2 if kind.schedule == "alternating" and kind.attention == "evolving" else 1


def _from_timing(kind: Kind) -> _Pace | None:
    """Its own timing or, on the same device and data, that of the kind it shares most with."""
    known = dict(_timed)
    if kind in known:
        return _Pace(known[kind])
    alike = [other for other in known if (other.device, other.data) == (kind.device, kind.data)]
    if not alike:
        return None
    nearest = max(alike, key=lambda other: tuple(a == b for a, b in zip(other, kind, strict=True)))
    return _Pace(known[nearest] * _passes(kind) / _passes(nearest), borrowed=True)


def _basis(paces: dict[Config, _Pace | None], kinds: dict[Config, Kind]) -> str:
    """What the estimate rests on, in words."""
    parts = []
    most = max((pace.runs for pace in paces.values() if pace), default=0)
    if most:
        parts.append(f"{most} finished run{'s' if most > 1 else ''} like these")
    timed = {kinds[config] for config, pace in paces.items() if pace and not pace.runs and not pace.borrowed}
    if timed:
        parts.append(f"a timed iteration of {len(timed)} kind{'s' if len(timed) > 1 else ''} of run")
    if any(pace and pace.borrowed for pace in paces.values()):
        parts.append("the rest by the nearest of those that were timed")
    said = ", and ".join(parts) or "no runs"
    return f"{said}; testing comes on top" if timed else said
