"""The table of a study as CSV, Markdown and LaTeX."""

from __future__ import annotations

from typing import Any

import pandas as pd

from acenode.compare.study_answer import StudyReport, study_table
from acenode.compare.study_grid import GridRow
from acenode.export.csv_tables import to_csv as write_csv
from acenode.export.table_formats import PACKAGES, latex_table, markdown_table


def to_csv(found: StudyReport) -> str:
    """Write one line for each run that the study asks for, and one for each trivial reference."""
    rows = [line for row, params in zip(found.grid.rows, found.params, strict=True)
            for line in _lines(found, row, params)]
    rows += [{"group": reference.name, "kind": "reference", "metric": found.grid.measure.name,
              "value": reference.value} for reference in found.references]
    columns = list(rows[0])
    return write_csv(pd.DataFrame([[line.get(name, "") for name in columns] for line in rows], columns=columns,
                                  dtype=object))


def _lines(found: StudyReport, row: GridRow, params: int) -> list[dict[str, Any]]:
    compared = found.answer.comparison(row.name)
    low, high = compared.interval if compared and compared.interval else ("", "")
    versus = {"difference": compared.difference, "low": low, "high": high, "effect": compared.effect} if compared else {
        "difference": "", "low": "", "high": "", "effect": "baseline"}
    return [{"group": row.name, "kind": "run", "params": params, "seed": cell.config.seed,
             "fold": "" if cell.config.get("fold") is None else cell.config.get("fold"), "state": cell.state,
             "metric": found.grid.measure.name, "value": "" if cell.value is None else cell.value,
             "run": cell.entry.id if cell.entry else "", **{k: "" if v is None else v for k, v in versus.items()}}
            for cell in row.cells]


def to_markdown(found: StudyReport) -> str:
    """Write the question, the table with every seed, the answer, and what is not equal."""
    table, study = study_table(found), found.grid.study
    parts = [f"## {study.question or study.name}", f"{table.caption}.", markdown_table(table.heads, table.rows)]
    parts += [*found.answer.sentences, *(f"Not equal: {note.text}." for note in found.notes)]
    return "\n\n".join(parts) + "\n"


def to_latex(found: StudyReport) -> str:
    """Write the table without single seeds, with the number of seeds in its caption, and the answer as comments."""
    table, study = study_table(found, cells=False), found.grid.study
    shortest, longest = (choose(len(row.values) for row in found.grid.rows) for choose in (min, max))
    runs = f"{shortest}" if shortest == longest else f"{shortest} to {longest}"
    runs += " run" if longest == 1 else " runs"
    caption = f"{study.question + ' ' if study.question else ''}{table.caption}; {runs} in each group."
    notes = [*found.answer.sentences, *(f"Not equal: {note.text}." for note in found.notes)]
    return "\n".join([PACKAGES, latex_table(caption, table.heads, table.rows), *(f"% {note}" for note in notes)]) + "\n"
