"""Where ACE is ahead of its host method, as far as the measured numbers can tell, in one paragraph.

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

from acenode.results.intervals import MIN_RUNS, Interval, paired_interval, welch_interval

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
    if contest.ace_epochs and contest.other_epochs and contest.ace_epochs != contest.other_epochs:
        reason = "the methods were trained for different numbers of epochs"
        return Finding(contest, "open", reason, pairs, sign * (mean(ace) - mean(other)))
    if pairs:
        differences = [sign * (contest.ace[key] - contest.other[key]) for key in shared]
        advantage, interval = mean(differences), paired_interval(differences)
    else:
        advantage = sign * (mean(ace) - mean(other))
        if min(len(ace), len(other)) < MIN_RUNS:
            few = min(len(ace), len(other))
            return Finding(contest, "open", f"{few} run{'s' * (few > 1)} of a method", 0, advantage)
        interval = welch_interval([sign * v for v in ace], [sign * v for v in other])
    if interval[0] > 0 or interval[1] < 0:
        return Finding(contest, "ahead" if interval[0] > 0 else "behind", "", pairs, advantage, interval)
    return Finding(contest, "open", "the interval of the difference includes zero", pairs, advantage, interval)


def paragraph(findings: Iterable[Finding], marks: Iterable[str]) -> str:
    """Write the findings and the number of cells with each mark as one paragraph of plain sentences.

    Args:
        findings: one for each column that has a row of ACE and one of its host method.
        marks: the mark of every cell of the tables: within, better, worse, single, partial or missing.
    """
    found = list(findings)
    sentences = []
    ahead, behind = ([f for f in found if f.verdict == v] for v in ("ahead", "behind"))
    undecided = [f for f in found if f.verdict == "open"]
    if ahead:
        sentences.append(f"ACE is ahead of its host method in {_listed(_with_numbers(f) for f in ahead)}.")
    if behind:
        sentences.append(f"It is behind in {_listed(_with_numbers(f) for f in behind)}."
                         if ahead else f"ACE is behind its host method in {_listed(map(_with_numbers, behind))}.")
    if not ahead and not behind:
        sentences.append("In no table do the measured runs show ACE ahead of its host method or behind it.")
    elif not ahead:
        sentences.append("It is ahead in no table.")
    if undecided:
        reasons: dict[str, list[str]] = {}
        for f in undecided:
            reasons.setdefault(_grouped_reason(f), []).append(_with_numbers(f) if f.interval else _name(f))
        sentences.append("It cannot be told " + "; ".join(
            f"where {reason}: {_listed(names)}" for reason, names in reasons.items()) + ".")
    return " ".join([*sentences, count_sentence(marks)])


def count_sentence(marks: Iterable[str]) -> str:
    """Say how many cells are measured and how they compare with the printed values."""
    counts = Counter(marks)
    total, missing = sum(counts.values()), counts["missing"]
    words = [f"{counts['within']} within the paper's spread", f"{counts['better']} better", f"{counts['worse']} worse"]
    if counts["single"]:
        words.append(f"{counts['single']} from one run, which is not compared")
    if counts["partial"]:
        words.append(f"{counts['partial']} on partial data, which the paper's values are not compared with")
    return f"Of the paper's {total} table cells {total - missing} are measured: {_listed(words)}."


def _grouped_reason(finding: Finding) -> str:
    """Return the reason in words that several findings can share."""
    if finding.reason.endswith("of a method"):
        return f"a method has fewer than {MIN_RUNS} runs"
    return finding.reason.replace(finding.contest.host, "the host method")


def _name(finding: Finding) -> str:
    return finding.contest.title + " on a part of the data" * finding.contest.partial


def _with_numbers(finding: Finding) -> str:
    """Name the column, the host method, and the difference with its interval."""
    contest, (low, high) = finding.contest, finding.interval or (math.nan, math.nan)
    n = finding.pairs or min(len(contest.ace), len(contest.other))
    kind = "pairs" if finding.pairs else "runs each"
    sign = 1 if contest.higher_is_better else -1
    places = _decimals(high - low)
    first, *ends = (f"{value:+.{places}f}".replace("-", "−")
                    for value in (sign * (finding.advantage or 0.0), *sorted((sign * low, sign * high))))
    return (f"{_name(finding)} ({first}{contest.unit} against {contest.host}, 95% interval {' to '.join(ends)}, "
            f"{n} {kind})")


def _decimals(width: float) -> int:
    """Return the decimals with which half an interval of this width has two significant digits."""
    return max(0, 1 - math.floor(math.log10(width / 2))) if 0 < width < math.inf else 2


def _listed(words: Iterable[str]) -> str:
    """Join words with commas and a final `and`."""
    *first, last = list(words) or [""]
    return f"{', '.join(first)} and {last}" if first else last
