"""Whether one group of runs is better than another: differences by paired seeds with their interval, and the words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any, Literal, Protocol

import pandas as pd

from acenode.compare.metrics import MetricFormat, duration
from acenode.compare.statistics import (
    MIN_RUNS,
    GroupValues,
    Interval,
    group_values,
    over_seeds,
    paired_interval,
    pairs_needed,
    repeats_of,
    welch_interval,
)
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


def compared_column(runs: pd.DataFrame, baseline: str, epoch: str = "best") -> str:
    """Return the column in which groups are compared: test values, or validation if the baseline has no test value."""
    suffix = "_last" if epoch == "last" else ""
    tested = runs.loc[runs["group"] == baseline, f"test{suffix}"].notna().any()
    return f"{'test' if tested else 'validation'}{suffix}"


def compare(runs: pd.DataFrame, baseline: str, epoch: str = "best") -> pd.DataFrame:
    """Compare the groups of `grouped_frame` with one of them.

    Args:
        runs: the runs with their groups.
        baseline: the name of the group that the others are compared with.
        epoch: `best` for the parameters of the best epoch, `last` for those of the last one.

    Returns:
        One row for each group: `measure`; `n`; mean and std of `test` and `validation`; `difference` of the mean to
        the baseline's, in test if the baseline has test values, else in validation; `comparable`, true if the group
        answers the baseline's question; `best`, true for a group that is better than all others with its question,
        as far as three or more shared seeds can tell; `paper`; `params`; the means of `nfe` and `seconds`.
    """
    suffix = "_last" if epoch == "last" else ""
    test, validation = over_seeds(runs, f"test{suffix}"), over_seeds(runs, f"validation{suffix}")
    column = compared_column(runs, baseline, epoch)
    judged = test if column.startswith("test") else validation
    groups = runs.groupby("group", sort=False)
    found = pd.DataFrame({
        "measure": groups["measure"].first(), "question": groups["question"].first(), "n": judged["n"],
        "test": test["mean"], "test_std": test["std"],
        "validation": validation["mean"], "validation_std": validation["std"],
        "difference": judged["mean"] - judged["mean"][baseline],
        "paper": groups["paper"].agg(lambda x: x.iloc[0] if x.nunique() == 1 else ""),
        "params": groups["params"].agg(lambda x: sorted(set(x))),
        "nfe": over_seeds(runs, "nfe")["mean"], "seconds": over_seeds(runs, "seconds")["mean"],
    })
    asked = found["question"][baseline]
    found["comparable"] = [question == asked for question in found["question"]]
    found["best"] = found.index.isin(_best(found["question"], group_values(runs, column)))
    return found


def _best(questions: pd.Series, values: dict[str, GroupValues]) -> list[str]:
    """Return the best group of every question that at least two groups answer, where one is better than all others."""
    rivals: dict[Any, list[GroupValues]] = {}
    for group, question in questions.items():
        if values[str(group)].values:
            rivals.setdefault(question, []).append(values[str(group)])
    best = [best_of(groups, question[0], repeats_of(groups)) for question, groups in rivals.items() if len(groups) > 1]
    return [name for name in best if name is not None]


GROUP, DIFFERENCE, EFFECT, NFE = "Group", "Difference (95% interval)", "Effect", "Function evaluations (NFE)"


@dataclass(frozen=True)
class ComparedGroups:
    """What the chosen runs show."""

    groups: pd.DataFrame  # of `compare`
    baseline: str
    column: str  # of the values that are compared: test or validation, at the best or the last epoch
    repeated: str  # how the groups repeat a training: seed, fold or run
    comparisons: dict[str, Comparison]  # of the groups that answer the baseline's question, without the baseline

    @property
    def sentences(self) -> list[str]:
        """The answer, a sentence for each group."""
        texts = [found.sentence for found in self.comparisons.values()]
        best = [str(name) for name in self.groups.index[self.groups["best"]]]
        texts += [f"{name} is better than every other group." for name in best if len(self.comparisons) > 1]
        if texts and self.column.startswith("validation"):
            texts.append(f"These are validation values, because {self.baseline} has no test result.")
        return texts


@dataclass(frozen=True)
class ComparisonTable:
    """A table of texts with its caption."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def compare_groups(runs: pd.DataFrame, baseline: str, epoch: str = "best") -> ComparedGroups:
    """Compare the groups of `grouped_frame` with one of them, seed by seed.

    Args:
        runs: the runs with their groups.
        baseline: the name of the group that the others are compared with.
        epoch: `best` for the parameters of the best epoch, `last` for those of the last one.
    """
    groups, column = compare(runs, baseline, epoch), compared_column(runs, baseline, epoch)
    values = group_values(runs, column)
    repeats = repeats_of(values.values())
    word, measure = _repeated(repeats), groups["measure"][baseline]
    comparisons = {
        name: compare_values(values[name], values[baseline], measure, repeats, lambda n: f"{word}{'s' * (n != 1)}",
                             folds=word != "seed")
        for name in map(str, groups.index) if name != baseline and groups["comparable"][name]}
    return ComparedGroups(groups, baseline, column, word, comparisons)


def _repeated(repeats: list[Repeat]) -> str:
    """Return what repeats the training: seeds, folds with one seed each, or runs of both."""
    folds = {fold for _, fold in repeats}
    if len(folds) < 2:
        return "seed"
    return "fold" if len(folds) == len(repeats) else "run"


def comparison_table(found: ComparedGroups) -> ComparisonTable:
    """Return a row for each group: mean ± standard deviation, difference to the baseline, size and time."""
    rows = [_row(found, str(name), group) for name, group in found.groups.iterrows()]
    constant = {"Metric": found.groups["measure"].nunique() == 1, "Paper": not found.groups["paper"].any(),
                NFE: not (found.groups["nfe"] > 0).any()}
    heads = [head for head in rows[0] if not constant.get(head)]
    return ComparisonTable(_caption(found), tuple(heads), tuple(tuple(row[head] for head in heads) for row in rows))


def _row(found: ComparedGroups, name: str, group: pd.Series) -> dict[str, str]:
    metric, title = group["measure"], _metric_title(found)
    return {
        GROUP: name + " (baseline)" * (name == found.baseline) + " (best)" * bool(group["best"]),
        "Runs": str(group["n"]), "Metric": metric.title,
        f"Test{title}": _mean(metric, group["test"], group["test_std"]),
        **dict(zip((DIFFERENCE, EFFECT), _difference(found, name, metric), strict=True)),
        f"Validation{title}": _mean(metric, group["validation"], group["validation_std"]),
        "Paper": group["paper"], "Parameters": " / ".join(f"{p:,}" for p in group["params"]),
        NFE: f"{group['nfe']:.0f}" if group["nfe"] > 0 else "–",
        "Training time": "–" if pd.isna(group["seconds"]) else duration(group["seconds"])}


def _difference(found: ComparedGroups, name: str, metric: MetricFormat) -> tuple[str, str]:
    """Return the mean difference of the paired runs with its interval, and the effect."""
    if name == found.baseline:
        return "", "baseline"
    comparison = found.comparisons.get(name)
    if comparison is None:
        return "", "not comparable"
    if comparison.difference is None:  # no seed in common: the difference of the means, without an interval
        apart = found.groups["difference"][name]
        text = "–" if pd.isna(apart) else f"{change(metric, apart)} (other {found.repeated}s)"
        return text, "–" if pd.isna(apart) else "cannot be told"
    text = change(metric, comparison.difference)
    if comparison.interval is not None:
        text += f" ({' to '.join(change(metric, end) for end in comparison.interval)})"
    return text, "cannot be told" if comparison.effect == "unknown" else comparison.effect


def _mean(metric: MetricFormat, mean: float, std: float) -> str:
    return metric.text(mean, None if pd.isna(std) else std)


def _metric_title(found: ComparedGroups) -> str:
    """Return the metric's name for the column headers, if all groups have the same one."""
    metrics = set(found.groups["measure"])
    if len(metrics) > 1:
        return ""
    (metric,) = metrics
    return f" {metric.title}" + ("" if metric.higher_is_better else " (lower is better)")


def _caption(found: ComparedGroups) -> str:
    mean = f"Mean ± standard deviation over {found.repeated}s."
    if len(found.groups) < 2:
        return mean
    return (f"{mean} Differences are to {found.baseline}, by "
            f"{found.repeated}s that both groups have, with a 95% interval by Student's t distribution.")
