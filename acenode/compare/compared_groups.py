"""Groups of chosen runs against one of them: the differences by paired seeds in words, and a table of texts."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from acenode.compare import statistics
from acenode.compare.metric_format import MetricFormat
from acenode.compare.run_times import duration
from acenode.compare.study_answer import Comparison, change, compare_values
from acenode.runs.studies import Repeat

GROUP, DIFFERENCE, EFFECT, NFE = "Group", "Difference (95% interval)", "Effect", "Function evaluations (NFE)"


@dataclass(frozen=True)
class ComparedGroups:
    """What the chosen runs show."""

    groups: pd.DataFrame  # of `statistics.compare`
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
    """Compare the groups of `statistics.grouped_frame` with one of them, seed by seed.

    Args:
        runs: the runs with their groups.
        baseline: the name of the group that the others are compared with.
        epoch: `best` for the parameters of the best epoch, `last` for those of the last one.
    """
    groups, column = statistics.compare(runs, baseline, epoch), statistics.compared_column(runs, baseline, epoch)
    values = statistics.group_values(runs, column)
    repeats = statistics.repeats_of(values.values())
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
