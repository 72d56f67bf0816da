"""The page Your data: import a file, or, with `?set=NAME`, train on an imported set."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import streamlit as st

from acenode.data.importing.build import ImportedTable, ImportRequest, import_table
from acenode.data.importing.columns import Columns, guess_columns
from acenode.data.importing.store import summarise, summary_text
from acenode.data.importing.table import TableFile, TableHead
from acenode.errors import UserError

from .. import messages, navigation
from . import sets

NONE = "(none)"
LAYOUTS = {"wide": "A column for each variable", "long": "A row for each value"}
FORMS = {"": "Guess", "number": "Numbers", "date": "Dates such as 2024-01-31 15:30", "day-first": "31/01/2024",
         "month-first": "01/31/2024"}
UPLOADS = "your-data/uploads"  # session key: how many files were imported, which empties the widget
CONFIRM, RENAME, ERROR = "your-data/confirm", "your-data/rename", "your-data/error"  # session keys


def show() -> None:
    """Show the set that the URL names, or the import of a file and the list of sets."""
    name = next(iter(navigation.current_values(sets.SET)), "")
    if name and sets.imported_sets().exists(name):
        from . import training

        training.show(name)
        return
    st.title("Your data")
    if name:
        st.warning(f"There is no imported set {messages.escape(name)} here", icon=":material/link_off:")
    st.markdown("Bring a table of series that were measured together, and see whether **attention between its "
                "variables** forecasts them better, and which variables it couples. Nothing leaves this machine.")
    _show_upload()
    _show_sets()


def _show_upload() -> None:
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
        sets.show_error(error)
        return
    try:
        guess = guess_columns(head)
    except UserError:  # a guess never stops the page: everything can be chosen
        guess = Columns("")
    with st.container(border=True):
        st.markdown("**What the columns mean** (guessed, change what is wrong)")
        columns = _ask_columns(head, guess, key)
        request = _ask_task(columns, file.name, key)
    try:
        made = _made(f"{file.file_id} {request!r}", table, request)
    except UserError as error:
        sets.show_error(error)
        return
    sets.show_counts(made.set, made.window)
    ignored = [f"Columns that are not used: {', '.join(made.ignored)}"] if made.ignored else []
    for note in (*ignored, *made.notes):
        st.caption(f":material/info: {messages.escape(note)}")
    _offer_import(made, table, key)
    sets.show_variables(made.set, f"{key}/preview")


@st.cache_resource(max_entries=4, show_spinner="Reading the file")
def _made(key: str, _table: TableFile, _request: ImportRequest) -> ImportedTable:
    return import_table(_table, _request)


def _ask_columns(head: TableHead, guess: Columns, key: str) -> Columns:
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
    options = [*([NONE] if optional else []), *head.columns]
    index = options.index(guess) if guess in options else 0
    chosen = st.selectbox(label, options, index, key=key, help=help)
    return None if chosen == NONE else chosen


def _ask_task(columns: Columns, file: str, key: str) -> ImportRequest:
    default = "classify" if columns.label else "forecast"
    task: Any = st.segmented_control("What to do", list(sets.TASKS), default=default, required=True,
                                     format_func=sets.TASKS.__getitem__, key=f"{key}/task/{bool(columns.label)}",
                                     help="Forecast what follows, fill in missing values, or tell classes of series "
                                          "apart")
    left, middle, right = st.columns(3)
    with left:
        unit = st.text_input("Unit of time", key=f"{key}/unit", placeholder="guessed")
    window = given = None
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
    return ImportRequest(_name(file), columns, task, given or None, window or None, time_unit=unit or "")


def _name(file: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", file.rsplit(".", 1)[0].lower()).strip("-")[:36] or "mine"
    imported, name, number = sets.imported_sets(), plain, 2
    taken = {*imported.names(), *imported.reserved()}
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
    try:
        chosen = replace(made, set=replace(made.set, name=name.strip(), title=name.strip()))
        sets.imported_sets().write(chosen, table if keep else None)
    except UserError as error:
        sets.show_error(error)
        return
    st.session_state[UPLOADS] = st.session_state.get(UPLOADS, 0) + 1
    st.query_params[sets.SET] = name.strip()
    st.rerun()


def _show_sets() -> None:
    names = sets.imported_sets().names()
    st.header("Imported sets", anchor=False)
    if error := st.session_state.pop(ERROR, None):
        sets.show_error(error)
    if not names:
        st.caption("None yet. An imported file appears here. It is kept in the data folder, without the file itself.")
    for name in names:
        with st.container(border=True, key=f"set-{name}"):
            _show_set(name)


def _show_set(name: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        try:
            found = sets.load(name)
            text = f"{sets.TASKS[found.task]}: " + summary_text(
                summarise(found), found.time_unit, windows=sets.window_of(name) is not None)
        except UserError as error:
            found, text = None, str(error)
        st.markdown(f"**{messages.escape(name)}**", width="content")
        st.caption(messages.escape(text), width="stretch")
        if found is not None:
            st.button("Open", key=f"your-data/open/{name}", icon=":material/arrow_forward:",
                      on_click=st.query_params.update, args=({sets.SET: name},))
            st.button("Rename", key=f"your-data/rename/{name}", icon=":material/edit:",
                      on_click=st.session_state.update, args=({RENAME: name},))
        st.button("Delete", key=f"your-data/delete/{name}", icon=":material/delete:",
                  on_click=st.session_state.update, args=({CONFIRM: name},))
    if st.session_state.get(RENAME) == name:
        with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
            st.text_input("New name", name, key=f"your-data/new/{name}", width=300, max_chars=40)
            st.button("Save name", key=f"your-data/save/{name}", type="primary", on_click=_change,
                      args=(RENAME, lambda: sets.imported_sets().rename(
                          name, st.session_state[f"your-data/new/{name}"].strip())))
            st.button("Cancel", key=f"your-data/keep-name/{name}", on_click=st.session_state.update,
                      args=({RENAME: None},))
        st.caption("Runs and studies keep the old name and can no longer be resumed.")
    if st.session_state.get(CONFIRM) == name:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.warning(f"Delete {messages.escape(name)} for good? Runs that were trained on it stay, but cannot be "
                       "resumed or applied.", icon=":material/delete:")
            st.button("Delete for good", key=f"your-data/sure/{name}", type="primary", on_click=_change,
                      args=(CONFIRM, lambda: sets.imported_sets().delete(name)))
            st.button("Keep", key=f"your-data/keep/{name}", on_click=st.session_state.update, args=({CONFIRM: None},))


def _change(asked: str, change: Callable[[], object]) -> None:
    st.session_state[asked] = None
    try:
        change()
    except UserError as error:
        st.session_state[ERROR] = str(error)
