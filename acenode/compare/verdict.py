"""Whether one group of runs is better than another: differences by paired seeds, their 95% interval, and the words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
Values = Mapping[Repeat, float]  # measured values by seed and fold
MANY = 50  # further pairs above which their number is not given: the estimate is rough, and nobody trains as many
DECIMALS = 12  # of differences: smaller ones are rounding errors


class MeasuredGroup(Protocol):
    """A group with its measured values, such as a row of a study's grid."""

    @property
    def name(self) -> str: ...
    @property
    def values(self) -> Values: ...


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


def paired(own: Values, other: Values, repeats: Sequence[Repeat]) -> list[float]:
    """Return the differences of the repeats that both groups have."""
    return [own[at] - other[at] for at in repeats if at in own and at in other]


def compare_values(group: MeasuredGroup, baseline: MeasuredGroup, measure: MetricFormat, repeats: Sequence[Repeat],
                   noun: str = "seed") -> Comparison:
    """Compare two groups by the repeats that both have.

    Args:
        group: the group that is compared.
        baseline: the group that it is compared with.
        measure: the metric of the values.
        repeats: the seeds and folds that count.
        noun: what a repeat is called: seed, fold, or run where both vary.
    """
    name = group.name
    differences = [round(d, DECIMALS) for d in paired(group.values, baseline.values, repeats)]
    n = len(differences)
    seeds = f"{n} {noun}{'s' * (n != 1)}"
    if not n:
        same = f" with the same {noun}" if baseline.values else ""
        return Comparison(name, "unknown", 0, text=f"{name}: not measured yet" if not group.values else
                          f"{name}: no run of {baseline.name}{same} has finished yet")
    difference = mean(differences)
    points = f" point{'s' * (change(measure, difference)[1:] != '1.00')}"
    size = f"{measure.title} {change(measure, difference)}{points if measure.unit == '%' else measure.unit}"
    unknown = f"{against(name, baseline.name)}: cannot be told with {seeds}"
    if n == 1:
        text = f"{unknown}: at least {MIN_RUNS - 1} more are needed ({size})"
        return Comparison(name, "unknown", 1, difference, more=MIN_RUNS - 1, text=text)
    interval = paired_interval(differences)
    range_text = f"95% interval {change(measure, interval[0])} to {change(measure, interval[1])}"
    if not any(differences):
        return Comparison(name, "unknown", n, difference, interval,
                          text=f"{name} makes no difference: equal to {baseline.name} in {seeds}")
    if interval[0] > 0 or interval[1] < 0:
        if n < MIN_RUNS:
            text = f"{unknown}: at least {MIN_RUNS} are required, whatever the interval ({size}, {range_text})"
            return Comparison(name, "unknown", n, difference, interval, MIN_RUNS - n, text)
        effect: Effect = "helps" if (difference > 0) == measure.higher_is_better else "hurts"
        text = f"{name} {effect}: {size} against {baseline.name}, {range_text}, {seeds}"
        return Comparison(name, effect, n, difference, interval, text=text)
    needed = pairs_needed(difference, stdev(differences))
    more = None if needed is None else needed - n
    only = f", with other seeds on the {FOLDS} folds" if noun != "seed" and (needed or FOLDS + 1) > FOLDS else ""
    many = more is None or more > MANY
    words = f"more than {MANY} more" if many else f"about {more} more"
    if only:  # there are no more folds
        words += f" run{'s' * (more != 1)} of each"
    elif many:
        words += f" {noun}s"
    text = f"{unknown}: {words} would be needed{only} ({size}, {range_text})"
    return Comparison(name, "unknown", n, difference, interval, more, text)


def against(name: str, other: str) -> str:
    """Name a comparison: `evolving against fixed attention`, where all but the first word is shared."""
    (first, _, rest), (_, _, other_rest) = name.partition(" "), other.partition(" ")
    return f"{first if rest and rest == other_rest else name} against {other}"


def best_of(groups: Sequence[MeasuredGroup], measure: MetricFormat, repeats: Sequence[Repeat]) -> str | None:
    """Return the group that is better than every other one, by an interval that excludes zero; None if there is none.

    Only seeds that all groups have count, and fewer than three of them never give a best group.
    """
    shared = [repeat for repeat in repeats if all(repeat in group.values for group in groups)]
    if len(shared) < MIN_RUNS:
        return None
    best = max(groups, key=lambda group: measure.sign * mean(group.values[repeat] for repeat in shared))
    for group in groups:
        differences = [round(measure.sign * d, DECIMALS) for d in paired(best.values, group.values, shared)]
        if group is not best and paired_interval(differences)[0] <= 0:
            return None
    return best.name


def change(measure: MetricFormat, difference: float) -> str:
    """Write a difference with its sign in the metric's unit, with two significant digits if it would be all zeros."""
    text = measure.number(difference, "+")
    if difference and not any(c in "123456789" for c in text):
        text = f"{difference * measure.scale:+.2g}"
    return text.replace("-", "−")


def change_texts(measure: MetricFormat, found: Comparison) -> tuple[str, str]:
    """Return the difference with its interval, and the effect, as a table shows them."""
    if found.difference is None:
        return "–", "–"
    text = change(measure, found.difference)
    if found.interval is not None:
        text += f" ({' to '.join(change(measure, end) for end in found.interval)})"
    return text, "cannot be told" if found.effect == "unknown" else found.effect


# Groups of chosen runs, as the page Compare shows them --------------------------------------------------------------

GROUP, DIFFERENCE, EFFECT, NFE = "Group", "Difference (95% interval)", "Effect", "Function evaluations (NFE)"


@dataclass(frozen=True)
class TextTable:
    """A table of texts with its caption."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class ComparedGroups:
    """What the chosen runs show.

    `groups` has a row for each group: `measure`; `n`; mean and std of `test` and `validation`; `difference` of the
    mean to the baseline's; `comparable`, true if the group answers the baseline's question; `best`, true for a group
    that is better than all others with its question, as far as three or more shared seeds can tell; `paper`; `params`;
    the means of `nfe` and `seconds`.
    """

    groups: pd.DataFrame
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


def compare_groups(runs: pd.DataFrame, baseline: str, epoch: str = "best") -> ComparedGroups:
    """Compare the groups of `grouped_frame` with one of them, seed by seed.

    Test values are compared, or validation values if the baseline has no test value.

    Args:
        runs: the runs with their groups.
        baseline: the name of the group that the others are compared with.
        epoch: `best` for the parameters of the best epoch, `last` for those of the last one.
    """
    suffix = "_last" if epoch == "last" else ""
    test, validation = over_seeds(runs, f"test{suffix}"), over_seeds(runs, f"validation{suffix}")
    tested = runs.loc[runs["group"] == baseline, f"test{suffix}"].notna().any()
    column, judged = (f"test{suffix}", test) if tested else (f"validation{suffix}", validation)
    by_group = runs.groupby("group", sort=False)
    groups = pd.DataFrame({
        "measure": by_group["measure"].first(), "question": by_group["question"].first(), "n": judged["n"],
        "test": test["mean"], "test_std": test["std"],
        "validation": validation["mean"], "validation_std": validation["std"],
        "difference": judged["mean"] - judged["mean"][baseline],
        "paper": by_group["paper"].agg(lambda x: x.iloc[0] if x.nunique() == 1 else ""),
        "params": by_group["params"].agg(lambda x: sorted(set(x))),
        "nfe": over_seeds(runs, "nfe")["mean"], "seconds": over_seeds(runs, "seconds")["mean"],
    })
    asked, measure = groups["question"][baseline], groups["measure"][baseline]
    values = group_values(runs, column)
    repeats = repeats_of(values.values())
    rivals: dict[Any, list[GroupValues]] = {}  # by the question that they answer
    for group, question in groups["question"].items():
        if values[str(group)].values:
            rivals.setdefault(question, []).append(values[str(group)])
    groups["comparable"] = [question == asked for question in groups["question"]]
    groups["best"] = groups.index.isin([best_of(own, question[0], repeats_of(own)) for question, own in rivals.items()
                                        if len(own) > 1])
    folds = {fold for _, fold in repeats}
    noun = "seed" if len(folds) < 2 else "fold" if len(folds) == len(repeats) else "run"
    comparisons = {name: compare_values(values[name], values[baseline], measure, repeats, noun)
                   for name in map(str, groups.index) if name != baseline and groups["comparable"][name]}
    return ComparedGroups(groups, baseline, column, noun, comparisons)


def comparison_table(found: ComparedGroups) -> TextTable:
    """Return a row for each group: mean ± standard deviation, difference to the baseline, size and time."""
    metrics = set(found.groups["measure"])
    (metric,) = metrics if len(metrics) == 1 else (None,)
    title = "" if metric is None else f" {metric.title}" + " (lower is better)" * (not metric.higher_is_better)
    rows = [_row(found, str(name), group, title) for name, group in found.groups.iterrows()]
    constant = {"Metric": metric is not None, "Paper": not found.groups["paper"].any(),
                NFE: not (found.groups["nfe"] > 0).any()}
    heads = tuple(head for head in rows[0] if not constant.get(head))
    caption = f"Mean ± standard deviation over {found.repeated}s."
    if len(rows) > 1:
        caption += (f" Differences are to {found.baseline}, by {found.repeated}s that both groups have, with a 95% "
                    "interval by Student's t distribution.")
    return TextTable(caption, heads, tuple(tuple(row[head] for head in heads) for row in rows))


def _row(found: ComparedGroups, name: str, group: pd.Series, title: str) -> dict[str, str]:
    metric = group["measure"]
    means = {kind: metric.text(group[kind], None if pd.isna(group[f"{kind}_std"]) else group[f"{kind}_std"])
             for kind in ("test", "validation")}
    return {
        GROUP: name + " (baseline)" * (name == found.baseline) + " (best)" * bool(group["best"]),
        "Runs": str(group["n"]), "Metric": metric.title, f"Test{title}": means["test"],
        **dict(zip((DIFFERENCE, EFFECT), _difference(found, name, metric), strict=True)),
        f"Validation{title}": means["validation"],
        "Paper": group["paper"], "Parameters": " / ".join(f"{p:,}" for p in group["params"]),
        NFE: f"{group['nfe']:.0f}" if group["nfe"] > 0 else "–",
        "Training time": "–" if pd.isna(group["seconds"]) else duration(group["seconds"])}


def _difference(found: ComparedGroups, name: str, metric: MetricFormat) -> tuple[str, str]:
    comparison = found.comparisons.get(name)
    if comparison is None:
        return "", "baseline" if name == found.baseline else "not comparable"
    apart = found.groups["difference"][name]
    if comparison.difference is None and not pd.isna(apart):  # no seed in common: means apart, without an interval
        return f"{change(metric, apart)} (other {found.repeated}s)", "cannot be told"
    return change_texts(metric, comparison)


# ACE against the method that it extends -----------------------------------------------------------------------------

Verdict = Literal["ahead", "behind", "open"]


@dataclass(frozen=True)
class Contest:
    """The measured values of ACE and of its host method in one column of a table, by seed and fold."""

    title: str  # what was measured, such as "USHCN MSE"
    host: str
    ace: Values
    other: Values
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
    sign = 1 if contest.higher_is_better else -1
    differences = [sign * d for d in paired(contest.ace, contest.other, sorted(contest.ace))]
    pairs = len(differences) if len(differences) >= MIN_RUNS else 0
    ace, other = ([sign * value for value in values.values()] for values in (contest.ace, contest.other))
    if not ace or not other:
        return Finding(contest, "open", f"{'ACE' if not ace else contest.host} is not measured", pairs)
    if not contest.same_data:
        return Finding(contest, "open", "one of the methods was measured on a part of the data", pairs)
    advantage = mean(differences) if pairs else mean(ace) - mean(other)
    if contest.ace_epochs and contest.other_epochs and contest.ace_epochs != contest.other_epochs:
        return Finding(contest, "open", "the methods were trained for different numbers of epochs", pairs,
                       mean(ace) - mean(other))
    if not pairs and min(len(ace), len(other)) < MIN_RUNS:
        few, method = min((len(ace), "ACE"), (len(other), contest.host), key=lambda pair: pair[0])
        runs = f"only {few} run{'s' * (few > 1)} of {method}, {MIN_RUNS} are needed"
        return Finding(contest, "open", runs, 0, advantage)
    interval = paired_interval(differences) if pairs else welch_interval(ace, other)
    if interval[0] > 0 or interval[1] < 0:
        return Finding(contest, "ahead" if interval[0] > 0 else "behind", "", pairs, advantage, interval)
    return Finding(contest, "open", "the interval of the difference includes zero", pairs, advantage, interval)
