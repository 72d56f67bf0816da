"""The table of a study as texts, the same in the terminal, in exports and on pages; and as values for JSON and CSV."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from acenode import experiments
from acenode.compare.run_groups import RECORDING, settings_text
from acenode.compare.study_answer import Comparison, StudyAnswer, answer, change
from acenode.compare.study_fairness import FairnessNote, fairness, parameter_counts
from acenode.compare.study_grid import GridCell, GridRow, StudyGrid, repeat_title
from acenode.compare.study_references import TrivialReference, failure_note


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
