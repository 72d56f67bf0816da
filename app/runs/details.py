"""Notes, tags, error and exports of a single run."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import lru_cache

import streamlit as st

from acenode.errors import UserError
from acenode.files import Stamp, stamp
from acenode.runs import notes
from acenode.runs.entry import Entry
from acenode.runs.store import Run

from .. import labels, messages
from ..services import services
from . import export


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
    notes_key, tags_key = _annotation_keys(entry)
    known = sorted({t for e in services().catalogue.entries() for t in e.tags})
    st.text_area("Notes", entry.notes, key=notes_key, max_chars=notes.MAX_NOTES, on_change=_save_annotation,
                 args=(entry.id, "notes", notes_key))
    st.multiselect("Tags", known, entry.tags, accept_new_options=True, key=tags_key, on_change=_save_annotation,
                   args=(entry.id, "tags", tags_key), placeholder="Choose or type a tag")


def _annotation_keys(entry: Entry) -> tuple[str, str]:
    """Return the keys of the widgets for notes and tags. They change, and so the widgets start anew with the content
    of the run's folder, when that is something else: another session has changed it, or it could not be saved.

    The content is the widgets' default and not set in the session, since Streamlit sends a set value once: a page that
    is rerun meanwhile would take the empty widgets for an edit and save that.
    """
    count = st.session_state.setdefault(f"annotations/{entry.id}", 0)
    notes_key, tags_key = f"notes/{entry.id}/{count}", f"tags/{entry.id}/{count}"
    shown = st.session_state.get(notes_key, entry.notes), tuple(st.session_state.get(tags_key, entry.tags))
    if shown == (entry.notes, tuple(entry.tags)):
        return notes_key, tags_key
    st.session_state[f"annotations/{entry.id}"] = count + 1
    return f"notes/{entry.id}/{count + 1}", f"tags/{entry.id}/{count + 1}"


def _save_annotation(run_id: str, field: str, key: str) -> None:
    """Write the edited notes or tags to the run's folder, and leave the other as another session may have set it."""
    try:
        run = services().store.open(run_id)
        new = replace(notes.read_notes(run), **{field: st.session_state[key]})
        notes.write_notes(run, new.notes, new.tags)
    except (UserError, OSError) as error:
        messages.notify(error)
