"""Whether one group of runs is better than another: differences by paired seeds with their interval, and the words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Literal, Protocol

from acenode.compare.metric_format import MetricFormat
from acenode.compare.statistics import MIN_RUNS, Interval, paired_interval, pairs_needed, welch_interval
from acenode.data.splits import FOLDS
from acenode.runs.questions import Repeat

Effect = Literal["helps", "hurts", "unknown"]
MANY = 50  # further pairs above which their number is not given: the estimate is rough, and nobody trains as many
DECIMALS = 12  # of differences: smaller ones are rounding errors


class MeasuredGroup(Protocol):
    """A group with its measured values, such as a row of a study's grid."""

    @property
    def name(self) -> str:
        """The group's name."""

    @property
    def values(self) -> Mapping[Repeat, float]:
        """The measured values by seed and fold."""


@dataclass(frozen=True)
class Comparison:
    """A group against the baseline, by the seeds and folds that both have."""

    name: str
    effect: Effect
    pairs: int
    difference: float | None = None  # mean of the group's values less the baseline's; None without pairs
    interval: Interval | None = None  # 95%, by Student's t; None for fewer than two pairs
    more: int | None = None  # pairs that are still needed at this difference and spread; None if unknown or not needed
    text: str = ""

    @property
    def sentence(self) -> str:
        """The text with a capital and a full stop."""
        return f"{self.text[:1].upper()}{self.text[1:]}."


def compare_values(group: MeasuredGroup, baseline: MeasuredGroup, measure: MetricFormat, repeats: Sequence[Repeat],
                   word: Callable[[int], str], *, folds: bool = False) -> Comparison:
    """Compare two groups by the repeats that both have.

    Args:
        group: the group that is compared.
        baseline: the group that it is compared with.
        measure: the metric of the values.
        repeats: the seeds and folds that count.
        word: what a number of repeats is called, such as `seeds`.
        folds: whether the repeats are the folds of a data set, of which there are only a few.
    """
    own, other, name = group.values, baseline.values, group.name
    shared = [repeat for repeat in repeats if repeat in own and repeat in other]
    n = len(shared)
    seeds = f"{n} {word(n)}"
    if not n:
        same = f" with the same {word(1)}" if other else ""
        return Comparison(name, "unknown", 0, text=f"{name}: not measured yet" if not own else
                          f"{name}: no run of {baseline.name}{same} has finished yet")
    differences = [round(own[repeat] - other[repeat], DECIMALS) for repeat in shared]
    difference = mean(differences)
    size = measure_change(measure, difference)
    unknown = f"{against(name, baseline.name)}: cannot be told with {seeds}"
    if n == 1:
        text = f"{unknown}: at least {MIN_RUNS - 1} more are needed ({size})"
        return Comparison(name, "unknown", 1, difference, more=MIN_RUNS - 1, text=text)
    interval = paired_interval(differences)
    range_text = f"95% interval {change(measure, interval[0])} to {change(measure, interval[1])}"
    if n >= MIN_RUNS and (interval[0] > 0 or interval[1] < 0):
        effect: Effect = "helps" if (difference > 0) == measure.higher_is_better else "hurts"
        text = f"{name} {effect}: {size} against {baseline.name}, {range_text}, {seeds}"
        return Comparison(name, effect, n, difference, interval, text=text)
    if not any(differences):
        return Comparison(name, "unknown", n, difference, interval,
                          text=f"{name} makes no difference: equal to {baseline.name} in {seeds}")
    if n < MIN_RUNS and (interval[0] > 0 or interval[1] < 0):
        text = f"{unknown}: at least {MIN_RUNS} are required, whatever the interval ({size}, {range_text})"
        return Comparison(name, "unknown", n, difference, interval, MIN_RUNS - n, text)
    needed = pairs_needed(difference, stdev(differences))
    more = None if needed is None else needed - n
    only = f", with other seeds on the {FOLDS} folds" if folds and (needed or FOLDS + 1) > FOLDS else ""
    many = more is None or more > MANY
    words = f"more than {MANY} more" if many else f"about {more} more"
    if only:  # there are no more folds
        words += f" run{'s' * (more != 1)} of each"
    elif many:
        words += f" {word(MANY)}"
    text = f"{unknown}: {words} would be needed{only} ({size}, {range_text})"
    return Comparison(name, "unknown", n, difference, interval, more, text)


def against(name: str, other: str) -> str:
    """Name a comparison: `evolving against fixed attention`, where all but the first word is shared."""
    (first, _, rest), (_, _, other_rest) = name.partition(" "), other.partition(" ")
    return f"{first if rest and rest == other_rest else name} against {other}"


def best_of(groups: Sequence[MeasuredGroup], measure: MetricFormat, repeats: Sequence[Repeat]) -> str | None:
    """Return the group that `best_group` describes, of groups with these seeds and folds."""
    shared = [repeat for repeat in repeats if all(repeat in group.values for group in groups)]
    if len(shared) < MIN_RUNS:
        return None
    sign = 1 if measure.higher_is_better else -1
    best = max(groups, key=lambda group: sign * mean(group.values[repeat] for repeat in shared))
    for group in groups:
        differences = [round(sign * (best.values[repeat] - group.values[repeat]), DECIMALS) for repeat in shared]
        if group is not best and paired_interval(differences)[0] <= 0:
            return None
    return best.name


def measure_change(measure: MetricFormat, difference: float) -> str:
    """Write a difference with the metric's name and unit: `accuracy +1.20 points`."""
    unit = f" point{'s' * (change(measure, difference)[1:] != '1.00')}" if measure.unit == "%" else measure.unit
    return f"{measure.title} {change(measure, difference)}{unit}"


def change(measure: MetricFormat, difference: float) -> str:
    """Write a difference with its sign in the metric's unit, with two significant digits if it would be all zeros."""
    text = measure.number(difference, "+")
    if difference and not any(c in "123456789" for c in text):
        text = f"{difference * measure.scale:+.2g}"
    return text.replace("-", "−")


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
