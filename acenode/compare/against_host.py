"""ACE against the method that it extends, in one experiment: both means, and whether one is better.

For the paper's experiments these are runs that count for its tables. For named variables, the other method is the same
model without attention, and runs with the default settings count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from acenode.compare import cell_text
from acenode.compare.cells import Measured, measure
from acenode.compare.contests import compared_cells, contest
from acenode.compare.evidence import Contest, Finding, Verdict, judge, numbers
from acenode.compare.metric_format import MetricFormat
from acenode.compare.paper_tables import PaperCell
from acenode.compare.set_study import ACE, SEEDS, WITHOUT
from acenode.compare.study_grid import GridRow, make_grid
from acenode.experiments import Experiment
from acenode.runs.entry import Entry
from acenode.runs.studies import Study, StudyGroup


@dataclass(frozen=True)
class MethodMean:
    """A method with its mean ± standard deviation, and the runs behind it."""

    title: str
    value: str
    runs: tuple[str, ...]
    cell: str = ""  # the key of its cell in the paper's tables, if it has one


@dataclass(frozen=True)
class Compared:
    """What the runs of two methods show in one measure."""

    measure: str
    higher_is_better: bool
    ace: MethodMean
    host: MethodMean
    repeats: str  # seeds or folds, and epochs
    where: str  # which part of the data, if there are several
    verdict: Verdict
    numbers: str  # the difference with its interval, or why there is none


def compared(experiment: Experiment, entries: Sequence[Entry]) -> list[Compared]:
    """Compare ACE with its host method in every measure of an experiment in which both were tested.

    Args:
        experiment: one of the paper's, or a set of named variables; any other one has no host method.
        entries: runs; those of other experiments and unfinished ones are left out.
    """
    own = [e for e in entries if e.experiment == experiment.name]
    cells = [pair for pair in compared_cells() if pair[0].experiment == experiment.name
             and pair[0].metric != "silhouette"]
    if cells:
        return [found for ace, host in cells if (found := _cells(ace, host, own)) is not None]
    if {ACE, WITHOUT} <= experiment.methods.keys():
        return _named(experiment, own)
    return []


def _cells(ace: PaperCell, host: PaperCell, entries: list[Entry]) -> Compared | None:
    ours, theirs = measure(ace, entries), measure(host, entries)
    if not ours.n or not theirs.n:
        return None
    task = ace.settings.get("task")
    repeats = dict.fromkeys(map(cell_text.repeats, (ours, theirs)))
    found = judge(contest(ace, ours, host, theirs))
    return Compared(" of ".join(filter(None, (ace.format.title, task))), ace.format.higher_is_better,
                    _cell_mean(ace, ours), _cell_mean(host, theirs), "; ".join(repeats),
                    "on a part of the data" if found.contest.partial else "on the full data", found.verdict,
                    _words(found))


def _cell_mean(cell: PaperCell, measured: Measured) -> MethodMean:
    return MethodMean(cell.title, cell_text.ours(cell, measured) + cell.format.unit,
                      tuple(e.id for e in measured.entries), cell.key)


def _named(experiment: Experiment, entries: list[Entry]) -> list[Compared]:
    study = Study("against-host", experiment.name, (StudyGroup(ACE), StudyGroup(WITHOUT)), seeds=SEEDS, baseline=1)
    grid = make_grid(study, entries)
    ours, theirs = grid.rows
    if not ours.values or not theirs.values:
        return []
    form, epochs = grid.measure, sorted({str(cell.config.get("epochs")) for row in grid.rows for cell in row.cells})
    ace, other = ({(seed, 0): value * form.scale for (seed, _), value in row.values.items()} for row in grid.rows)
    found = judge(Contest(form.title, theirs.name, ace, other, form.higher_is_better,
                          unit=" points" if form.unit == "%" else form.unit))
    shared = min(len(ace), len(other))
    repeats = f"{shared} seed{'s' * (shared > 1)}, {' and '.join(epochs)} epochs"
    return [Compared(form.title, form.higher_is_better, _row_mean(experiment, ACE, ours, form),
                     _row_mean(experiment, WITHOUT, theirs, form), repeats, "", found.verdict, _words(found))]


def _row_mean(experiment: Experiment, method: str, row: GridRow, form: MetricFormat) -> MethodMean:
    return MethodMean(experiment.methods[method].title, form.text(row.mean, row.std), tuple(e.id for e in row.entries))


def _words(finding: Finding) -> str:
    if finding.interval is None:
        return finding.reason
    found = numbers(finding)
    return f"difference {found['Difference']}, 95% interval {found['95% interval']}"
