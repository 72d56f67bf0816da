"""Whether one group of runs is better than another: means over seeds, differences by paired seeds with their 95%
interval by Student's t distribution, and the words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev, variance
from typing import Any, Literal

import pandas as pd

from acenode.compare.groups import IDENTITY
from acenode.compare.metrics import MetricFormat, duration
from acenode.data.splits import FOLDS
from acenode.runs.questions import Repeat

CONFIDENCE = 0.95
MIN_RUNS = 3  # of each method, below which nothing is concluded
MOST_PAIRS = 1000  # that are considered
MANY = 50  # further pairs above which their number is not given: the estimate is rough, and nobody trains as many
DECIMALS = 12  # of differences: smaller ones are rounding errors
Effect = Literal["helps", "hurts", "unknown"]
Interval = tuple[float, float]
Values = Mapping[Repeat, float]  # measured values by seed and fold


def quantile(freedom: float) -> float:
    """Return the two-sided quantile of Student's t distribution."""
    from scipy.special import stdtrit  # loads faster than scipy.stats

    return float(stdtrit(freedom, 0.5 + CONFIDENCE / 2))


def paired_interval(differences: Sequence[float]) -> Interval:
    """Return the interval of the mean of at least two differences: mean ± t·s/√n with n − 1 degrees of freedom."""
    half = quantile(len(differences) - 1) * stdev(differences) / math.sqrt(len(differences))
    return mean(differences) - half, mean(differences) + half


def welch_interval(one: Sequence[float], other: Sequence[float]) -> Interval:
    """Return the interval of the difference of two means with unequal variances."""
    parts = [variance(one) / len(one), variance(other) / len(other)]
    total, difference = sum(parts), mean(one) - mean(other)
    if total == 0:
        return difference, difference
    freedom = total**2 / (parts[0] ** 2 / (len(one) - 1) + parts[1] ** 2 / (len(other) - 1))
    half = quantile(freedom) * math.sqrt(total)
    return difference - half, difference + half


def pairs_needed(difference: float, spread: float) -> int | None:
    """Return the smallest n, at least three, with |difference| > t(n − 1)·spread/√n: the number of pairs whose interval
    would exclude zero if mean and standard deviation stay as they are. None if that takes more than a thousand."""
    return next((n for n in range(MIN_RUNS, MOST_PAIRS + 1)
                 if abs(difference) > quantile(n - 1) * spread / math.sqrt(n)), None)


def over_seeds(runs: pd.DataFrame, value: str, by: str | list[str] = "group") -> pd.DataFrame:
    """Return n, mean, std and seeds of a column for every group, in order of first appearance.

    Runs without a value do not count, and of runs that repeat a seed (and fold) the latest counts. `std` is the sample
    standard deviation, NaN for fewer than two values.
    """
    groups = _latest(runs, value).groupby(by, sort=False)
    found = pd.DataFrame({
        "n": groups.size(),
        "mean": groups[value].agg(mean),  # exactly rounded, so that the order of the runs does not matter
        "std": groups[value].agg(lambda x: stdev(x) if len(x) > 1 else float("nan")),
        "seeds": groups["seed"].agg(sorted),
    }).reindex(runs.groupby(by, sort=False).size().index)
    return found.assign(n=found["n"].fillna(0).astype(int))


def _latest(runs: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return the runs with a value, of those that repeat a seed and fold the latest."""
    measured = runs.dropna(subset=[value]).sort_values("created", kind="stable")
    return measured.drop_duplicates([*IDENTITY, "seed", "fold"], keep="last")


def group_values(runs: pd.DataFrame, value: str) -> dict[str, Values]:
    """Return the values of every group by seed and fold, averaged over its runs of that seed and fold."""
    found: dict[str, dict[Repeat, float]] = {str(name): {} for name in runs["group"].unique()}
    means = _latest(runs, value).groupby(["group", "seed", "fold"], sort=True)[value].agg(mean)
    for (group, seed, fold), number in means.items():
        found[group][int(seed), int(fold)] = float(number)
    return dict(found)


# One group against another ------------------------------------------------------------------------------------------


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


def paired(own: Values, other: Values) -> list[float]:
    """Return the differences of the seeds and folds that both groups have."""
    return [value - other[at] for at, value in own.items() if at in other]


def compare_values(name: str, values: Values, baseline: str, others: Values, measure: MetricFormat,
                   noun: str = "seed") -> Comparison:
    """Compare a group with the baseline by the repeats that both have; `noun` says what a repeat is called: seed, fold,
    or run where both vary."""
    differences = [round(d, DECIMALS) for d in paired(values, others)]
    n = len(differences)
    seeds = f"{n} {noun}{'s' * (n != 1)}"
    if not n:
        same = f" with the same {noun}" if others else ""
        return Comparison(name, "unknown", 0, text=f"{name}: not measured yet" if not values else
                          f"{name}: no run of {baseline}{same} has finished yet")
    difference = mean(differences)
    points = f" point{'s' * (change(measure, difference)[1:] != '1.00')}"
    size = f"{measure.title} {change(measure, difference)}{points if measure.unit == '%' else measure.unit}"
    unknown = f"{against(name, baseline)}: cannot be told with {seeds}"
    if n == 1:
        text = f"{unknown}: at least {MIN_RUNS - 1} more are needed ({size})"
        return Comparison(name, "unknown", 1, difference, more=MIN_RUNS - 1, text=text)
    interval = paired_interval(differences)
    range_text = f"95% interval {change(measure, interval[0])} to {change(measure, interval[1])}"
    if not any(differences):
        return Comparison(name, "unknown", n, difference, interval,
                          text=f"{name} makes no difference: equal to {baseline} in {seeds}")
    if interval[0] > 0 or interval[1] < 0:
        if n < MIN_RUNS:
            text = f"{unknown}: at least {MIN_RUNS} are required, whatever the interval ({size}, {range_text})"
            return Comparison(name, "unknown", n, difference, interval, MIN_RUNS - n, text)
        effect: Effect = "helps" if (difference > 0) == measure.higher_is_better else "hurts"
        text = f"{name} {effect}: {size} against {baseline}, {range_text}, {seeds}"
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


def best_of(groups: Mapping[str, Values], measure: MetricFormat) -> str | None:
    """Return the group that is better than every other one, by an interval that excludes zero; None if there is none.

    Only seeds that all groups have count, and fewer than three of them never give a best group.
    """
    shared = set.intersection(*map(set, groups.values()))
    if len(shared) < MIN_RUNS:
        return None
    signed = {name: {at: measure.sign * values[at] for at in shared} for name, values in groups.items()}
    best = max(signed, key=lambda name: mean(signed[name].values()))
    apart = ([round(d, DECIMALS) for d in paired(signed[best], own)] for name, own in signed.items() if name != best)
    return best if all(paired_interval(differences)[0] > 0 for differences in apart) else None


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
    """Compare the groups of `grouped_frame` with one of them, seed by seed: the test values at the `best` or the `last`
    epoch, or validation values if the baseline has no test value."""
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
    repeats = {repeat for own in values.values() for repeat in own}
    rivals: dict[Any, dict[str, Values]] = {}  # by the question that they answer
    for group, question in groups["question"].items():
        if values[str(group)]:
            rivals.setdefault(question, {})[str(group)] = values[str(group)]
    groups["comparable"] = [question == asked for question in groups["question"]]
    groups["best"] = groups.index.isin([best_of(own, question[0]) for question, own in rivals.items() if len(own) > 1])
    folds = {fold for _, fold in repeats}
    noun = "seed" if len(folds) < 2 else "fold" if len(folds) == len(repeats) else "run"
    comparisons = {name: compare_values(name, values[name], baseline, values[baseline], measure, noun)
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
    """The values of ACE and of its host method in one column of a table, by seed and fold, and what they show."""

    title: str  # what was measured, such as "USHCN MSE"
    host: str
    ace: Values
    other: Values
    higher_is_better: bool = True
    ace_epochs: int | None = None
    other_epochs: int | None = None
    partial: bool = False  # measured on a part of the full data
    unit: str = ""  # of a difference
    same_data: bool = True  # both methods on all of the data, or both on a part of it
    predicts: bool = True  # the metric measures predictions; a silhouette does not
    verdict: Verdict = "open"  # with what follows, of `judge`
    reason: str = ""  # why it is open; empty for other verdicts
    pairs: int = 0  # runs compared by seed and fold; 0 if the two methods share too few
    advantage: float | None = None  # mean advantage of ACE: positive is better
    interval: Interval | None = None


def judge(contest: Contest) -> Contest:
    """Decide whether ACE is ahead of its host method, with a 95% interval of the difference.

    Runs with the same seed and fold are compared in pairs. If the methods share fewer than three of these, Welch's
    interval of the two means is used.
    """
    sign = 1 if contest.higher_is_better else -1
    differences = [sign * d for d in paired(contest.ace, contest.other)]
    pairs = len(differences) if len(differences) >= MIN_RUNS else 0
    ace, other = ([sign * value for value in values.values()] for values in (contest.ace, contest.other))
    if not ace or not other:
        return replace(contest, reason=f"{'ACE' if not ace else contest.host} is not measured", pairs=pairs)
    if not contest.same_data:
        return replace(contest, reason="one of the methods was measured on a part of the data", pairs=pairs)
    advantage = mean(differences) if pairs else mean(ace) - mean(other)
    if contest.ace_epochs and contest.other_epochs and contest.ace_epochs != contest.other_epochs:
        return replace(contest, reason="the methods were trained for different numbers of epochs", pairs=pairs,
                       advantage=mean(ace) - mean(other))
    found = replace(contest, pairs=pairs, advantage=advantage)
    if not pairs and min(len(ace), len(other)) < MIN_RUNS:
        few, method = min((len(ace), "ACE"), (len(other), contest.host), key=lambda pair: pair[0])
        return replace(found, reason=f"only {few} run{'s' * (few > 1)} of {method}, {MIN_RUNS} are needed")
    low, high = paired_interval(differences) if pairs else welch_interval(ace, other)
    if low > 0 or high < 0:
        return replace(found, verdict="ahead" if low > 0 else "behind", interval=(low, high))
    return replace(found, reason="the interval of the difference includes zero", interval=(low, high))
