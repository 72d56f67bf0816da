"""The paper's tables on the page: what the browser draws for each cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from acenode.compare.cells import (
    Measured,
    difference_text,
    mark_text,
    mean_text,
    params_text,
    printed_text,
    repeats_text,
    shown_mark,
)
from acenode.compare.paper import PaperCell, PaperRow, PaperTable


@dataclass(frozen=True)
class OpenedCell:
    """The cell whose runs are shown, and the table in which it was clicked: some cells stand in two."""

    table: PaperTable
    cell: PaperCell


def view(tables: Iterable[PaperTable], measured: Mapping[str, Measured],
         opened: OpenedCell | None = None) -> dict[str, Any]:
    """Describe tables for the component `paper_tables`: texts only, which the browser never interprets as markup."""
    return {"tables": [_table(table, measured, opened) for table in tables]}


def _table(table: PaperTable, measured: Mapping[str, Measured], opened: OpenedCell | None) -> dict[str, Any]:
    best = [_best([row.cells[i] for row in table.rows]) for i in range(len(table.columns))]
    return {"name": table.name, "title": table.title, "caption": table.caption, "corner": "Method",
            "opened": opened.cell.key if opened and opened.table == table else None,
            "columns": list(table.columns), "rows": [_row(row, best, measured) for row in table.rows]}


def _best(cells: Iterable[PaperCell | None]) -> str | None:
    """Return the key of the best printed value of a column, which the paper prints in bold."""
    found = [cell for cell in cells if cell is not None]
    if not found:
        return None
    return (max if found[0].format.higher_is_better else min)(found, key=lambda cell: cell.printed.mean).key


def _row(row: PaperRow, best: list[str | None], measured: Mapping[str, Measured]) -> dict[str, Any]:
    return {"label": row.title, "cells": [
        None if cell is None else _cell(cell, measured.get(cell.key, Measured()), cell.key == best[i])
        for i, cell in enumerate(row.cells)]}


def _cell(cell: PaperCell, found: Measured, best: bool) -> dict[str, Any]:
    details = filter(None, (difference_text(cell, found), repeats_text(found), params_text(cell, found)))
    return {"key": cell.key, "printed": printed_text(cell), "params": cell.printed.params or "", "best": best,
            "ours": mean_text(cell, found), "mark": shown_mark(found), "sign": mark_text(found),
            "details": " · ".join(details), "hint": found.note or "Show the runs of this cell"}
