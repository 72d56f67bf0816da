"""Notes, tags, error and exports of a single run."""

from __future__ import annotations

import logging
from functools import lru_cache

import streamlit as st

from acenode.errors import UserError
from acenode.files import Stamp, stamp
from acenode.runs import notes
from acenode.runs.entry import Entry
from acenode.runs.store import Run

from . import export, labels, messages
from .services import services


def show(entry: Entry) -> None:
    """Show what can be edited or exported of a run."""
    st.header(messages.escape(entry.id))
    if entry.error:
        messages.error(entry.error)
    warn_if_changed(entry)
    left, right = st.columns(2, gap="large")
    with left:
        if entry.recorded:
            _show_recorded(entry)
        else:
            _show_annotations(entry)
    with right:
        export.show(entry)


def warn_if_changed(entry: Entry) -> None:
    """Warn if a line of the curves of a run that does not train was changed, on the page and once in the log."""
    if not entry.busy and (changed := _changed_metrics(entry.run, stamp(entry.path / "metrics.jsonl"))):
        st.warning(messages.escape(changed), icon=":material/warning:")


@lru_cache(maxsize=256)
def _changed_metrics(run: Run, at: Stamp | None) -> str:
    """Check a file with this stamp, and log what was changed."""
    changed = run.changed_metrics() if at is not None else ""
    if changed:
        logging.getLogger(__name__).warning("%s: %s", run.id, changed)
    return changed


def _show_recorded(entry: Entry) -> None:
    """Say where a recorded run comes from; its notes cannot be edited."""
    st.markdown(f"**Recorded run**: {messages.escape(labels.provenance(entry))}")
    if entry.data_note:
        st.markdown(messages.escape(f"Data: {entry.data_note}"))
    st.caption("Recorded runs come with the project and cannot be changed. **Run again** and **Repeat with changes** "
               "train a new run with these settings.")


def _show_annotations(entry: Entry) -> None:
    """Show notes and tags, to edit."""
    _load_annotations(entry)
    known = sorted({t for e in services().catalogue.entries() for t in e.tags})
    st.text_area("Notes", key=f"notes/{entry.id}", max_chars=notes.MAX_NOTES, on_change=_save_annotations,
                 args=(entry.id,))
    st.multiselect("Tags", known, accept_new_options=True, key=f"tags/{entry.id}", on_change=_save_annotations,
                   args=(entry.id,), placeholder="Choose or type a tag")


def _load_annotations(entry: Entry) -> None:
    """Fill the widgets from the run's folder when they are new, or when another session has changed the notes."""
    is_new = f"notes/{entry.id}" not in st.session_state  # Streamlit drops the state of widgets that were not shown
    if is_new or st.session_state.get(f"loaded/{entry.id}") != (entry.notes, entry.tags):
        st.session_state[f"loaded/{entry.id}"] = (entry.notes, entry.tags)
        st.session_state[f"notes/{entry.id}"] = entry.notes
        st.session_state[f"tags/{entry.id}"] = list(entry.tags)


def _save_annotations(run_id: str) -> None:
    """Write notes and tags to the run's folder. Only an edit writes: sessions do not overwrite each other."""
    try:
        notes.write_notes(services().store.open(run_id), st.session_state[f"notes/{run_id}"],
                          st.session_state[f"tags/{run_id}"])
    except (UserError, OSError) as error:
        messages.notify(error)
    st.session_state.pop(f"loaded/{run_id}", None)
