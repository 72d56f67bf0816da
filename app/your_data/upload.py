"""Upload a file: guessed columns that can be corrected, a preview, and the import."""

from __future__ import annotations

import re
from typing import Any

import streamlit as st

from acenode.data.importing.build import ImportedTable, ImportRequest, import_table
from acenode.data.importing.columns import Columns, guess_columns
from acenode.data.importing.table import TableFile, TableHead
from acenode.errors import UserError

from .. import messages
from . import preview as your_data_preview
from .sets import TASKS, imported_sets, open_set, show_error

NONE = "(none)"
LAYOUTS = {"wide": "A column for each variable", "long": "A row for each value"}
FORMS = {"": "Guess", "number": "Numbers", "date": "Dates such as 2024-01-31 15:30", "day-first": "31/01/2024",
         "month-first": "01/31/2024"}
UPLOADS = "your-data/uploads"  # session key: how many files were imported, which empties the widget


def show() -> None:
    """Show the upload, and for a file its columns and preview."""
    file = st.file_uploader("CSV or Parquet file", key=f"your-data/file/{st.session_state.get(UPLOADS, 0)}", help=(
        "One column has the time. Then either a column for each variable, or one with the variable's name and one with "
        "its value. Columns that name series and give each a label are optional. Blank cells are gaps. At most 200 "
        "MB."))
    if file is None:
        return
    key = f"your-data/{file.file_id}"
    try:
        table = TableFile(file, file.name)
        head = table.head()
    except UserError as error:
        show_error(error)
        return
    guess = _guess(head)
    with st.container(border=True):
        st.markdown("**What the columns mean** (guessed, change what is wrong)")
        columns = _ask_columns(head, guess, key)
        request = _ask_task(columns, file.name, key)
    try:
        made = _made(f"{file.file_id} {request!r}", table, request)
    except UserError as error:
        show_error(error)
        return
    your_data_preview.show_counts(made.set, made.window)
    ignored = [f"Columns that are not used: {', '.join(made.ignored)}"] if made.ignored else []
    for note in (*ignored, *made.notes):
        st.caption(f":material/info: {messages.escape(note)}")
    _offer_import(made, table, key)
    your_data_preview.show_variables(made.set, f"{key}/preview")


def _guess(head: TableHead) -> Columns:
    try:
        return guess_columns(head)
    except UserError:  # a guess never stops the page: everything can be chosen
        return Columns("")


@st.cache_resource(max_entries=4, show_spinner="Reading the file")
def _made(key: str, _table: TableFile, _request: ImportRequest) -> ImportedTable:
    return import_table(_table, _request)


def _ask_columns(head: TableHead, guess: Columns, key: str) -> Columns:
    """Ask for the role of each column."""
    layout = st.segmented_control("Layout", list(LAYOUTS), default="long" if guess.is_long else "wide",
                                  format_func=LAYOUTS.__getitem__, key=f"{key}/layout", required=True)
    left, middle, right = st.columns(3)
    with left:
        time = _pick("Time", head, guess.time, f"{key}/time", optional=not guess.time)
        form = st.selectbox("Times are", list(FORMS), format_func=FORMS.__getitem__, key=f"{key}/form")
    with middle:
        id = _pick("Series", head, guess.id, f"{key}/id", help="The column that names the series. Without one, all "
                   "rows are one long series, which is cut into windows.")
        label = _pick("Label", head, guess.label, f"{key}/label", help="The column with the class of each series")
    variable = value = None
    variables: tuple[str, ...] = ()
    with right:
        if layout == "long":
            variable = _pick("Variable's name", head, guess.variable, f"{key}/variable")
            value = _pick("Value", head, guess.value, f"{key}/value")
    if layout != "long":
        taken = {time, id, label}
        options = [c for c in head.columns if c not in taken]
        # the key changes with the options: a widget forgets its choice when its options change
        variables = tuple(st.multiselect("Variables", options, [c for c in guess.variables if c in options],
                                         key=f"{key}/variables/{'/'.join(sorted(t or '' for t in taken))}"))
    return Columns(time or "", variables, id, label, variable, value, form or None)  # type: ignore[arg-type]


def _pick(label: str, head: TableHead, guess: str | None, key: str, *, optional: bool = True,
          help: str | None = None) -> str | None:
    options = [*([NONE] if optional or label not in ("Time",) else []), *head.columns]
    index = options.index(guess) if guess in options else 0
    chosen = st.selectbox(label, options, index, key=key, help=help)
    return None if chosen == NONE else chosen


def _ask_task(columns: Columns, file: str, key: str) -> ImportRequest:
    """Ask what to predict, and how series are cut."""
    default = "classify" if columns.label else "forecast"
    task: Any = st.segmented_control("What to do", list(TASKS), default=default, format_func=TASKS.__getitem__,
                                     key=f"{key}/task/{bool(columns.label)}", required=True,
                                     help="Forecast what follows, fill in missing values, or tell classes of series "
                                          "apart")
    left, middle, right = st.columns(3)
    with left:
        unit = st.text_input("Unit of time", key=f"{key}/unit", placeholder="guessed")
    window = stride = given = None
    if task != "classify":
        with middle:
            window = st.number_input("Length of a window", 0.0, value=None, key=f"{key}/window",
                                     placeholder="automatic",
                                     help="Series are cut into windows of this length, in units of time. Automatic: "
                                          "one long series is cut, several are not.")
        with right:
            if task == "forecast":
                given = st.number_input("Given to the forecast", 0.0, value=None, key=f"{key}/given",
                                        placeholder="automatic",
                                        help="How much time of each series or window is seen; the rest is forecast. "
                                             "Automatic: half.")
    return ImportRequest(_name(file), columns, task, given or None, window or None, stride, unit or "")


def _name(file: str) -> str:
    """Return a name for the set of a file."""
    plain = re.sub(r"[^a-z0-9]+", "-", file.rsplit(".", 1)[0].lower()).strip("-")[:36] or "mine"
    sets, name = imported_sets(), plain
    taken = {*sets.names(), *sets.reserved()}
    number = 2
    while name in taken:
        name, number = f"{plain}-{number}", number + 1
    return name


def _offer_import(made: ImportedTable, table: TableFile, key: str) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        name = st.text_input("Name of the set", made.set.name, key=f"{key}/name", width=300, max_chars=40)
        pressed = st.button("Import", type="primary", icon=":material/upload_file:", key=f"{key}/import")
        keep = st.checkbox("Keep a copy of the file", key=f"{key}/keep", help="With the set, in the data folder")
    if not pressed:
        return
    from dataclasses import replace

    try:
        chosen = replace(made, set=replace(made.set, name=name.strip(), title=name.strip()))
        imported_sets().write(chosen, table if keep else None)
    except UserError as error:
        show_error(error)
        return
    st.session_state[UPLOADS] = st.session_state.get(UPLOADS, 0) + 1
    open_set(name.strip())
    st.rerun()
