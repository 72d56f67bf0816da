"""What a study asks for: its check, its ready-made forms, and the grid of its runs.

A grid has a row for each group, a column for each seed or fold, and the run that fills each cell.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from acenode import experiments
from acenode.compare.cells import CAMPAIGN_EPOCHS
from acenode.compare.groups import method_title, same_run, trained_settings
from acenode.compare.metrics import MetricFormat, metric_format, metric_name
from acenode.compare.paper import HOSTS
from acenode.config import KEYS, Config
from acenode.config.vocabulary import excluded
from acenode.data.registry import DATA_SOURCES
from acenode.data.splits import FOLDS
from acenode.errors import UserError
from acenode.runs.catalogue import Catalogue
from acenode.runs.entry import Entry
from acenode.runs.questions import Repeat, Study, StudyGroup


def check_study(study: Study) -> Study:
    """Return the study if its experiment has all of it and every group differs from the others, else raise an error."""
    experiment = experiments.get(study.experiment)
    metrics = (experiment.metric.name, *experiment.other_metrics)
    if study.metric and study.metric not in metrics:
        raise UserError(f"{study.experiment} has no metric {study.metric!r}: choose {' or '.join(metrics)}")
    configs = [group_config(study, group) for group in study.groups]
    settings = [trained_settings(config.to_dict()) for config in configs]
    for i, one in enumerate(settings):
        if one in settings[:i]:
            raise UserError(f"groups {settings.index(one) + 1} and {i + 1} train the same: leave one out")
    for key in study.held:
        if all(config.get(key) is None for config in configs):
            raise UserError(f"{key} applies to none of the groups: leave it out")
    return study


def group_config(study: Study, group: StudyGroup, repeat: Repeat | None = None) -> Config:
    """Return the configuration of one run of a group; settings that are held equal are used where they apply."""
    experiment, (seed, fold) = experiments.get(study.experiment), repeat or study.repeats[0]
    given: dict[str, Any] = dict(group.settings)
    if fold is not None:
        given["fold"] = fold
    uses = experiment.method(group.method).uses
    config = experiment.configure(group.method, study.data, seed=seed, **given)
    for key, value in study.held.items():  # in the order of the vocabulary: a setting follows those it depends on
        if key in uses and not excluded(key, config.to_dict()):
            given[key] = value
            config = experiment.configure(group.method, study.data, seed=seed, **given)
    return config


def group_names(study: Study) -> list[str]:
    """Name the groups by what differs, the distinguishing part first.

    Settings come before the method where several groups share it: `fixed attention, ACE-ODE-Net`. A method of its own
    is name enough, and a method that all groups share is left out.
    """
    configs = [group_config(study, group) for group in study.groups]
    titles = [method_title(study.experiment, group.method) for group in study.groups]
    names = []
    for config, title in zip(configs, titles, strict=True):
        rivals = [other for other in configs if other.method == config.method]
        words = [_value_words(key, config.get(key)) for key in KEYS
                 if key in study.varied and len({repr(r.get(key)) for r in rivals}) > 1]
        names.append(", ".join([*words, *([title] if len(set(titles)) > 1 or not words else [])]))
    return names


def _value_words(key: str, value: Any) -> str:
    """Say a setting's value with the value first: `fixed attention`, `no penalty`, `0.001 rtol`."""
    word = key.replace("_", " ")
    if value is None or value is False or value == "none":
        return f"no {word}"
    if value is True:
        return word
    return f"{value:.6g} {word}" if isinstance(value, float) else f"{value} {word}"


# The grid -----------------------------------------------------------------------------------------------------------

MISSING = "missing"  # the state of a cell without a run


@dataclass(frozen=True)
class GridCell:
    """One run that a study asks for, with the run that answers it, if there is one."""

    repeat: Repeat
    config: Config
    entry: Entry | None
    value: float | None  # of the study's metric on the test set

    @property
    def state(self) -> str:
        """The state of the run, or `missing`."""
        return self.entry.state if self.entry else MISSING

    @property
    def progress(self) -> float:
        """How much of the run is trained, from 0 to 1."""
        return 0.0 if self.entry is None else 1.0 if self.entry.state == "finished" else self.entry.progress

    @property
    def running(self) -> bool:
        """True if the run is queued or running."""
        return self.entry is not None and self.entry.busy


@dataclass(frozen=True)
class GridRow:
    """A group of a study with its cells, in the order of the study's repeats."""

    name: str
    cells: tuple[GridCell, ...]

    @property
    def values(self) -> dict[Repeat, float]:
        """The measured values by seed and fold."""
        return {cell.repeat: cell.value for cell in self.cells if cell.value is not None}

    @property
    def mean(self) -> float | None:
        """The mean of the measured values."""
        return statistics.mean(self.values.values()) if self.values else None

    @property
    def std(self) -> float | None:
        """The sample standard deviation; None for fewer than two values."""
        return statistics.stdev(self.values.values()) if len(self.values) > 1 else None

    @property
    def config(self) -> Config:
        """The configuration of the first cell."""
        return self.cells[0].config

    @property
    def entries(self) -> list[Entry]:
        """The runs there are."""
        return [cell.entry for cell in self.cells if cell.entry is not None]


@dataclass(frozen=True)
class StudyGrid:
    """A study with the runs there are."""

    study: Study
    measure: MetricFormat
    rows: tuple[GridRow, ...]

    @property
    def baseline(self) -> GridRow:
        """The row that the others are compared with."""
        return self.rows[self.study.baseline]

    @property
    def cells(self) -> list[GridCell]:
        """All cells, seed by seed, so that the first seed of every group comes first."""
        return [row.cells[i] for i in range(len(self.study.repeats)) for row in self.rows]

    @property
    def wanted(self) -> list[GridCell]:
        """The cells that must still be trained: nobody has finished them or is at them."""
        return [cell for cell in self.cells if cell.value is None and not cell.running]

    @property
    def running(self) -> list[GridCell]:
        """The cells whose run is queued or running."""
        return [cell for cell in self.cells if cell.running]

    @property
    def finished(self) -> int:
        """The number of cells with a value."""
        return sum(cell.value is not None for cell in self.cells)

    @property
    def progress(self) -> float:
        """How much of the study is trained, from 0 to 1."""
        return sum(cell.progress for cell in self.cells) / len(self.cells)


def make_grid(study: Study, entries: Iterable[Entry]) -> StudyGrid:
    """Fill the grid of a study with the runs that have its configurations.

    Of several runs for one cell the latest finished one counts, then one that is trained now, then the one that can be
    resumed with the least left to do. Runs on a part of the full data count only where there is no other.
    """
    check_study(study)
    measure = metric_format(study.metric or metric_name(study.experiment), study.experiment)
    by_seed: dict[tuple[str, int], list[Entry]] = {}
    for entry in entries:
        if (entry.experiment, entry.data) == (study.experiment, study.data):
            by_seed.setdefault((entry.method, entry.seed), []).append(entry)
    rows = []
    for name, group in zip(group_names(study), study.groups, strict=True):
        cells = []
        for repeat in study.repeats:
            config = group_config(study, group, repeat)
            found = _choose(config, measure.name, by_seed.get((config.method, config.seed), []))
            cells.append(GridCell(repeat, config, found, found.test.get(measure.name) if found else None))
        rows.append(GridRow(name, tuple(cells)))
    return StudyGrid(study, measure, tuple(rows))


def _choose(config: Config, metric: str, entries: Sequence[Entry]) -> Entry | None:
    def order(entry: Entry) -> tuple[bool, bool, bool, float, float]:
        measured = entry.test.get(metric) is not None
        resumable = 0.0 if measured or entry.busy else entry.progress
        return measured, measured and not entry.partial, entry.busy, resumable, entry.created

    return max((e for e in entries if (e.test.get(metric) is not None or e.busy or e.resumable)
                and same_run(config, e)), key=order, default=None)


def repeat_title(study: Study, repeat: Repeat) -> str:
    """Name a column: `seed 0`, `fold 1`, or both."""
    seed, fold = repeat
    if fold is None:
        return f"seed {seed}"
    return f"fold {fold}" if not study.seeds else f"fold {fold}, seed {seed}"


def repeat_noun(study: Study) -> str:
    """Return what a repeat is called: seed, fold, or run where both vary."""
    return "seed" if not study.folds else "fold" if len(study.seeds) < 2 else "run"


MOST_PLAYERS = 4  # side by side
ORDER = {"evolving": 0, "fixed": 1}  # attention that is shown first


def playable(grid: StudyGrid, *, finished: bool = False) -> dict[Repeat, dict[str, Entry]]:
    """Return the runs with snapshots by seed and group, groups with evolving attention first, then fixed attention.

    With `finished`, only runs that have a value."""
    found: dict[Repeat, dict[str, Entry]] = {}
    for row in sorted(grid.rows, key=lambda row: ORDER.get(row.config.get("attention"), len(ORDER))):
        for cell in row.cells:
            entry = cell.entry
            if entry is not None and (cell.value is not None or not finished) and entry.run.snapshots():
                found.setdefault(cell.repeat, {})[row.name] = entry
    return {repeat: found[repeat] for repeat in grid.study.repeats if repeat in found}


def fullest(found: Mapping[Repeat, Mapping[str, Entry]]) -> Repeat | None:
    """Return the seed or fold with runs of most groups, the first of several; None if there is no run."""
    return max(found, key=lambda repeat: len(found[repeat]), default=None)


# Ready-made studies -------------------------------------------------------------------------------------------------

SEEDS = (0, 1, 2)
ACE, WITHOUT = "ace", "no-attention"
PAGES = ("home", "tour", "playground", "paper", "studies", "searches", "your-data", "compare", "runs")  # of the app
WORDS = {"forecast": "forecast", "fill": "fill in", "classify": "classify"}


def presets(experiment: str, data: str = "sample") -> list[Study]:
    """Return the ready-made studies of an experiment, named after it: `mnist-attention`, `mnist-host`, ...

    An experiment has those whose settings and methods it has. They have three seeds, or the folds of the full data
    where it has folds. On the full data a study holds the length of the project's recorded runs, so that these count.
    """
    found = experiments.get(experiment)
    if ACE not in found.methods:
        return []
    uses, host, studies = found.method(ACE).uses, HOSTS.get(found.name), list[Study]()
    length = {"epochs": CAMPAIGN_EPOCHS[found.name]} if data == "full" and found.name in CAMPAIGN_EPOCHS else {}
    folds = tuple(range(FOLDS)) if data == "full" and "fold" in uses else ()

    def add(kind: str, question: str, groups: Iterable[tuple[str, dict[str, Any]]], baseline: int, **held: Any) -> None:
        name = "-".join([found.name, *(["full"] if data == "full" else []), kind])
        studies.append(Study(name, found.name, tuple(StudyGroup(*group) for group in groups), question, data,
                             {**held, **length}, () if folds else SEEDS, folds, baseline))

    if "attention" in uses:  # which changes `initial` for images, unless that is held
        held = {"initial": found.configure(ACE, data).get("initial")} if "initial" in uses else {}
        add("attention", "Does attention help, and does it matter that it evolves?",
            [(ACE, {"attention": kind}) for kind in ("evolving", "fixed", "none")], 2, **held)
    if host in found.methods:
        add("host", f"Is ACE better than {method_title(found.name, str(host))}, and than more coordinates?",
            [(name, {}) for name in (ACE, "augmented", str(host))], 2)
    elif len(found.methods) > 1:
        others = [name for name in found.methods if name != ACE]
        add("host", "Is ACE better than the other methods?", [(name, {}) for name in (ACE, *reversed(others))],
            len(others))
    if "schedule" in uses:
        add("schedule", "Is it better to train attention in turns or jointly?",
            [(ACE, {"schedule": kind}) for kind in ("alternating", "joint")], 1)
    if "size" in uses and host in found.methods:
        add("size", "Does a larger network do what attention does?",
            [(name, {"size": size}) for name in (ACE, str(host)) for size in ("small", "large")], 2)
    return studies


def preset(experiment: str, kind: str, data: str = "sample") -> Study:
    """Return one of them by its kind: attention, host, schedule or size."""
    found = {kind_of(study): study for study in presets(experiment, data)}
    if kind not in found:
        choice = f"choose one of {', '.join(found)}" if found else "it has none"
        raise UserError(f"{experiment} has no preset {kind!r}: {choice}")
    return found[kind]


def kind_of(study: Study) -> str:
    """Return the last word of a preset's name."""
    return study.name.rpartition("-")[2]


def set_study(name: str, task: str, epochs: int | None = None) -> Study:
    """Return the study of ACE against the same model without attention on a set; `task` is forecast, fill or classify,
    and `epochs` the set's default if None."""
    default = experiments.get(name).configure(ACE).get("epochs")
    held = {} if epochs in (None, default) else {"epochs": epochs}
    ending = f"-{epochs}-epochs" if held else ""
    return Study(name=f"{name}-ace{ending}", experiment=name, groups=(StudyGroup(ACE), StudyGroup(WITHOUT)),
                 question=f"Does attention between its variables help to {WORDS[task]} {name}?", held=held, seeds=SEEDS,
                 baseline=1)


def reserved_names(catalogue: Catalogue) -> frozenset[str]:
    """Return the names that a new set cannot have: of experiments, data sets, pages, and trained sets.

    A run knows its set by name. Another set of that name would be taken for it.
    """
    return frozenset({*experiments.EXPERIMENTS, *experiments.EXAMPLES, *DATA_SOURCES, *PAGES,
                      *(entry.experiment for entry in catalogue.entries())})
