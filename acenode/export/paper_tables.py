"""The paper's tables with the measured values beside the printed ones, as CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from acenode.compare.cells import (
    Measured,
    difference_text,
    mark_legend,
    mark_text,
    mean_text,
    printed_text,
    repeats_text,
)
from acenode.compare.paper import TABLES, PaperCell, PaperTable
from acenode.export.table_formats import PACKAGES, latex_table, markdown_table

Values = Mapping[str, Measured]  # by the key of the cell


def to_csv(measured: Values, tables: Iterable[PaperTable] = tuple(TABLES.values())) -> str:
    """Write one line for each cell of each table, with the ids of its runs."""
    lines = [_line(table, row.title, column, cell, measured.get(cell.key, Measured()))
             for table in tables for row in table.rows
             for column, cell in zip(table.columns, row.cells, strict=True) if cell is not None]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]) if lines else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _line(table: PaperTable, row: str, column: str, cell: PaperCell, found: Measured) -> dict[str, Any]:
    return {"table": table.name, "row": row, "column": column, "experiment": cell.experiment, "method": cell.method,
            "metric": cell.metric, "settings": " ".join(f"{k}={v}" for k, v in cell.settings.items()),
            "unit": cell.format.unit.strip(), "paper_mean": cell.printed.mean, "paper_std": cell.printed.std,
            "paper_params": cell.printed.params, "params": found.entries[0].params if found.n else None,
            "mean": found.mean, "std": found.std, "runs": found.n, "seeds": " ".join(map(str, found.seeds)),
            "folds": " ".join(map(str, found.folds)), "epochs": found.epochs, "difference": found.difference,
            "mark": found.mark, "note": found.note, "run_ids": " ".join(entry.id for entry in found.entries)}


def to_markdown(measured: Values, tables: Iterable[PaperTable] = tuple(TABLES.values())) -> str:
    """Write each table as a Markdown table under a heading, and explain the marks."""
    parts = []
    for table in tables:
        heads, rows = _grid(table, measured)
        parts.append("\n".join([f"## {table.title}", "", table.caption, "", markdown_table(heads, rows)]))
    return "\n\n".join([*parts, mark_legend()]) + "\n"


def to_latex(measured: Values, tables: Iterable[PaperTable] = tuple(TABLES.values())) -> str:
    """Write each table as a LaTeX table; needs the packages booktabs and amssymb."""
    parts = [PACKAGES, *(latex_table(table.caption, *_grid(table, measured)) for table in tables)]
    return "\n\n".join([*parts, "% " + mark_legend()]) + "\n"


def _grid(table: PaperTable, measured: Values) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows: for each column of the table the printed and the measured value."""
    heads = ["Method", *(f"{column}, {side}" for column in table.columns for side in ("paper", "ours"))]
    rows = []
    for row in table.rows:
        texts = [row.title]
        for cell in row.cells:
            texts += ["", ""] if cell is None else [printed_text(cell),
                                                    _ours(cell, measured.get(cell.key, Measured()))]
        rows.append(texts)
    return heads, rows


def _ours(cell: PaperCell, found: Measured) -> str:
    if not found.n:
        return mark_text(found)
    words = [repeats_text(found), difference_text(cell, found), mark_text(found)]
    return f"{mean_text(cell, found)} ({', '.join(filter(None, words))})"


FORMATS: dict[str, Callable[[Values], str]] = {"csv": to_csv, "md": to_markdown, "tex": to_latex}
