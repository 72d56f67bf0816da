"""The grid of a study: a row for each group, a column for each seed or fold, and the run that fills each cell."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from acenode.compare import study_configs
from acenode.compare.metric_format import MetricFormat
from acenode.config import Config
from acenode.runs.entry import Entry
from acenode.runs.studies import Repeat, Study

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
        if self.entry is None:
            return 0.0
        return 1.0 if self.entry.state == "finished" else self.entry.progress

    @property
    def wanted(self) -> bool:
        """True if the run must still be trained: nobody has finished it or is at it."""
        return self.value is None and not (self.entry is not None and self.entry.busy)


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
        """The cells that must still be trained."""
        return [cell for cell in self.cells if cell.wanted]

    @property
    def running(self) -> list[GridCell]:
        """The cells whose run is queued or running."""
        return [cell for cell in self.cells if cell.entry is not None and cell.entry.busy]

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
    study_configs.check_study(study)
    measure = study_configs.measure(study)
    by_seed: dict[tuple[str, int], list[Entry]] = {}
    for entry in entries:
        if (entry.experiment, entry.data) == (study.experiment, study.data):
            by_seed.setdefault((entry.method, entry.seed), []).append(entry)
    rows = []
    for name, group in zip(study_configs.group_names(study), study.groups, strict=True):
        cells = []
        for repeat, config in zip(study.repeats, study_configs.group_configs(study, group), strict=True):
            found = _choose(config, measure.name, by_seed.get((config.method, config.seed), []))
            cells.append(GridCell(repeat, config, found, found.test.get(measure.name) if found else None))
        rows.append(GridRow(name, tuple(cells)))
    return StudyGrid(study, measure, tuple(rows))


def repeat_title(study: Study, repeat: Repeat) -> str:
    """Name a column: `seed 0`, `fold 1`, or both."""
    seed, fold = repeat
    if fold is None:
        return f"seed {seed}"
    return f"fold {fold}" if not study.seeds else f"fold {fold}, seed {seed}"


def repeats_word(study: Study, count: int) -> str:
    """Return what a number of repeats is called: seeds, folds, or runs of both."""
    word = "seed" if not study.folds else "fold" if not study.seeds or len(study.seeds) == 1 else "run"
    return f"{word}{'s' * (count != 1)}"


def _choose(config: Config, metric: str, entries: Sequence[Entry]) -> Entry | None:
    """Return the run that counts for a configuration, or None."""
    same = [entry for entry in entries if study_configs.same_run(config, entry)]

    def order(entry: Entry) -> tuple[bool, bool, bool, float, float]:
        measured = entry.test.get(metric) is not None
        resumable = 0.0 if measured or entry.busy else entry.progress
        return measured, measured and not entry.partial, entry.busy, resumable, entry.created

    usable = [e for e in same if e.test.get(metric) is not None or e.busy or e.resumable]
    return max(usable, key=order, default=None)
