"""Measure all cells of the paper, and set ACE beside its host method in every column that has both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import mean

from acenode import experiments
from acenode.compare.cells import CELLS, Measured, measure
from acenode.compare.evidence import Contest, Repeat
from acenode.compare.paper_tables import HOSTS, PaperCell
from acenode.compare.run_groups import method_title
from acenode.runs.entry import Entry


def measure_all(entries: Iterable[Entry]) -> dict[str, Measured]:
    """Measure every cell; the keys are those of the cells."""
    by_experiment: dict[str, list[Entry]] = {}
    for entry in entries:
        by_experiment.setdefault(entry.experiment, []).append(entry)
    return {key: measure(cell, by_experiment.get(cell.experiment, [])) for key, cell in CELLS.items()}


def compared_cells() -> list[tuple[PaperCell, PaperCell]]:
    """Return the cells of ACE, each with that of its host method in the same column, in the order of the tables."""
    found = []
    for ace in CELLS.values():
        if ace.method != "ace" or ace.ablation:
            continue
        host = next((c for c in CELLS.values() if c.method == HOSTS[ace.experiment] and c.settings == ace.settings
                     and (c.experiment, c.metric) == (ace.experiment, ace.metric)), None)
        if host is not None:
            found.append((ace, host))
    return found


def contests(measured: Mapping[str, Measured]) -> list[Contest]:
    """Return the measured values of ACE and its host method, in the order of the paper's tables."""
    return [contest(ace, measured[ace.key], host, measured[host.key]) for ace, host in compared_cells()]


def contest(ace: PaperCell, ours: Measured, host: PaperCell, theirs: Measured) -> Contest:
    """Return the measured values of a cell of ACE and of its host method's."""
    return Contest(
        _title(ace), method_title(ace.experiment, host.method), _values(ace, ours), _values(host, theirs),
        ace.format.higher_is_better, _epochs(ours), _epochs(theirs), "partial" in (ours.mark, theirs.mark),
        unit=" points" if ace.format.unit == "%" else ace.format.unit,
        same_data=(ours.mark == "partial") == (theirs.mark == "partial"), predicts=ace.metric != "silhouette")


def _title(cell: PaperCell) -> str:
    task = cell.settings.get("task")
    return " ".join(filter(None, (experiments.get(cell.experiment).title, task, cell.format.title)))


def _values(cell: PaperCell, measured: Measured) -> dict[Repeat, float]:
    """Return the value of each seed, or of each fold where the repetitions are folds, whatever its seeds."""
    found: dict[Repeat, list[float]] = {}
    for entry in measured.entries:
        value = measure(cell, [entry]).mean
        if value is not None:
            at = (0, int(entry.config.get("fold") or 0)) if cell.folds else (entry.seed, 0)
            found.setdefault(at, []).append(value)
    return {at: mean(values) for at, values in found.items()}


def _epochs(measured: Measured) -> frozenset[int]:
    return frozenset() if measured.epochs is None else frozenset({measured.epochs})
