"""ACE against the method that it extends: ODE-Net, Latent-ODE or GRU-ODE-Bayes.

For the paper's experiments these are runs that count for its tables. For named variables, the other method is the same
model without attention, and runs with the default settings count. The words follow from the numbers that are passed in;
`acenode.compare.verdict.judge` decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from acenode import experiments
from acenode.compare.cells import Measured, fold_of, listed, mean_text, measure, repeats_text
from acenode.compare.groups import method_title
from acenode.compare.paper import CELLS, HOSTS, PaperCell
from acenode.compare.study_grid import ACE, SEEDS, WITHOUT, GridRow, make_grid
from acenode.compare.verdict import Contest, Verdict, judge
from acenode.experiments import Experiment
from acenode.runs.entry import Entry
from acenode.runs.questions import Repeat, Study, StudyGroup


def compared_cells() -> list[tuple[PaperCell, PaperCell]]:
    """Return the cells of ACE, each with that of its host method in the same column, in the order of the tables."""
    hosts = {(c.experiment, c.metric, c.settings.get("task")): c for c in CELLS.values()
             if c.method == HOSTS[c.experiment]}
    pairs = [(ace, hosts.get((ace.experiment, ace.metric, ace.settings.get("task")))) for ace in CELLS.values()
             if ace.method == ACE and not ace.ablation]
    return [(ace, host) for ace, host in pairs if host is not None]


def contests(measured: Mapping[str, Measured]) -> list[Contest]:
    """Return the measured values of ACE and its host method, in the order of the paper's tables."""
    return [_contest(ace, measured[ace.key], host, measured[host.key]) for ace, host in compared_cells()]


def _contest(ace: PaperCell, ours: Measured, host: PaperCell, theirs: Measured) -> Contest:
    names = (experiments.get(ace.experiment).title, ace.settings.get("task"), ace.format.title)
    partial = {found.mark == "partial" for found in (ours, theirs)}
    return Contest(" ".join(filter(None, names)), method_title(ace.experiment, host.method), _values(ace, ours),
                   _values(host, theirs), ace.format.higher_is_better, ours.epochs, theirs.epochs, any(partial),
                   ace.format.difference_unit, len(partial) == 1, ace.metric != "silhouette")


def _values(cell: PaperCell, measured: Measured) -> dict[Repeat, float]:
    """Return the value of each seed, or of each fold where the repetitions are folds, whatever its seeds."""
    found: dict[Repeat, list[float]] = {}
    for entry, value in zip(measured.entries, measured.values, strict=True):
        found.setdefault((0, fold_of(entry)) if cell.folds else (entry.seed, 0), []).append(value)
    return {at: mean(values) for at, values in found.items()}


def summary(findings: Iterable[Contest]) -> str:
    """Say in one sentence where ACE is ahead of its host method and where behind."""
    found = list(findings)
    ahead, behind = ([_name(f) for f in found if f.verdict == v] for v in ("ahead", "behind"))
    if not ahead and not behind:
        compared = sum(f.interval is not None for f in found)
        return (f"{compared} of {len(found)} comparisons have enough runs; in none of these is ACE clearly ahead of "
                "the method it extends, or behind it.")
    text = f"Here ACE is ahead of the method it extends in {len(ahead)} of {len(found)} comparisons"
    text += f" ({listed(ahead)})" if ahead else ""
    text += f" and behind in {len(behind)} ({listed(behind)})" if behind else " and behind in none"
    missing = sum(f.verdict == "open" and f.advantage is None for f in found)
    undecided = len(found) - len(ahead) - len(behind) - missing
    rest = [f"{undecided} {'is' if undecided == 1 else 'are'} undecided"] * (undecided > 0)
    rest += [f"{missing} cannot be made yet"] * (missing > 0)
    return f"{text}{'; ' * bool(rest)}{' and '.join(rest)}."


def prediction_note(findings: Iterable[Contest]) -> str:
    """Say that no measure of prediction is decided, if all that is decided are silhouettes; else an empty text."""
    found = list(findings)
    decided = [f for f in found if f.verdict != "open"]
    if not decided or any(f.predicts for f in decided):
        return ""
    measures = sum(f.predicts for f in found)
    return ("A silhouette says how far apart clusters of features are; no difference can be told in any of the "
            f"{measures} measures of prediction.")


def table(findings: Iterable[Contest]) -> list[dict[str, str]]:
    """Return a row of texts for each finding: what was compared, the difference, its interval and the verdict."""
    return [{"Compared": f"{_name(f)}, {'higher' if f.higher_is_better else 'lower'} is better",
             "ACE extends": f.host, **_numbers(f),
             "Verdict": f"ACE is {f.verdict}" if f.verdict != "open" else
                        "undecided" if f.interval else f"undecided: {f.reason}"}
            for f in findings]


def _name(finding: Contest) -> str:
    return finding.title + " on a part of the data" * finding.partial


def _numbers(finding: Contest) -> dict[str, str]:
    """Return ACE's difference to its host method, the interval and the number of runs; empty texts if unknown."""
    sign = 1 if finding.higher_is_better else -1
    difference, interval, runs = "", "", ""
    if finding.advantage is not None:
        low, high = sorted(sign * end for end in finding.interval or (0.0, 2 * finding.advantage))
        width = high - low  # half of it has two significant digits
        places = max(0, 1 - math.floor(math.log10(width / 2))) if 0 < width < math.inf else 2
        signed = [f"{value:+.{places}f}".replace("-", "−") for value in (sign * finding.advantage, low, high)]
        difference = signed[0] + finding.unit
        interval = f"{signed[1]} to {signed[2]}" if finding.interval else ""
    if finding.ace and finding.other:
        runs = f"{finding.pairs} pairs" if finding.pairs else f"{len(finding.ace)} and {len(finding.other)} runs"
    return {"Difference": difference, "95% interval": interval, "Runs": runs}


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
    """Compare ACE with its host method in every measure of an experiment in which both were tested; nothing for an
    experiment that is neither the paper's nor a set of named variables."""
    own = [e for e in entries if e.experiment == experiment.name]
    cells = [pair for pair in compared_cells() if pair[0].experiment == experiment.name
             and pair[0].metric != "silhouette"]
    if not cells and {ACE, WITHOUT} <= experiment.methods.keys():
        return _named_variables(experiment, own)
    return [found for ace, host in cells if (found := _cells(ace, host, own)) is not None]


def _compared(found: Contest, name: str, means: Iterable[MethodMean], repeats: str, where: str = "") -> Compared:
    ace, host = means
    texts = _numbers(found)
    numbers = f"difference {texts['Difference']}, 95% interval {texts['95% interval']}"
    return Compared(name, found.higher_is_better, ace, host, repeats, where, found.verdict,
                    found.reason if found.interval is None else numbers)


def _cells(ace: PaperCell, host: PaperCell, entries: list[Entry]) -> Compared | None:
    both = {cell: measure(cell, entries) for cell in (ace, host)}
    if not all(measured.n for measured in both.values()):
        return None
    found = judge(_contest(ace, both[ace], host, both[host]))
    means = (MethodMean(cell.title, mean_text(cell, measured) + cell.format.unit,
                        tuple(e.id for e in measured.entries), cell.key) for cell, measured in both.items())
    return _compared(found, " of ".join(filter(None, (ace.format.title, ace.settings.get("task")))), means,
                     "; ".join(dict.fromkeys(map(repeats_text, both.values()))),
                     "on a part of the data" if found.partial else "on the full data")


def _named_variables(experiment: Experiment, entries: list[Entry]) -> list[Compared]:
    study = Study("against-host", experiment.name, (StudyGroup(ACE), StudyGroup(WITHOUT)), seeds=SEEDS, baseline=1)
    grid = make_grid(study, entries)
    if not all(row.values for row in grid.rows):
        return []
    form, epochs = grid.measure, sorted({str(cell.config.get("epochs")) for row in grid.rows for cell in row.cells})
    ace, other = ({at: value * form.scale for at, value in row.values.items()} for row in grid.rows)
    shared = min(len(ace), len(other))
    found = judge(Contest(form.title, grid.baseline.name, ace, other, form.higher_is_better,
                          unit=form.difference_unit))

    def row_mean(row: GridRow) -> MethodMean:
        return MethodMean(experiment.methods[row.config.method].title, form.text(row.mean, row.std),
                          tuple(e.id for e in row.entries))

    return [_compared(found, form.title, map(row_mean, grid.rows),
                      f"{shared} seed{'s' * (shared > 1)}, {' and '.join(epochs)} epochs")]
