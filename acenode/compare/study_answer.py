"""The answer of a study: in words, as a table, and as values for JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from acenode import experiments
from acenode.compare.fairness import FairnessNote, fairness, parameter_counts
from acenode.compare.groups import RECORDING, settings_text
from acenode.compare.metric_format import MetricFormat
from acenode.compare.study_grid import GridCell, GridRow, StudyGrid, repeat_title, repeats_word
from acenode.compare.study_references import LAST, MAJORITY, MEAN, TrivialReference, failure_note
from acenode.compare.verdict import Comparison, best_of, change, compare_values
from acenode.errors import UserError

# References that use no input but the last value: a model that does not beat them has learned nothing, or too little.
WITHOUT_LEARNING = {MAJORITY: "always answering the most frequent class", MEAN: "always answering the mean",
                    LAST: "repeating the last value"}


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
    others = [row for row in grid.rows if row is not grid.baseline]
    comparisons = tuple(compare(grid, row, grid.baseline) for row in others)
    between = compare(grid, *others) if len(others) == 2 and all(row.values for row in others) else None
    nothing_learned = _nothing_learned(grid, references)
    notes = [*([] if nothing_learned else _against_references(grid, references)), *_missing(grid)]
    return StudyAnswer(comparisons, between, best_group(grid), tuple(notes), nothing_learned or _too_short(grid))


def compare(grid: StudyGrid, row: GridRow, other: GridRow) -> Comparison:
    """Compare two groups by the seeds and folds that both have."""
    return compare_values(row, other, grid.measure, grid.study.repeats,
                          lambda n: repeats_word(grid.study, n), folds=bool(grid.study.folds))


def best_group(grid: StudyGrid) -> str | None:
    """Return the group that is better than every other one, by an interval that excludes zero; None if there is none.

    Only seeds that all groups have count, and fewer than three of them never give a best group.
    """
    return best_of(grid.rows, grid.measure, grid.study.repeats)


def _nothing_learned(grid: StudyGrid, references: Sequence[TrivialReference]) -> str:
    """Say that no group beats a reference without learning by more than its spread; empty if one does."""
    trivial = [reference for reference in references if reference.name in WITHOUT_LEARNING]
    sign = 1 if grid.measure.higher_is_better else -1
    measured = [(sign * row.mean, row.std or 0.0) for row in grid.rows if row.mean is not None]
    if not trivial or not measured:
        return ""
    trivial.sort(key=lambda reference: sign * reference.value)
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
    """Say that the shortest runs have less than half of the usual epochs; empty if they have more."""
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
    """Say which groups are no better than the best trivial reference."""
    if not references:
        return []
    sign = 1 if grid.measure.higher_is_better else -1
    best = max(references, key=lambda reference: sign * reference.value)
    poor = [row.name for row in grid.rows if row.mean is not None and sign * row.mean <= sign * best.value]
    if not poor:
        return []
    reference = f"the {best.name} ({grid.measure.text(best.value)})"
    if len(poor) == len(grid.rows) > 1:
        return [f"No group is better than {reference}."]
    names = "; ".join(poor)
    return [f"{names[:1].upper()}{names[1:]} {'is' if len(poor) == 1 else 'are'} not better than {reference}."]


def _missing(grid: StudyGrid) -> list[str]:
    left = len(grid.cells) - grid.finished
    return [f"{grid.finished} of {len(grid.cells)} runs are finished."] if left else []


@dataclass(frozen=True)
class StudyReport:
    """A study with all that is known of it."""

    grid: StudyGrid
    params: tuple[int, ...]  # of each group
    references: tuple[TrivialReference, ...]
    answer: StudyAnswer
    notes: tuple[FairnessNote, ...]


@dataclass(frozen=True)
class StudyTable:
    """A table of texts with its caption."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def report(grid: StudyGrid, references: Sequence[TrivialReference] = ()) -> StudyReport:
    """Compare the groups of a study, check its fairness and count parameters.

    References that could not be computed are named in the notes of the answer and left out of the table.
    """
    known, found = tuple(r for r in references if not r.failure), failure_note(references)
    answered = answer(grid, known)
    answered = replace(answered, notes=(*answered.notes, found)) if found else answered
    return StudyReport(grid, tuple(parameter_counts(grid)), known, answered, tuple(fairness(grid)))


def study_table(found: StudyReport, *, cells: bool = True) -> StudyTable:
    """Return a row for each group and each trivial reference.

    Args:
        found: the study.
        cells: with a column for every seed or fold.
    """
    grid = found.grid
    repeats = grid.study.repeats if cells else ()
    heads = ("Group", "Parameters", *(repeat_title(grid.study, repeat) for repeat in repeats), "Mean ± std",
             "Difference (95% interval)", "Effect")
    rows = []
    for row, params in zip(grid.rows, found.params, strict=True):
        own = [cell_text(grid, cell) for cell in row.cells] if cells else []
        rows.append((row.name, f"{params:,}", *own, _mean(found, row),
                     *_difference(grid, row, found.answer.comparison(row.name))))
    rows += [(reference.name, "–", *([""] * len(repeats)), grid.measure.number(reference.value), "", "reference")
             for reference in found.references]
    return StudyTable(caption(grid), heads, tuple(rows))


def cell_text(grid: StudyGrid, cell: GridCell) -> str:
    """Write one cell: its value, or its state and progress."""
    if cell.value is not None:
        return grid.measure.number(cell.value)
    return f"{cell.state} {100 * cell.progress:.0f}%" if cell.progress else cell.state


def caption(grid: StudyGrid, words: Callable[[Mapping[str, Any]], str] = settings_text) -> str:
    """Say what the table measures, on which data, and what is held equal.

    Args:
        words: how settings are written; by their keys unless given.
    """
    study, measure = grid.study, grid.measure
    experiment = experiments.get(study.experiment)
    sample = "bundled sample" if experiment.source else experiment.sample_title
    data = f"{sample} ({experiment.about_sample})" if study.data == "sample" else "full data"
    equal = words({k: v for k, v in study.held.items() if k not in RECORDING})
    held = f"; {equal} in all groups" if equal else ""
    lower = "" if measure.higher_is_better else ", lower is better"
    return (f"Test {measure.heading}{lower}, {experiment.title}, {data}{held}. Differences are to "
            f"{grid.baseline.name}, by paired {'folds' if study.folds else 'seeds'}")


def _mean(found: StudyReport, row: GridRow) -> str:
    if row.mean is None:
        return "–"
    measure = found.grid.measure
    spread = "" if row.std is None else f" ± {measure.number(row.std)}"
    return measure.number(row.mean) + spread + (" (best)" if row.name == found.answer.best else "")


def _difference(grid: StudyGrid, row: GridRow, comparison: Comparison | None) -> tuple[str, str]:
    """Return the difference with its interval, and the effect."""
    if comparison is None:
        return "", "baseline"
    if comparison.difference is None:
        return "–", "–"
    text = change(grid.measure, comparison.difference)
    if comparison.interval is not None:
        text += f" ({' to '.join(change(grid.measure, end) for end in comparison.interval)})"
    return text, "cannot be told" if comparison.effect == "unknown" else comparison.effect


def as_json(found: StudyReport) -> dict[str, Any]:
    """Return the study with its cells, comparisons, notes and answer, for JSON. Values are not in the metric's unit."""
    grid = found.grid
    return {
        "study": grid.study.to_dict(), "metric": grid.measure.name, "higher_is_better": grid.measure.higher_is_better,
        "progress": grid.progress, "finished": grid.finished, "runs": len(grid.cells),
        "groups": [_group_json(found, row, params) for row, params in zip(grid.rows, found.params, strict=True)],
        "references": [{"name": r.name, "value": r.value} for r in found.references],
        "answer": found.answer.text, "best": found.answer.best,
        "fairness": [{"text": note.text, "setting": note.key, "equal": note.offer.change if note.offer else None}
                     for note in found.notes],
    }


def _group_json(found: StudyReport, row: GridRow, params: int) -> dict[str, Any]:
    compared = found.answer.comparison(row.name)
    cells = [{"seed": cell.config.seed, "fold": cell.config.get("fold"), "state": cell.state,
              "progress": cell.progress, "value": cell.value, "run": cell.entry.id if cell.entry else None}
             for cell in row.cells]
    versus = None if compared is None else {
        "difference": compared.difference, "interval": compared.interval, "pairs": compared.pairs,
        "effect": compared.effect, "more": compared.more, "text": compared.text}
    return {"name": row.name, "params": params, "mean": row.mean, "std": row.std, "n": len(row.values), "cells": cells,
            "against_baseline": versus}


DOES = {"forecast": "forecasts", "fill": "fills in", "classify": "classifies"}
REFERENCES = {"ridge": "ridge regression", "ridge, own past": "ridge regression on each variable's own past",
              **WITHOUT_LEARNING}
RIDGE_READS = {"forecast": "the recent values of all variables",
               "fill": "the values of all variables around that time"}


@dataclass(frozen=True, eq=False)
class FoundCoupling:
    """How variables act on each other, averaged over test series, time and runs: [i, j] is from j to i."""

    names: tuple[str, ...]
    attention: np.ndarray | None  # rows sum to one
    influence: np.ndarray  # |∂ḣ_i/∂h_j| as a share of its row
    runs: int


def found_coupling(row: GridRow) -> FoundCoupling | None:
    """Return the coupling that the finished runs of a group found; None if there is no such run."""
    results = []
    for entry in row.entries:
        try:
            found = entry.run.result() if entry.state == "finished" else None
        except UserError:
            continue
        if found and "influence" in found:
            results.append(found)
    if not results:
        return None
    names = tuple(str(name) for name in results[0]["influence"]["names"])
    influence = np.mean([result["influence"]["mean"] for result in results], axis=0)
    attention = [result["attention"]["mean"] for result in results if "attention" in result]
    return FoundCoupling(names, np.mean(attention, axis=0) if attention else None,
                         influence / np.maximum(influence.sum(1, keepdims=True), 1e-12), len(results))


def coupling_text(found: FoundCoupling, count: int = 3) -> str:
    """Name the strongest influences between two variables: `power ← wind (62%), wind ← power (8%)`."""
    shares = np.where(np.eye(len(found.names), dtype=bool), 0.0, found.influence)
    order = np.dstack(np.unravel_index(np.argsort(-shares, axis=None), shares.shape))[0][:count]
    return ", ".join(f"{found.names[i]} ← {found.names[j]} ({100 * shares[i, j]:.0f}%)" for i, j in order
                     if shares[i, j] > 0)


def coupling_caution(row: GridRow, references: Iterable[TrivialReference], measure: MetricFormat, task: str) -> str:
    """Say that the model behind a coupling is worse than the best reference; empty if it is not.

    Args:
        row: the group whose runs found the coupling.
        references: of the study.
        measure: the metric of both.
        task: forecast, fill or classify.
    """
    sign = 1 if measure.higher_is_better else -1
    best = max(references, key=lambda reference: sign * reference.value, default=None)
    if row.mean is None or best is None or sign * row.mean >= sign * best.value:
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


def is_uniform(attention: np.ndarray, least: float = 0.02) -> bool:
    """Return True if all rows of a mean attention are nearly equal: it then tells nothing about pairs."""
    return bool((attention.max(0) - attention.min(0)).max() < least)


def own_unit_errors(rows: Iterable[GridRow]) -> list[dict[str, object]]:
    """Return the root mean squared errors of every variable in its own unit: groups first, then the references."""
    table: dict[str, dict[str, list[float]]] = {}
    units: dict[str, str] = {}
    for row in rows:
        for entry in row.entries:
            found = (entry.run.result() or {}).get("own_units") if entry.state == "finished" else None
            if not found:
                continue
            units = dict(zip(found["variables"], found["units"], strict=True))
            for name, values in found["rmse"].items():
                for variable, value in zip(found["variables"], values, strict=True):
                    if value is not None:
                        title = row.name if name == "model" else name
                        table.setdefault(title, {}).setdefault(variable, []).append(value)
    titles = [row.name for row in rows if row.name in table]
    titles += [title for title in table if title not in titles]
    return [{"Variable": f"{variable} ({unit})" if unit else variable,
             **{title: f"{np.mean(table[title][variable]):.4g}" for title in titles if variable in table[title]}}
            for variable, unit in units.items()]
