"""Where ACE is ahead of its host method, as far as the measured numbers can tell, in a sentence and a table.

The host method is the one that ACE extends: ODE-Net, Latent-ODE or GRU-ODE-Bayes. Nothing here knows a result: the
words follow from the numbers that are passed in.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import mean
from typing import Literal

from acenode.compare.intervals import MIN_RUNS, Interval, paired_interval, welch_interval

Repeat = tuple[int, int]  # seed and fold
Verdict = Literal["ahead", "behind", "open"]


@dataclass(frozen=True)
class Contest:
    """The measured values of ACE and of its host method in one column of a table, by seed and fold."""

    title: str  # what was measured, such as "USHCN MSE"
    host: str
    ace: Mapping[Repeat, float]
    other: Mapping[Repeat, float]
    higher_is_better: bool = True
    ace_epochs: frozenset[int] = frozenset()
    other_epochs: frozenset[int] = frozenset()
    partial: bool = False  # measured on a part of the full data
    unit: str = ""  # of a difference
    same_data: bool = True  # both methods on all of the data, or both on a part of it
    predicts: bool = True  # the metric measures predictions; a silhouette does not


@dataclass(frozen=True)
class Finding:
    """What a contest shows: the mean advantage of ACE (positive is better) with its interval, and a verdict."""

    contest: Contest
    verdict: Verdict
    reason: str  # why it is open; empty for other verdicts
    pairs: int  # runs compared by seed and fold; 0 if the two methods share too few
    advantage: float | None = None
    interval: Interval | None = None


def judge(contest: Contest) -> Finding:
    """Decide whether ACE is ahead of its host method, with a 95% interval of the difference.

    Runs with the same seed and fold are compared in pairs. If the methods share fewer than three of these, Welch's
    interval of the two means is used.
    """
    shared = sorted(set(contest.ace) & set(contest.other))
    pairs = len(shared) if len(shared) >= MIN_RUNS else 0
    sign = 1 if contest.higher_is_better else -1
    ace, other = list(contest.ace.values()), list(contest.other.values())
    if not ace or not other:
        missing = "ACE" if not ace else contest.host
        return Finding(contest, "open", f"{missing} is not measured", pairs)
    if not contest.same_data:
        return Finding(contest, "open", "one of the methods was measured on a part of the data", pairs)
    if contest.ace_epochs and contest.other_epochs and contest.ace_epochs != contest.other_epochs:
        reason = "the methods were trained for different numbers of epochs"
        return Finding(contest, "open", reason, pairs, sign * (mean(ace) - mean(other)))
    if pairs:
        differences = [sign * (contest.ace[key] - contest.other[key]) for key in shared]
        advantage, interval = mean(differences), paired_interval(differences)
    else:
        advantage = sign * (mean(ace) - mean(other))
        if min(len(ace), len(other)) < MIN_RUNS:
            few, method = min((len(ace), "ACE"), (len(other), contest.host), key=lambda pair: pair[0])
            runs = f"only {few} run{'s' * (few > 1)} of {method}, {MIN_RUNS} are needed"
            return Finding(contest, "open", runs, 0, advantage)
        interval = welch_interval([sign * v for v in ace], [sign * v for v in other])
    if interval[0] > 0 or interval[1] < 0:
        return Finding(contest, "ahead" if interval[0] > 0 else "behind", "", pairs, advantage, interval)
    return Finding(contest, "open", "the interval of the difference includes zero", pairs, advantage, interval)


def summary(findings: Iterable[Finding]) -> str:
    """Say in one sentence where ACE is ahead of its host method and where behind.

    Args:
        findings: one for each column that has a row of ACE and one of its host method.
    """
    found = list(findings)
    ahead, behind = ([_name(f) for f in found if f.verdict == v] for v in ("ahead", "behind"))
    if not ahead and not behind:
        compared = sum(f.interval is not None for f in found)
        return (f"{compared} of {len(found)} comparisons have enough runs; in none of these is ACE clearly ahead of "
                "the method it extends, or behind it.")
    parts = [f"ahead of the method it extends in {len(ahead)} of {len(found)} comparisons" + _named(ahead),
             (f"behind in {len(behind)}" if behind else "behind in none") + _named(behind)]
    missing = sum(f.verdict == "open" and f.advantage is None for f in found)
    undecided = len(found) - len(ahead) - len(behind) - missing
    rest = [f"{undecided} {'is' if undecided == 1 else 'are'} undecided"] * (undecided > 0)
    rest += [f"{missing} cannot be made yet"] * (missing > 0)
    return f"Here ACE is {' and '.join(parts)}{'; ' * bool(rest)}{' and '.join(rest)}."


def prediction_note(findings: Iterable[Finding]) -> str:
    """Say that no measure of prediction is decided, if all that is decided are silhouettes; else an empty text."""
    found = list(findings)
    decided = [f for f in found if f.verdict != "open"]
    if not decided or any(f.contest.predicts for f in decided):
        return ""
    measures = sum(f.contest.predicts for f in found)
    return ("A silhouette says how far apart clusters of features are; no difference can be told in any of the "
            f"{measures} measures of prediction.")


def table(findings: Iterable[Finding]) -> list[dict[str, str]]:
    """Return a row of texts for each finding: what was compared, the difference, its interval and the verdict."""
    return [{"Compared": f"{_name(f)}, {'higher' if f.contest.higher_is_better else 'lower'} is better",
             "ACE extends": f.contest.host, **numbers(f),
             "Verdict": _verdict(f)}
            for f in findings]


def _verdict(finding: Finding) -> str:
    """Say the verdict, and why a comparison without an interval has none; an interval speaks for itself."""
    if finding.verdict != "open":
        return f"ACE is {finding.verdict}"
    return "undecided" if finding.interval else f"undecided: {finding.reason}"


def count_sentence(marks: Iterable[str]) -> str:
    """Say how many cells are measured and how they compare with the printed values."""
    counts = Counter(marks)
    total, missing = sum(counts.values()), counts["missing"]
    words = [f"{counts['within']} within the margin of error", f"{counts['better']} better", f"{counts['worse']} worse"]
    if counts["single"]:
        words.append(f"{counts['single']} from a single run")
    if counts["partial"]:
        words.append(f"{counts['partial']} on partial data")
    cells = f"Of the paper's {total} values {total - missing}"
    if not missing:
        cells = f"All {total} of the paper's values"
    text = f"{cells} are measured: {_listed(words)}."
    kinds = ["single runs"] * bool(counts["single"]) + ["values on partial data"] * bool(counts["partial"])
    return text + (f" {_listed(kinds).capitalize()} are not compared with the paper's." if kinds else "")


@dataclass(frozen=True)
class CellLength:
    """How long the runs of a measured cell were trained."""

    title: str  # of the experiment
    mark: str
    epochs: int
    paper_epochs: int


def length_sentence(cells: Iterable[CellLength]) -> str:
    """Say how many values were measured with shorter runs than the paper's, and how short; empty if none was."""
    shorter = [cell for cell in cells if cell.epochs < cell.paper_epochs]
    if not shorter:
        return ""
    worse = sum(cell.mark == "worse" for cell in shorter)
    among = f", {worse} of the worse ones among them," if worse else ""
    parts = []
    for paper in dict.fromkeys(cell.paper_epochs for cell in shorter):
        alike = [cell for cell in shorter if cell.paper_epochs == paper]
        titles = _listed(dict.fromkeys(cell.title for cell in alike))
        parts.append(f"{titles} {_ends(cell.epochs for cell in alike)} of {paper} epochs")
    values = "value{} comes" if len(shorter) == 1 else "values{} come"
    return f"{len(shorter)} {values.format(among)} from shorter training than the paper's: {'; '.join(parts)}."


def _ends(numbers: Iterable[int]) -> str:
    found = set(numbers)
    return " to ".join(map(str, sorted({min(found), max(found)})))


def _name(finding: Finding) -> str:
    return finding.contest.title + " on a part of the data" * finding.contest.partial


def _named(names: list[str]) -> str:
    return f" ({_listed(names)})" if names else ""


def numbers(finding: Finding) -> dict[str, str]:
    """Return ACE's difference to its host method, the interval and the number of runs; empty texts if unknown."""
    contest, sign = finding.contest, 1 if finding.contest.higher_is_better else -1
    difference, interval, runs = "", "", ""
    if finding.advantage is not None:
        low, high = sorted(sign * end for end in finding.interval or (0.0, 2 * finding.advantage))
        places = _decimals(high - low)
        difference = _signed(sign * finding.advantage, places) + contest.unit
        interval = f"{_signed(low, places)} to {_signed(high, places)}" if finding.interval else ""
    if contest.ace and contest.other:
        runs = f"{finding.pairs} pairs" if finding.pairs else f"{len(contest.ace)} and {len(contest.other)} runs"
    return {"Difference": difference, "95% interval": interval, "Runs": runs}


def _signed(value: float, places: int) -> str:
    return f"{value:+.{places}f}".replace("-", "−")


def _decimals(width: float) -> int:
    """Return the decimals with which half of this width has two significant digits."""
    return max(0, 1 - math.floor(math.log10(width / 2))) if 0 < width < math.inf else 2


def _listed(words: Iterable[str]) -> str:
    """Join words with commas and a final `and`."""
    *first, last = list(words) or [""]
    return f"{', '.join(first)} and {last}" if first else last
