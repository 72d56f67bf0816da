"""The list of imported sets: open, rename, and delete after asking twice."""

from __future__ import annotations

import streamlit as st

from acenode.data.importing.preview import summarise, summary_text
from acenode.errors import UserError

from .. import messages
from .sets import TASKS, imported_sets, load, open_set, show_error, window_of

CONFIRM, RENAME, ERROR = "your-data/confirm", "your-data/rename", "your-data/error"  # session keys


def show() -> None:
    """Show the sets with their buttons."""
    names = imported_sets().names()
    st.header("Imported sets", anchor=False)
    if error := st.session_state.pop(ERROR, None):
        show_error(error)
    if not names:
        st.caption("None yet. An imported file appears here. It is kept in the data folder, without the file itself.")
    for name in names:
        with st.container(border=True, key=f"set-{name}"):
            _show_set(name)


def _show_set(name: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        try:
            found = load(name)
            text = f"{TASKS[found.task]}: " + summary_text(
                summarise(found), found.time_unit, windows=window_of(name) is not None)
        except UserError as error:
            found, text = None, str(error)
        st.markdown(f"**{messages.escape(name)}**", width="content")
        st.caption(messages.escape(text), width="stretch")
        if found is not None:
            st.button("Open", key=f"your-data/open/{name}", icon=":material/arrow_forward:", on_click=open_set,
                      args=(name,))
            st.button("Rename", key=f"your-data/rename/{name}", icon=":material/edit:", on_click=_remember,
                      args=(RENAME, name))
        st.button("Delete", key=f"your-data/delete/{name}", icon=":material/delete:", on_click=_remember,
                  args=(CONFIRM, name))
    if st.session_state.get(RENAME) == name:
        with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
            new = st.text_input("New name", name, key=f"your-data/new/{name}", width=300, max_chars=40)
            st.button("Save name", key=f"your-data/save/{name}", on_click=_rename, args=(name, new), type="primary")
            st.button("Cancel", key=f"your-data/keep-name/{name}", on_click=_remember, args=(RENAME, None))
        st.caption("Runs and studies keep the old name and can no longer be resumed.")
    if st.session_state.get(CONFIRM) == name:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.warning(f"Delete {messages.escape(name)} for good? Runs that were trained on it stay, but cannot be "
                       "resumed or applied.", icon=":material/delete:")
            st.button("Delete for good", key=f"your-data/sure/{name}", on_click=_delete, args=(name,), type="primary")
            st.button("Keep", key=f"your-data/keep/{name}", on_click=_remember, args=(CONFIRM, None))


def _remember(key: str, value: str | None) -> None:
    st.session_state[key] = value


def _rename(name: str, new: str) -> None:
    _remember(RENAME, None)
    try:
        imported_sets().rename(name, st.session_state.get(f"your-data/new/{name}", new).strip())
    except UserError as error:
        _remember(ERROR, str(error))


def _delete(name: str) -> None:
    _remember(CONFIRM, None)
    try:
        imported_sets().delete(name)
    except UserError as error:
        _remember(ERROR, str(error))
