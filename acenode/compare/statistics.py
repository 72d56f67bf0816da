"""Statistics over seeds as pandas frames: number of runs, mean and sample standard deviation of every group."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from acenode.compare import paper
from acenode.compare.run_groups import (
    QUESTION,
    data_title,
    differing,
    group_settings,
    method_title,
    question_of,
    settings_text,
    shared_config,
)
from acenode.compare.study_answer import best_of
from acenode.errors import UserError
from acenode.runs.catalogue import Entry
from acenode.runs.studies import Repeat

BY_SETTINGS = "settings"  # group by method and all settings but the ignored ones
IDENTITY = ["experiment", "data", "partial", "method", "settings"]  # the columns that identify a group
VALUES = ["test", "validation", "test_last", "validation_last", "nfe", "seconds"]


def runs_frame(entries: Iterable[Entry]) -> pd.DataFrame:
    """Return a frame with one row for each run: what identifies it and what it measured (NaN if not measured).

    `test` and `validation` are values of the run's metric at the best epoch, those with `_last` at the last epoch.
    """
    frame = pd.DataFrame([_row(entry) for entry in entries], columns=[
        "run", "created", *IDENTITY, "changed", "seed", "fold", "measure", "question", "paper", "params", *VALUES])
    return frame.astype(dict.fromkeys(VALUES, float))


def _row(entry: Entry) -> dict[str, Any]:
    changed, question = group_settings(entry.config), question_of(entry)
    return {
        "run": entry.id, "created": entry.created, "experiment": entry.experiment, "data": entry.data,
        "partial": entry.partial, "method": entry.method, "settings": settings_text(changed), "changed": changed,
        "seed": entry.seed, "fold": entry.config.get("fold") or 0, "measure": question[0],
        "question": question, "paper": _paper(entry, changed), "params": entry.params,
        "test": entry.value, "validation": entry.best, "test_last": entry.last_value, "validation_last": entry.last,
        "nfe": entry.test.get("nfe"), "seconds": entry.seconds,
    }


def _paper(entry: Entry, changed: dict[str, Any]) -> str:
    """Return the paper's value for what a run trained, or nothing."""
    try:
        value = paper.beside(shared_config(entry.config), changed, entry.partial)
    except UserError:  # written by another version
        return ""
    return str(value) if value else ""


def group_keys(entries: Iterable[Entry]) -> list[str]:
    """List what runs can be grouped by: all settings, the method, and every setting in which they differ."""
    return [BY_SETTINGS, "method", *(k for k in differing(entries) if k != "method")]


def grouped_frame(entries: Sequence[Entry], by: str = BY_SETTINGS) -> pd.DataFrame:
    """Return `runs_frame` with the name of each run's group in the column `group`.

    Runs of several experiments, of the sample and the full data, or of several questions are never in one group.
    """
    data, names = {data_title(e) for e in entries}, {e.experiment for e in entries}
    apart = [k for k in QUESTION if by not in (BY_SETTINGS, k) and len({e.config.get(k) for e in entries}) > 1]
    frame = runs_frame(entries)
    groups = []
    for entry, settings in zip(entries, frame["settings"], strict=True):
        words = [entry.experiment] * (len(names) > 1) + [_group_name(entry, by, settings)]
        words += [f"({data_title(entry)})"] * (len(data) > 1)
        words += [f"({k}={entry.config[k]})" for k in apart if entry.config.get(k) is not None]
        groups.append(" ".join(words))
    return frame.assign(group=groups)


def _group_name(entry: Entry, by: str, settings: str) -> str:
    title = method_title(entry.experiment, entry.method)
    if by == BY_SETTINGS:
        return f"{title} {settings}".strip()
    if by == "method":
        return title
    value = entry.config.get(by)
    return f"{by}={'–' if value is None else value}"


def over_seeds(runs: pd.DataFrame, value: str, by: str | list[str] = "group") -> pd.DataFrame:
    """Return n, mean, std and seeds of a column for every group, in order of first appearance.

    Runs without a value do not count, and of runs that repeat a seed (and fold) the latest counts. `std` is the sample
    standard deviation, NaN for fewer than two values.
    """
    groups = _latest(runs, value).groupby(by, sort=False)
    found = pd.DataFrame({
        "n": groups.size(),
        "mean": groups[value].agg(statistics.mean),  # exactly rounded, so that the order of the runs does not matter
        "std": groups[value].agg(lambda x: statistics.stdev(x) if len(x) > 1 else float("nan")),
        "seeds": groups["seed"].agg(sorted),
    })
    everyone = runs.groupby(by, sort=False).size().index
    found = found.reindex(everyone)
    return found.assign(n=found["n"].fillna(0).astype(int))


def _latest(runs: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return the runs with a value, of those that repeat a seed and fold the latest."""
    measured = runs.dropna(subset=[value]).sort_values("created", kind="stable")
    return measured.drop_duplicates([*IDENTITY, "seed", "fold"], keep="last")


@dataclass(frozen=True)
class GroupValues:
    """A group with its values by seed and fold."""

    name: str
    values: dict[Repeat, float]


def group_values(runs: pd.DataFrame, value: str) -> dict[str, GroupValues]:
    """Return the values of every group by seed and fold, averaged over its runs of that seed and fold."""
    found: dict[str, dict[Repeat, float]] = {str(name): {} for name in runs["group"].unique()}
    means = _latest(runs, value).groupby(["group", "seed", "fold"], sort=True)[value].agg(statistics.mean)
    for (group, seed, fold), number in means.items():
        found[group][int(seed), int(fold)] = float(number)
    return {name: GroupValues(name, values) for name, values in found.items()}


def repeats_of(groups: Iterable[GroupValues]) -> list[Repeat]:
    """List all seeds and folds that any of the groups has."""
    return sorted({repeat for group in groups for repeat in group.values})


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
