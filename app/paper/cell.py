"""The opened cell of a table: its runs, and curves and player of one of them."""

from __future__ import annotations

import time

import pandas as pd
import streamlit as st

from acenode.compare.cells import (
    Measured,
    cell_digits,
    counts,
    difference_text,
    mark_text,
    mean_text,
    measure,
    printed_text,
    repeats_text,
    with_other_settings,
)
from acenode.compare.paper import PaperCell, PaperTable
from acenode.runs.entry import Entry

from .. import components, labels, messages
from ..experiment import live_runs
from . import queue as paper_queue
from .tables import OpenedCell

CELL, TABLE = "cell", "table"  # the query parameters with the key of the opened cell and the name of its table
TABLE_HEIGHT = 320  # pixels
COLUMNS = {
    "Open": st.column_config.LinkColumn("", display_text="Open", width="small"),
    "Epochs": st.column_config.NumberColumn(width="small"),
    "Seed": st.column_config.NumberColumn(width="small"),
    "Fold": st.column_config.NumberColumn(width="small"),
    "Snapshots": st.column_config.NumberColumn(
        width="small", help="Of state h(t) and attention a(t), for the player; some recorded runs have none."),
}


def show(opened: OpenedCell, measured: Measured, entries: list[Entry]) -> None:
    """Show the runs of a cell, player and curves of the selected one, and what is missing."""
    table, cell = opened.table, opened.cell
    with st.container(border=True, key="paper-cell"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.subheader(messages.escape(f"{table.title}: {_title(table, cell)}"), anchor=False)
            st.button("Close", icon=":material/close:", key="paper/close", on_click=close)
        st.markdown(messages.escape(_summary(cell, measured)))
        busy = sum(entry.busy and counts(cell, entry) for entry in entries)
        if busy:
            st.caption(f"{busy} run{'s' * (busy > 1)} of this cell queued or running")
        shown = _choose(cell, measured) if measured.entries else None
        if shown is None:
            st.info(f"No run counts for this cell yet. {_others(cell, entries)}Train them below.",
                    icon=":material/flag:")
        else:
            _show_run(shown)
        paper_queue.show(cell, table, entries)


def _others(cell: PaperCell, entries: list[Entry]) -> str:
    """Link to the runs of the method that do not count because of their settings; an empty text if there are none."""
    found = with_other_settings(cell, entries)
    if not found:
        return ""
    runs = f"{len(found)} run{'s' * (len(found) > 1)} with other settings or fewer epochs"
    link = f"/{cell.experiment}?runs={','.join(entry.id for entry in found)}"
    return f"There {'are' if len(found) > 1 else 'is'} [{runs}]({link}). "


def close() -> None:
    """Forget the opened cell."""
    st.query_params.pop(CELL, None)
    st.query_params.pop(TABLE, None)


def _title(table: PaperTable, cell: PaperCell) -> str:
    """Return the row and, if there are several, the column of a cell."""
    row, column = next((row.title, name) for row in table.rows
                       for name, other in zip(table.columns, row.cells, strict=True) if other == cell)
    return f"{row}, {column}" if len(table.columns) > 1 else row


def _summary(cell: PaperCell, measured: Measured) -> str:
    """Say in one line what the paper prints, what was measured and how they compare."""
    unit = cell.format.unit
    words = [f"Paper {printed_text(cell)}{unit}"]
    if measured.n:
        words += [f"ours {mean_text(cell, measured)}{unit}", difference_text(cell, measured),
                  mark_text(measured), repeats_text(measured).partition(",")[0]]
    else:
        words.append(mark_text(measured))
    text = " · ".join(filter(None, words))
    return f"{text}. {_capital(measured.note)}." if measured.n and measured.note else f"{text}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _choose(cell: PaperCell, measured: Measured) -> Entry:
    """Show the runs in a table and return the selected one, at first the first."""
    runs = list(measured.entries)
    if cell.folds:
        runs.sort(key=lambda entry: int(entry.config.get("fold") or 0))
    table = pd.DataFrame([_row(cell, entry) for entry in runs])
    if not cell.folds:
        table = table.drop(columns="Fold")
    ids = [entry.id for entry in runs]
    state = st.dataframe(table, hide_index=True, height=min(38 + 35 * len(runs), TABLE_HEIGHT), on_select="rerun",
                         selection_mode="single-row", key=f"paper/runs/{cell.key}/{hash(tuple(ids))}",
                         selection_default={"selection": {"rows": [0]}}, column_config=COLUMNS, placeholder="")
    rows = [i for i in state["selection"]["rows"] if i < len(runs)]
    return runs[rows[0] if rows else 0]


def _row(cell: PaperCell, entry: Entry) -> dict[str, object]:
    value = measure(cell, [entry]).mean
    return {
        "Open": f"/{entry.experiment}?runs={entry.id}",
        _capital(cell.format.title): "–" if value is None else f"{value:.{cell_digits(cell)}f}{cell.format.unit}",
        "Seed": entry.seed, "Fold": entry.config.get("fold"), "Epochs": entry.epochs,
        "Snapshots": len(entry.run.snapshots()),
        "Source": "◆ recorded" if entry.recorded else "own",
        "Date": time.strftime("%Y-%m-%d", time.localtime(entry.created)) if entry.created else "",
        "Device": entry.device, "Training time": labels.duration(entry.seconds), "Run": entry.id}


def _show_run(entry: Entry) -> None:
    """Show curves and player of a run."""
    runs = live_runs.for_charts([entry])
    what = "State h(t) and attention a(t)" if _has_attention(entry) else "State h(t)"
    st.markdown(f"**{what}** of {messages.escape(labels.label(entry))}")
    components.player("paper-player", runs)
    st.markdown("**Training curves**")
    components.curves("paper-curves", runs, labels.measure_of(entry))


def _has_attention(entry: Entry) -> bool:
    return entry.config.get("attention") not in (None, "none")
