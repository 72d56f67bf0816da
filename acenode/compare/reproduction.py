"""Plan the runs that the cells of the paper's tables still need, in order of worth, and say how long runs take.

A run is worth most where it measures something new: the first seeds of the main methods (the host, the augmented one
and ACE) in all tables, then their second and third seeds, then the first seeds of the other methods and of the
ablations, then their further seeds, and last longer runs of what is measured already. Among runs of equal worth,
those on complete data come first, then the shortest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from acenode import experiments
from acenode.compare.cells import Measured, measure, missing, repetitions
from acenode.compare.groups import unfinished
from acenode.compare.paper import CELLS, TABLES, PaperCell
from acenode.config import Config
from acenode.config.groups import ADDED, Training
from acenode.config.vocabulary import CHOSEN
from acenode.data.folder import is_file
from acenode.data.registry import source_of
from acenode.errors import UserError
from acenode.runs.catalogue import Entry

WORTH = ("first seeds of the main methods", "second seeds of the main methods",
         "further seeds and folds of the main methods", "first seeds of the other methods",
         "first seeds of the ablations", "further seeds of the other methods", "further seeds of the ablations",
         "more than three seeds", "longer runs of measured cells")
USUAL_SEEDS = 3  # more of them say little
# Rough seconds of an epoch on a large GPU, to order runs that were never timed; ACE takes about twice as long.
ROUGH_EPOCH = {"mnist": 3.0, "svhn": 15.0, "cifar10": 15.0, "ushcn": 0.3, "physionet": 2.0, "physionet-vitals": 4.0,
               "activity": 3.0}
Seconds = Callable[[Config], float | None]  # of a whole run; None if unknown


@dataclass(frozen=True)
class Wanted:
    """Which runs are wanted: how many, how long, with which settings and on which device."""

    seeds: int | None = None
    epochs: int | None = None
    preset: str = CHOSEN
    device: str = "auto"


@dataclass(frozen=True)
class PlannedRun:
    """A run to train: for which cells, how much it is worth, and how long it takes if that is known."""

    config: Config
    cells: tuple[PaperCell, ...]
    worth: int  # index of WORTH: a smaller one is worth more
    resumes: str | None = None  # the id of the unfinished run that it continues
    seconds: float | None = None  # that are left to train

    @property
    def title(self) -> str:
        """A short name: experiment, method and what defines the cell, seed or fold."""
        cell, fold = self.cells[0], self.config.get("fold")
        return " ".join([cell.experiment, cell.method, *map(str, cell.settings.values()),
                         f"fold {fold}" if fold is not None else f"seed {self.config.seed}"])


@dataclass(frozen=True)
class CellPlan:
    """A cell with what is measured and the configurations that are missing."""

    cell: PaperCell
    measured: Measured
    missing: tuple[Config, ...]


def select(names: Sequence[str]) -> list[PaperCell]:
    """Return the cells of these tables, or with these keys; all cells if there are no names."""
    found: dict[str, PaperCell] = {}
    for name in names or TABLES:
        if name not in CELLS and name not in TABLES:
            raise UserError(f"the paper has no table {name!r}: choose one of {', '.join(TABLES)}")
        found |= {cell.key: cell for cell in ([CELLS[name]] if name in CELLS else TABLES[name].cells)}
    return list(found.values())


def missing_data(cells: Iterable[PaperCell], root: Path) -> dict[str, str]:
    """Return the experiments whose full data is not in the data folder, each with the command that gets it."""
    sources = {cell.experiment: experiments.get(cell.experiment).source for cell in cells}
    return {name: f"acenode data get {source}" for name, source in sources.items()
            if source is not None and not is_file(source_of(source).path(root))}


def partial_data(entries: Iterable[Entry], root: Path) -> frozenset[str]:
    """Return the experiments of which only a part of the data is here, or none.

    The data is read only if there are runs on a part of it, since nothing else depends on the answer.
    """
    found = {entry.experiment for entry in entries if entry.partial and entry.data == "full"}
    for name in list(found):
        with suppress(UserError):  # there is no data, or it is damaged
            if experiments.get(name).is_complete(root):
                found.remove(name)
    return frozenset(found)


def cell_plans(cells: Iterable[PaperCell], entries: Sequence[Entry], wanted: Wanted,
               partial: frozenset[str] = frozenset()) -> list[CellPlan]:
    """Measure the cells and find their missing runs; runs on a part of the data count for experiments in `partial`."""
    by_method: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        by_method.setdefault((entry.experiment, entry.method), []).append(entry)
    plans = []
    for cell in cells:
        own = by_method.get((cell.experiment, cell.method), [])
        needed = missing(cell, own, wanted.seeds, epochs=wanted.epochs, preset=wanted.preset,
                         partial=cell.experiment in partial)
        plans.append(CellPlan(cell, measure(cell, own, wanted.seeds, wanted.preset),
                              tuple(replace(config, device=wanted.device) for config in needed)))
    return plans


def queue(plans: Iterable[CellPlan], entries: Sequence[Entry], wanted: Wanted, partial: frozenset[str] = frozenset(),
          seconds: Seconds = lambda config: None) -> list[PlannedRun]:
    """Return the missing runs of all cells in order of worth, each once."""
    found: dict[Config, PlannedRun] = {}
    for plan in plans:
        needed = repetitions(plan.cell, wanted.seeds)
        measured = plan.measured.n >= needed and plan.measured.mark != "partial"
        for repetition, config in enumerate(plan.missing, needed - len(plan.missing)):
            worth = 8 if measured else _worth(plan.cell, repetition)
            before = found.get(config, PlannedRun(config, (), worth))
            found[config] = PlannedRun(config, (*before.cells, plan.cell), min(worth, before.worth))
    complete = []
    for run in found.values():  # with the unfinished run that each continues, and the time that is left
        half, left = unfinished(run.config, entries), seconds(run.config)
        if half is not None and left is not None:
            left *= 1 - half.progress
        complete.append(replace(run, resumes=half.id if half else None, seconds=left))

    def rough(config: Config) -> float:
        return ROUGH_EPOCH[config.experiment] * int(config.get("epochs")) * (2 if config.method == "ace" else 1)

    return sorted(complete, key=lambda run: (run.worth, run.config.experiment in partial, run.resumes is None,
                                             rough(run.config) if run.seconds is None else run.seconds))


def _worth(cell: PaperCell, repetition: int) -> int:
    """Return the index in WORTH of one repetition of a cell that is not measured."""
    if repetition >= USUAL_SEEDS and not cell.folds:
        return 7
    if cell.main:
        return min(repetition, 2)
    return (3 if repetition == 0 else 5) + cell.ablation


# How long runs take, from similar runs that are finished ------------------------------------------------------------

# settings that a finished run must share
REQUIRED = ("experiment", "data", "method", "size", "engine", "sample", "at_jump", "attention_every", "g", "impute")
PREFERRED = ("attention", "schedule", "solver", "gradient", "batch_size")  # settings it should share, in this order


@dataclass(frozen=True)
class RunTime:
    """Seconds per epoch and outside the epochs; medians over `runs` similar runs."""

    epoch: float
    overhead: float = 0.0
    runs: int = 0

    def seconds(self, config: Config) -> float:
        """Return the seconds of a whole run."""
        return self.epoch * config.part(Training).epochs + self.overhead


def time_of(config: Config, entries: Iterable[Entry]) -> RunTime | None:
    """Return the time of the most similar finished runs among these, which share a device; None if there are none."""
    similar: dict[tuple[bool, ...], list[Entry]] = {}
    for entry in entries:
        if entry.state == "finished" and entry.seconds and entry.epochs and all(
                _value(entry.config, name) == _value(config, name) for name in REQUIRED):
            shared = tuple(entry.config.get(name) == config.get(name) for name in PREFERRED)
            similar.setdefault(shared, []).append(entry)
    if not similar:
        return None
    nearest = similar[max(similar)]
    overhead = [entry.other_seconds for entry in nearest if entry.other_seconds is not None]
    return RunTime(median((entry.seconds or 0.0) / entry.epochs for entry in nearest), median(overhead or [0.0]),
                   len(nearest))


def _value(config: Config | Mapping[str, Any], name: str) -> Any:
    """Return a setting, with the value that an older run had where it lacks the key."""
    value = config.get(name)
    return ADDED.get(name) if value is None else value


def recorded_gpu(entries: Iterable[Entry]) -> str:
    """Return the name of the GPU that most recorded runs were trained on; empty if there is none."""
    found = Counter(entry.device for entry in entries if entry.recorded and not entry.device.startswith("cpu"))
    return found.most_common(1)[0][0] if found else ""


def trained_on(entries: Iterable[Entry], device: str, title: str | None = None) -> list[Entry]:
    """Return the runs of `cpu` or `cuda`, without recorded ones of other processors, and of other GPUs if the `title`
    of the one here is known."""
    return [entry for entry in entries if entry.device.startswith("cpu") == (device == "cpu")
            and (not entry.recorded or (device == "cuda" and title in (None, entry.device)))]


def measured_seconds(entries: Iterable[Entry], device: str, title: str | None = None) -> Seconds:
    """Return a function that gives the seconds of a run from those that were measured on `cpu` or `cuda`."""
    here = trained_on(entries, device, title)

    def seconds(config: Config) -> float | None:
        found = time_of(config, here)
        return found.seconds(config) if found else None

    return seconds
