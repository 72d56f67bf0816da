"""Groups of chosen runs against one of them: the differences by paired seeds in words, and a table of texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from acenode.compare.metric_format import MetricFormat
from acenode.compare.run_times import duration
from acenode.compare.statistics import GroupValues, group_values, over_seeds, repeats_of
from acenode.compare.verdict import Comparison, best_of, change, compare_values
from acenode.runs.questions import Repeat


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
