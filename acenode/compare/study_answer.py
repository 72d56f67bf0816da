"""The answer of a study: in words, as a table, and as values for JSON, beside trivial references.

References are what one gets without a model, on the same test set and in the same metric. Classification: the majority
class of the training data. Series: the mean of each variable over the training data, and the last value that was
observed before. Named variables: a regression too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np

from acenode import experiments
from acenode.compare.fairness import FairnessNote, fairness, parameter_counts
from acenode.compare.groups import RECORDING, settings_text
from acenode.compare.metrics import MetricFormat
from acenode.compare.study_grid import GridRow, StudyGrid, repeat_noun, repeat_title
from acenode.compare.verdict import DIFFERENCE, EFFECT, Comparison, TextTable, best_of, change_texts, compare_values
from acenode.config import Config
from acenode.errors import UserError, one_line
from acenode.files import Stamp, stamp

if TYPE_CHECKING:
    from acenode.experiments.forecast_task import ForecastTask
    from acenode.experiments.image_task import ImageTask
    from acenode.experiments.series_task import SeriesTask

MAJORITY, MEAN, LAST = "majority class", "mean", "last value"
WITHOUT_MODEL = "prediction without a model"  # stands for all references of an experiment where none can be computed
# References that use no input but the last value: a model that does not beat them has learned nothing, or too little.
WITHOUT_LEARNING = {MAJORITY: "always answering the most frequent class", MEAN: "always answering the mean",
                    LAST: "repeating the last value"}
Metrics = dict[str, dict[str, float]]  # of each reference by its name


@dataclass(frozen=True)
class TrivialReference:
    """A prediction that needs no model, and its value of a metric on the test set.

    Where it could not be computed, `failure` says why and the value is NaN.
    """

    name: str
    value: float
    failure: str = ""


@dataclass(frozen=True)
class StudyAnswer:
    """What a study shows so far."""

    comparisons: tuple[Comparison, ...]  # of all groups but the baseline, in order
    between: Comparison | None  # of the other two groups with each other, in a study of three
    best: str | None  # the group that is better than every other one; None if that cannot be told
    notes: tuple[str, ...]  # groups that are no better than a trivial reference, runs that are missing
    warning: str = ""  # if no group has learned enough for its differences to mean something, or runs are short

    @property
    def findings(self) -> tuple[Comparison, ...]:
        """All comparisons: those with the baseline first."""
        return self.comparisons if self.between is None else (*self.comparisons, self.between)

    @property
    def sentences(self) -> tuple[str, ...]:
        """All of it: the warning first, then a sentence for each comparison, then the notes."""
        return (*([self.warning] if self.warning else []), *(found.sentence for found in self.findings), *self.notes)

    @property
    def text(self) -> str:
        """All sentences in one line."""
        return " ".join(self.sentences)

    def comparison(self, name: str) -> Comparison | None:
        """Return the comparison of a group with the baseline, None for the baseline."""
        return next((found for found in self.comparisons if found.name == name), None)


def answer(grid: StudyGrid, references: Sequence[TrivialReference] = ()) -> StudyAnswer:
    """Answer the question of a study with the runs that are finished."""
    study, measure, others = grid.study, grid.measure, [row for row in grid.rows if row is not grid.baseline]

    def compare(row: GridRow, other: GridRow) -> Comparison:
        return compare_values(row.name, row.values, other.name, other.values, measure, repeat_noun(study))

    between = compare(*others) if len(others) == 2 and all(row.values for row in others) else None
    nothing_learned = _nothing_learned(grid, references)
    notes = [] if nothing_learned else _against_references(grid, references)
    if grid.finished < len(grid.cells):
        notes.append(f"{grid.finished} of {len(grid.cells)} runs are finished.")
    return StudyAnswer(tuple(compare(row, grid.baseline) for row in others), between,
                       best_of({row.name: row.values for row in grid.rows}, measure), tuple(notes),
                       nothing_learned or _too_short(grid))


def _nothing_learned(grid: StudyGrid, references: Sequence[TrivialReference]) -> str:
    """Say that no group beats a reference without learning by more than its spread; empty if one does."""
    sign = grid.measure.sign
    trivial = sorted((reference for reference in references if reference.name in WITHOUT_LEARNING),
                     key=lambda reference: sign * reference.value)
    measured = [(sign * row.mean, row.std or 0.0) for row in grid.rows if row.mean is not None]
    if not trivial or not measured:
        return ""
    weakest, best = (sign * reference.value for reference in (trivial[0], trivial[-1]))
    reached = max(value - spread for value, spread in measured)
    if reached > best:
        return ""
    clearly = "clearly " * any(value > best for value, _ in measured)
    learned = ("nothing yet, train longer" if reached <= weakest else
               "too little to compare them, train longer if validation still improves")
    return (f"No group {clearly}beats {WITHOUT_LEARNING[trivial[-1].name]} ({grid.measure.text(trivial[-1].value)}): "
            f"the runs learned {learned}.")


def _too_short(grid: StudyGrid) -> str:
    configs = [cell.config for cell in grid.cells if cell.value is not None]
    if not configs:
        return ""
    shortest = min(configs, key=lambda config: int(config.get("epochs")))
    epochs = int(shortest.get("epochs"))
    usual = int(experiments.get(shortest.experiment).configure(shortest.method, shortest.data).get("epochs"))
    if 2 * epochs >= usual:
        return ""
    return (f"Trained for {epochs} epoch{'s' * (epochs > 1)}, where the default is {usual}: longer training may change "
            "the answer.")


def _against_references(grid: StudyGrid, references: Sequence[TrivialReference]) -> list[str]:
    best, sign = _best_reference(references, grid.measure), grid.measure.sign
    poor = [row.name for row in grid.rows if best and row.mean is not None and sign * row.mean <= sign * best.value]
    if best is None or not poor:
        return []
    reference = f"the {best.name} ({grid.measure.text(best.value)})"
    if len(poor) == len(grid.rows) > 1:
        return [f"No group is better than {reference}."]
    names = "; ".join(poor)
    return [f"{names[:1].upper()}{names[1:]} {'is' if len(poor) == 1 else 'are'} not better than {reference}."]


def _best_reference(references: Iterable[TrivialReference], measure: MetricFormat) -> TrivialReference | None:
    return max(references, key=lambda reference: measure.sign * reference.value, default=None)


# A report: table and JSON -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StudyReport:
    """A study with all that is known of it."""

    grid: StudyGrid
    params: tuple[int, ...]  # of each group
    references: tuple[TrivialReference, ...]
    answer: StudyAnswer
    notes: tuple[FairnessNote, ...]


def report(grid: StudyGrid, references: Sequence[TrivialReference] = ()) -> StudyReport:
    """Compare the groups of a study, check its fairness and count parameters. References that could not be computed are
    named in the notes of the answer and left out of the table."""
    reasons: dict[str, list[str]] = {}
    for reference in references:
        if reference.failure:
            reasons.setdefault(reference.failure, []).append(f"“{reference.name}”")
    failed = " ".join(f"The reference{'s' * (len(names) > 1)} {' and '.join(names)} could not be computed: "
                      f"{reason.removesuffix('.')}." for reason, names in reasons.items())
    known = tuple(reference for reference in references if not reference.failure)
    found = answer(grid, known)
    found = replace(found, notes=(*found.notes, failed)) if failed else found
    return StudyReport(grid, tuple(parameter_counts(grid)), known, found, tuple(fairness(grid)))


def study_table(found: StudyReport, *, cells: bool = True) -> TextTable:
    """Return a row for each group and each trivial reference; with `cells`, a column for every seed or fold."""
    grid, number = found.grid, found.grid.measure.number
    repeats = grid.study.repeats if cells else ()
    heads = ("Group", "Parameters", *(repeat_title(grid.study, repeat) for repeat in repeats), "Mean ± std",
             DIFFERENCE, EFFECT)
    rows = []
    for row, params in zip(grid.rows, found.params, strict=True):
        own = [number(cell.value) if cell.value is not None else
               f"{cell.state} {100 * cell.progress:.0f}%" if cell.progress else cell.state
               for cell in row.cells] if cells else []
        spread = "" if row.std is None else f" ± {number(row.std)}"
        best = " (best)" if row.name == found.answer.best else ""
        compared = found.answer.comparison(row.name)
        rows.append((row.name, f"{params:,}", *own, "–" if row.mean is None else number(row.mean) + spread + best,
                     *(("", "baseline") if compared is None else change_texts(grid.measure, compared))))
    rows += [(reference.name, "–", *([""] * len(repeats)), number(reference.value), "", "reference")
             for reference in found.references]
    return TextTable(caption(grid), heads, tuple(rows))


def caption(grid: StudyGrid, words: Callable[[Mapping[str, Any]], str] = settings_text) -> str:
    """Say what the table measures, on which data, and what is held equal, with settings written by `words`."""
    study, measure = grid.study, grid.measure
    experiment = experiments.get(study.experiment)
    sample = "bundled sample" if experiment.source else experiment.sample_title
    data = f"{sample} ({experiment.about_sample})" if study.data == "sample" else "full data"
    equal = words({k: v for k, v in study.held.items() if k not in RECORDING})
    held = f"; {equal} in all groups" if equal else ""
    lower = "" if measure.higher_is_better else ", lower is better"
    return (f"Test {measure.heading}{lower}, {experiment.title}, {data}{held}. Differences are to "
            f"{grid.baseline.name}, by paired {'folds' if study.folds else 'seeds'}")


def as_json(found: StudyReport) -> dict[str, Any]:
    """Return the study with its cells, comparisons, notes and answer, for JSON. Values are not in the metric's unit."""
    grid = found.grid

    def group(row: GridRow, params: int) -> dict[str, Any]:
        compared = found.answer.comparison(row.name)
        cells = [{"seed": cell.config.seed, "fold": cell.config.get("fold"), "state": cell.state,
                  "progress": cell.progress, "value": cell.value, "run": cell.entry.id if cell.entry else None}
                 for cell in row.cells]
        return {"name": row.name, "params": params, "mean": row.mean, "std": row.std, "n": len(row.values),
                "cells": cells, "against_baseline": compared and {
                    key: getattr(compared, key)
                    for key in ("difference", "interval", "pairs", "effect", "more", "text")}}

    return {
        "study": grid.study.to_dict(), "metric": grid.measure.name, "higher_is_better": grid.measure.higher_is_better,
        "progress": grid.progress, "finished": grid.finished, "runs": len(grid.cells),
        "groups": list(map(group, grid.rows, found.params)),
        "references": [{"name": r.name, "value": r.value} for r in found.references],
        "answer": found.answer.text, "best": found.answer.best,
        "fairness": [{"text": note.text, "setting": note.key, "equal": note.change or None}
                     for note in found.notes],
    }


# Studies of named variables -----------------------------------------------------------------------------------------

DOES = {"forecast": "forecasts", "fill": "fills in", "classify": "classifies"}
REFERENCES = {"ridge": "ridge regression", "ridge, own past": "ridge regression on each variable's own past",
              **WITHOUT_LEARNING}
RIDGE_READS = {"forecast": "the recent values of all variables",
               "fill": "the values of all variables around that time"}


def coupling_caution(row: GridRow, references: Iterable[TrivialReference], measure: MetricFormat, task: str) -> str:
    """Say that the model of the group whose runs found a coupling is worse than the best reference; empty if not."""
    best = _best_reference(references, measure)
    if row.mean is None or best is None or measure.sign * row.mean >= measure.sign * best.value:
        return ""
    return (f"The model {DOES[task]} worse than {REFERENCES.get(best.name, best.name)} here "
            f"({measure.number(row.mean)} against {measure.number(best.value)}), so read its coupling with care.")


def ridge_words(references: Sequence[TrivialReference], task: str) -> str:
    """Explain the ridge regressions among the references; empty if there are none."""
    names = {reference.name for reference in references}
    if "ridge" not in names or task not in RIDGE_READS:
        return ""
    own = "; ridge, own past: on those of the same variable only" * ("ridge, own past" in names)
    return f"ridge: linear regression on {RIDGE_READS[task]}{own}"


def own_unit_errors(rows: Iterable[GridRow]) -> list[dict[str, object]]:
    """Return the root mean squared errors of every variable in its own unit: groups first, then the references."""
    rows = list(rows)
    results = [(row.name, entry.run.result() or {})
               for row in rows for entry in row.entries if entry.state == "finished"]
    errors = [(group if name == "model" else name, f"{variable} ({unit})" if unit else variable, value)
              for group, result in results if (found := result.get("own_units"))
              for name, values in found["rmse"].items()
              for variable, unit, value in zip(found["variables"], found["units"], values, strict=True)]
    titles = dict.fromkeys([*(row.name for row in rows), *(title for title, _, _ in errors)])
    table: list[dict[str, object]] = []
    for variable in dict.fromkeys(variable for _, variable, _ in errors):
        own = {title: [value for at, name, value in errors if (at, name) == (title, variable) and value is not None]
               for title in titles}
        table.append({"Variable": variable, **{title: f"{np.mean(each):.4g}" for title, each in own.items() if each}})
    return table


# Trivial references -------------------------------------------------------------------------------------------------


def study_references(grid: StudyGrid, root: Path) -> tuple[TrivialReference, ...]:
    """Return the references of a study, averaged over its folds; none where its data is not in the data folder.

    Where a finished run reports references, these are used: they do not depend on the model.
    """
    if reported := tuple(_reported(grid)):
        return reported
    found: dict[str, list[TrivialReference]] = {}
    for config in {cell.config.get("fold"): cell.config for cell in grid.baseline.cells}.values():
        for reference in references(config, root, grid.measure.name):
            found.setdefault(reference.name, []).append(reference)
    return tuple(TrivialReference(name, mean(own.value for own in each), max(own.failure for own in each))
                 for name, each in found.items())


def _reported(grid: StudyGrid) -> Iterator[TrivialReference]:
    """Yield the references in the result of the first finished run, which sets of named variables have."""
    entries = [cell.entry for cell in grid.cells if cell.value is not None and cell.entry and not grid.study.folds]
    listed = next((found for entry in entries if (found := entry.run.result()) is not None), {}).get("references")
    for name, own in listed.items() if isinstance(listed, dict) else ():
        if isinstance(own, dict) and isinstance(own.get(grid.measure.name), float):
            yield TrivialReference(name, own[grid.measure.name])
        elif isinstance(own, dict) and isinstance(own.get("failure"), str):
            yield TrivialReference(name, float("nan"), own["failure"])


def references(config: Config, root: Path, metric: str) -> tuple[TrivialReference, ...]:
    """Return the references of a configuration's data in this metric.

    Where the data is missing or damaged there are none, but the AUC of a constant score, which needs no data.
    """
    try:
        found, failed = _all_references(replace(config, seed=0, device="cpu"), root, stamp(root / "imported"))
    except UserError:
        return (TrivialReference(MAJORITY, 0.5),) if metric == "auc" else ()
    except Exception as error:  # whatever it is, the measured values of a study are shown
        return (TrivialReference(WITHOUT_MODEL, float("nan"), one_line(error)),)
    return (*(TrivialReference(name, own[metric]) for name, own in found.items() if metric in own),
            *(TrivialReference(name, float("nan"), reason) for name, reason in failed.items()))


@lru_cache(maxsize=32)
def _all_references(config: Config, root: Path, version: Stamp | None) -> tuple[Metrics, dict[str, str]]:
    """Compute every reference from the task's own splits; return them, and why others could not be computed.

    `version` changes when a set is imported or deleted: another one may have its name then.
    """
    import torch

    from acenode.backend import PLAIN
    from acenode.experiments.forecast_task import ForecastTask
    from acenode.experiments.image_task import ImageTask
    from acenode.experiments.named_references import label_references, value_references
    from acenode.experiments.named_task import NamedTask
    from acenode.experiments.series_task import SeriesTask

    task: Any = experiments.get(config.experiment).make(config, root, torch.device("cpu"), PLAIN)
    if isinstance(task, NamedTask):
        failed: dict[str, str] = {}
        if task.source.task == "classify":
            return label_references(task.data, failed), failed
        return {name: {"mse": errors.mse} for name, errors in value_references(task.data, failed).items()}, failed
    kinds: dict[type, Callable[[Any], Metrics]] = {
        ImageTask: image_references, SeriesTask: series_references, ForecastTask: forecast_references}
    compute = kinds.get(type(task))  # None for a task of another package
    return compute(task) if compute is not None else {}, {}


def image_references(task: ImageTask) -> Metrics:
    """Return the share of test images that are of the most frequent class of the training images."""
    frequent = task.batches.images.y.bincount().argmax()
    return {MAJORITY: {"accuracy": float((task.splits["test"].y == frequent).double().mean())}}


def series_references(task: SeriesTask) -> Metrics:
    """Return the references of records, points or vital signs."""
    import torch

    from acenode.experiments.named_references import last_before
    from acenode.experiments.series_batches import SeriesOutputs
    from acenode.experiments.series_task import observed_mean
    from acenode.models.latent import Predictions

    batches = task.batches_of("test")
    if task.kind == "vitals":
        means = observed_mean(task.splits.train)
        outputs = {name: SeriesOutputs(task.kind) for name in (MEAN, LAST)}
        for batch in batches:
            constant = np.broadcast_to(means, batch.target.x.shape)
            for name, x in ((MEAN, constant), (LAST, last_before(batch.seen, batch.target, means))):
                outputs[name].add(Predictions(torch.from_numpy(x.astype(np.float32))[None], None), batch)
        return {name: out.metrics() for name, out in outputs.items()}
    out = SeriesOutputs(task.kind)
    for batch in batches:
        logits = torch.zeros(1, len(batch.seen.t))  # a constant score for every record: its AUC is that of chance
        if task.kind == "points":  # the most frequent class of the labelled training points with an observation
            train = task.splits.train
            labels = np.concatenate([own[s.m.any(-1)] for own, s in zip(train.labels, train.series, strict=True)])
            logits = torch.zeros(1, *batch.target.t.shape, len(task.splits.classes))
            logits[..., np.bincount(labels[labels >= 0].astype(np.int64)).argmax()] = 1.0
        out.add(Predictions(None, logits), batch)
    return {MAJORITY: {task.metric.name: out.metrics()[task.metric.name]}}


def forecast_references(task: ForecastTask) -> Metrics:
    """Return the errors of the mean and of the last value before the cut, each with the training data's variance."""
    from acenode.config.groups import ForecastData
    from acenode.experiments.named_references import last_before

    train = task.data.arrays.take(task.data.parts.train)
    counts = np.maximum(train.m.sum(0), 1)
    means = train.x.sum(0, dtype=np.float64) / counts
    variance = np.maximum((((train.x - means) ** 2) * train.m).sum(0) / counts, 1e-12)
    sums = {name: np.zeros(3) for name in (MEAN, LAST)}  # squared errors, negative log-likelihoods, targets
    for batch in task.batches("test", task.config.part(ForecastData).targets):
        target = batch.target
        x, m = target.x.numpy().astype(np.float64), target.m.numpy()
        for name, guess in ((MEAN, means), (LAST, last_before(batch.seen, target, means))):
            squared = (x - guess) ** 2
            nll = 0.5 * (squared / variance + np.log(2 * np.pi * variance))
            sums[name] += (squared * m).sum(), (nll * m).sum(), m.sum()
    return {name: {"mse": float(squared / count), "negll": float(nll / count)}
            for name, (squared, nll, count) in sums.items()}
