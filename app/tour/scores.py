"""The measured results of one experiment with attention evolving, fixed and off, and what can be told from them."""

from __future__ import annotations

from dataclasses import dataclass

from acenode.compare.against_host import contests
from acenode.compare.cells import Measured, mean_text, measure_all, repeats_text
from acenode.compare.paper import CELLS, HOSTS, PaperCell
from acenode.compare.statistics import MIN_RUNS
from acenode.compare.verdict import Finding, judge
from acenode.runs.entry import Entry

from .texts import KINDS


@dataclass(frozen=True)
class AttentionScore:
    """The mean of one kind of attention over its runs."""

    kind: str
    value: str
    runs: str


@dataclass(frozen=True)
class AttentionScores:
    """The scores of one metric, what the metric is called, and what the runs show in words."""

    metric: str
    rows: tuple[AttentionScore, ...]
    finding: str


def scores(experiment: str, entries: list[Entry]) -> list[AttentionScores]:
    """Return the scores of each metric of an experiment that has measured runs with evolving attention."""
    measured = measure_all(e for e in entries if e.recorded and e.experiment == experiment)
    findings = [judge(c) for c in contests(measured) if c.ace or c.other]
    aces = [c for c in CELLS.values() if c.experiment == experiment and c.method == "ace" and not c.ablation
            and (measured[c.key].n or _cell(c, "none", measured))]
    return [AttentionScores(_metric(ace), tuple(_score(ace, kind, measured) for kind in KINDS), words(finding))
            for ace, finding in zip(aces, findings, strict=True) if measured[ace.key].n]


def _cell(ace: PaperCell, kind: str, measured: dict[str, Measured]) -> PaperCell | None:
    """Return the measured cell of a kind of attention; without attention, ACE is its host method."""
    found = ace if kind == "evolving" else next(
        (c for c in CELLS.values() if (c.experiment, c.metric) == (ace.experiment, ace.metric) and (
            (c.method, c.settings) == (HOSTS[ace.experiment], ace.settings) if kind == "none"
            else (c.method, c.settings) == ("ace", {**ace.settings, "attention": kind}))), None)
    return found if found is not None and measured[found.key].n else None


def _score(ace: PaperCell, kind: str, measured: dict[str, Measured]) -> AttentionScore:
    cell = _cell(ace, kind, measured)
    if cell is None:
        return AttentionScore(KINDS[kind], "–", "not recorded")
    return AttentionScore(KINDS[kind], mean_text(cell, measured[cell.key]), repeats_text(measured[cell.key]))


def _metric(cell: PaperCell) -> str:
    better = "higher is better" if cell.format.higher_is_better else "lower is better"
    return f"Test {cell.format.heading}, {better}"


def words(finding: Finding) -> str:
    """Say whether evolving attention is better than none, as far as the runs can tell."""
    contest = finding.contest
    if finding.interval is None:
        few = finding.reason.startswith("only ")
        reason = f"at least {MIN_RUNS} runs of each are needed" if few else finding.reason
        return f"Whether evolving attention is better than none cannot be told: {reason}."
    sign = 1 if contest.higher_is_better else -1
    low, high = sorted((sign * finding.interval[0], sign * finding.interval[1]))
    fewest = min(len(contest.ace), len(contest.other))
    count = f"{finding.pairs} pairs of runs" if finding.pairs else f"{fewest} runs each"
    numbers = (f"evolving less none is {_signed(sign * (finding.advantage or 0.0))}{contest.unit}, 95% interval "
               f"{_signed(low)} to {_signed(high)}, {count}")
    if finding.verdict == "open":
        return f"Whether evolving attention is better than none cannot be told: {numbers}, which includes zero."
    return f"Evolving attention is {'better' if finding.verdict == 'ahead' else 'worse'} than none: {numbers}."


def _signed(value: float) -> str:
    return f"{value:+.2g}".replace("-", "−")
