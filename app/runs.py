"""The page that lists all runs: filter, choose, stop, resume, compare, repeat, delete; edit and export one of them."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import streamlit as st

from acenode import experiments
from acenode.errors import UserError
from acenode.export import export
from acenode.files import Stamp, stamp
from acenode.runs.entry import MAX_NOTES, Entry, read_notes, write_notes
from acenode.runs.store import Run

from . import labels, messages, navigation, run_tables
from .services import services

TABLE_HEIGHT = 480  # pixels
COLUMNS = ["Open", "State", "Method", "Seed", "Created", "Experiment", "Test", "Metric and unit", "Settings",
           "Progress", "Validation", "Data", "Training time (s)", "Device", "Code", "Tags", "Notes", "Id"]
EXPORTS = {"html": "HTML report", "csv": "CSV tables", "tensorboard": "TensorBoard events"}


def show() -> None:
    st.title("Runs")
    with st.expander("Devices", icon=":material/memory:"):
        _show_devices()
    entries = services().catalogue.entries()
    recorded = sum(e.recorded for e in entries)
    if recorded == len(entries):
        own = " of your own" * bool(entries)
        st.info(f"No runs{own} yet. A run appears here as soon as it is started, in the app or with "
                f"`{messages.program()} train`.", icon=":material/list:")
        st.page_link(navigation.page("home"), label="Train the demo", icon=":material/play_arrow:")
    if not entries:
        return
    navigation.warn_about_missing(navigation.linked_runs(), {e.id for e in entries})
    filtered = run_tables.filtered(entries)
    place = f" in {messages.escape(str(services().store.root))}"
    where = f": {len(entries) - recorded}{place}, and {recorded} recorded ones" if recorded else place
    st.caption(f"{len(filtered)} of {len(entries)} runs{where}. Click a column header to sort.")
    chosen = run_tables.select("runs", filtered, COLUMNS, [], TABLE_HEIGHT) if filtered else []
    navigation.keep_in_url([e.id for e in chosen])
    if not filtered:
        st.info("No run matches. Remove a filter above, or search for fewer words.", icon=":material/filter_alt_off:")
    elif not chosen:
        st.caption("Select runs with the checkboxes on the left to stop, resume, annotate, export, compare or delete "
                   "them.")
    else:
        _show_actions(chosen)
        if len(chosen) > 1:
            st.caption("Select a single run to edit notes and tags, to export it or to repeat it.")
        elif chosen[0].state != "unreadable":
            _show_details(chosen[0])


def _show_devices() -> None:
    def set_workers(device: str) -> None:
        services().launcher.set_workers(device, int(st.session_state[f"workers/{device}"]))

    for device in services().launcher.device_states():
        with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
            st.markdown(f"**{messages.escape(device.title)}**", width="content")
            key = f"workers/{device.name}"
            st.session_state[key] = device.workers  # another session may have changed it
            st.number_input("Runs at a time", 1, 64, key=key, width=160, on_change=set_workers, args=(device.name,),
                            help="Several runs are trained in processes of their own, each with about 0.2 GB of memory "
                                 "more.")
            if device.memory_used is not None and device.memory_total:
                st.caption(f"{device.memory_used / 2**30:.1f} of {device.memory_total / 2**30:.1f} GiB in use",
                           width="content")
            if device.utilisation is not None:
                st.caption(f"{100 * device.utilisation:.0f}% utilisation", width="content")


def _show_actions(chosen: list[Entry]) -> None:
    launcher = services().launcher
    with st.container(horizontal=True, gap="small"):
        own = [e for e in chosen if not e.recorded]
        busy = [e for e in own if e.busy]
        resumable = [e for e in own if e.resumable]
        readable = [e for e in chosen if e.state != "unreadable"]
        if own and st.button("Stop", icon=":material/stop:", disabled=not busy, key="runs/stop"):
            _for_each(busy, launcher.stop)
        if own and st.button("Resume", icon=":material/play_arrow:", disabled=not resumable, key="runs/resume"):
            with launcher.queue_together():
                _for_each(resumable, launcher.resume)
        if st.button("Compare", icon=":material/compare_arrows:", disabled=not readable, key="runs/compare"):
            st.switch_page(navigation.page("compare"), query_params={"runs": ",".join(e.id for e in readable)})
        single = readable[0] if len(readable) == 1 and experiments.find(readable[0].experiment) else None
        if len(chosen) == 1 and single and single.state == "finished" and \
                st.button("Run again", icon=":material/replay:", key="runs/again",
                          help="Starts a new run with the same configuration"):
            _for_each([single], lambda run: messages.notify(f"Queued {launcher.retry(run).id}"))
        if st.button("Repeat with changes", icon=":material/edit:", disabled=not single, key="runs/repeat") and single:
            st.switch_page(navigation.page(single.experiment), query_params={"from": single.id})
        queue = launcher.queue()
        if len(chosen) == 1 and chosen[0].id in queue:
            place = queue.index(chosen[0].id)
            st.caption(f"{labels.ordinal(place + 1)} in queue", width="content")
            for title, icon, key, position in (("Move to front", "vertical_align_top", "first", 0),
                                               ("Move earlier", "arrow_upward", "earlier", place - 1),
                                               ("Move later", "arrow_downward", "later", place + 1)):
                if st.button(title, icon=f":material/{icon}:", key=f"runs/{key}",
                             disabled=not 0 <= position < len(queue) or position == place):
                    _for_each(chosen, lambda run, to=position: launcher.move(run, to))  # type: ignore[misc]
        if own and st.button("Delete", icon=":material/delete:", disabled=bool(busy), key="runs/delete"):
            st.session_state["deleting"] = [e.id for e in own]
    if not set(st.session_state.get("deleting", [])) <= {e.id for e in chosen}:
        _cancel_deletion()  # the selection has changed
    if st.session_state.get("deleting"):
        _confirm_deletion(st.session_state["deleting"])


def _for_each(entries: list[Entry], action: Callable[[Run], object]) -> None:
    for entry in entries:
        messages.attempt(lambda run_id: action(services().store.open(run_id)), entry.id)
    st.rerun()


def _cancel_deletion() -> None:
    st.session_state.pop("deleting", None)


@st.dialog("Delete runs?", on_dismiss=_cancel_deletion)
def _confirm_deletion(ids: list[str]) -> None:
    st.markdown(f"**{messages.count(len(ids), 'run')}** with all curves, snapshots and checkpoints will be deleted "
                "permanently:")
    st.code("\n".join(ids[:20]) + ("\n…" if len(ids) > 20 else ""), language=None)
    with st.container(horizontal=True):
        sure = st.button("Delete permanently", type="primary", icon=":material/delete_forever:", key="delete/yes")
        cancelled = st.button("Cancel", key="delete/no")
    if sure:
        for run_id in ids:
            messages.attempt(lambda name: services().launcher.delete(services().store.folder(name)), run_id)
    if sure or cancelled:
        _cancel_deletion()
        st.rerun()


def _show_details(entry: Entry) -> None:
    st.header(messages.escape(entry.id))
    if entry.error:
        messages.error(entry.error)
    warn_if_changed(entry)
    left, right = st.columns(2, gap="large")
    with left:
        if entry.recorded:
            st.markdown(f"**Recorded run**: {messages.escape(labels.provenance(entry))}")
            if entry.data_note:
                st.markdown(messages.escape(f"Data: {entry.data_note}"))
            st.caption("Recorded runs come with the project and cannot be changed. **Run again** and **Repeat with "
                       "changes** train a new run with these settings.")
        else:
            notes_key, tags_key = _annotation_keys(entry)
            known = sorted({t for e in services().catalogue.entries() for t in e.tags})
            st.text_area("Notes", entry.notes, key=notes_key, max_chars=MAX_NOTES,
                         on_change=messages.attempt, args=(_save_annotation, "notes", notes_key, entry.id))
            st.multiselect("Tags", known, entry.tags, accept_new_options=True, key=tags_key,
                           on_change=messages.attempt, args=(_save_annotation, "tags", tags_key, entry.id),
                           placeholder="Choose or type a tag")
    with right:
        st.markdown("**Export**")
        for to, title in EXPORTS.items():
            with st.container(horizontal=True, vertical_alignment="center"):
                _offer_export(entry, to, title)


def warn_if_changed(entry: Entry) -> None:
    """Warn if a line of the curves of a run that does not train was changed, on the page and once in the log."""
    if not entry.busy and (changed := _changed_metrics(entry.run, stamp(entry.path / "metrics.jsonl"))):
        messages.warning(changed)


@lru_cache(maxsize=256)
def _changed_metrics(run: Run, at: Stamp | None) -> str:
    changed = run.changed_metrics() if at is not None else ""
    if changed:
        logging.getLogger(__name__).warning("%s: %s", run.id, changed)
    return changed


def _annotation_keys(entry: Entry) -> tuple[str, str]:
    """Return the keys of the widgets for notes and tags, which change when the run's folder has other content: another
    session has changed it, or it could not be saved. The content is the widgets' default and not set in the session,
    since Streamlit sends a set value once: a page that is rerun meanwhile would save the empty widgets."""
    count = st.session_state.get(f"annotations/{entry.id}", 0)
    notes = st.session_state.get(f"notes/{entry.id}/{count}", entry.notes)
    tags = st.session_state.get(f"tags/{entry.id}/{count}", entry.tags)
    if (notes, tuple(tags)) != (entry.notes, tuple(entry.tags)):
        count = st.session_state[f"annotations/{entry.id}"] = count + 1
    return f"notes/{entry.id}/{count}", f"tags/{entry.id}/{count}"


def _save_annotation(field: str, key: str, run_id: str) -> None:
    """Write the edited notes or tags to the run's folder, and leave the other as another session may have set it."""
    run = services().store.open(run_id)
    new = replace(read_notes(run), **{field: st.session_state[key]})
    write_notes(run, new.notes, new.tags)


def _offer_export(entry: Entry, to: str, title: str) -> None:
    if st.button(f"Create {title}", key=f"make/{to}/{entry.id}", icon=":material/build:"):
        try:
            with st.spinner(f"Writing {title}"):
                st.session_state["export"] = (entry.id, to, *pack(entry, to))
        except (UserError, OSError) as error:
            messages.error(error)
    made = st.session_state.get("export")
    if made and made[:2] == (entry.id, to):
        st.download_button("Download", made[3], made[2], key=f"take/{to}/{entry.id}", type="primary",
                           icon=":material/download:", on_click="ignore")


def pack(entry: Entry, to: str) -> tuple[str, bytes]:
    """Export a run and return the file's name and content; a folder becomes a zip file."""
    with tempfile.TemporaryDirectory() as folder:
        name = f"{entry.id}.html" if to == "html" else entry.id
        path = export(services().store.open(entry.id), to, Path(folder) / name)
        if path.is_dir():
            path = Path(shutil.make_archive(f"{folder}/{entry.id}-{to}", "zip", folder, entry.id))
        return path.name, path.read_bytes()
