"""Runs: all of them, with what can be done to one or to several."""

from __future__ import annotations

import time
from collections.abc import Callable

import streamlit as st

from acenode import experiments
from acenode.errors import UserError
from acenode.runs import notes
from acenode.runs.catalogue import Entry
from acenode.runs.store import Run

from . import export, filters, labels, navigation, say
from .address import chosen_first
from .lab import lab

RESUMABLE = ("stopped", "failed", "interrupted")


def show() -> None:
    st.title("Runs")
    _workers()
    entries = lab().catalogue.entries()
    if not entries:
        st.info("There are no runs yet. They appear here as soon as one is started, in the app or with `acenode "
                "train`.", icon=":material/list:")
        st.page_link(navigation.home(), label="Train the demo", icon=":material/play_arrow:")
        return
    fitting = filters.show(entries)
    st.caption(f"{len(fitting)} of {len(entries)} runs in {say.plain(str(lab().store.root))}. "
               "Click a column's head to sort.")
    chosen = _table(fitting)
    if not chosen:
        st.caption("Choose runs by their left edge to stop, resume, annotate, export, compare or delete them.")
        return
    _actions(chosen)
    if len(chosen) > 1:
        st.caption("Notes, tags, exports and repeating are for one run at a time.")
    elif chosen[0].state != "unreadable":
        _one(chosen[0])


def _workers() -> None:
    """How many runs a device trains at a time."""
    with st.expander("Devices", icon=":material/memory:"):
        for device in lab().launcher.read_outs():
            with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
                st.markdown(f"**{say.plain(device.title)}**", width="content")
                key = f"workers/{device.name}"
                st.session_state[key] = device.workers  # as it is now, whoever changed it
                st.number_input("runs at a time", 1, 64, key=key, width=160, on_change=_set_workers,
                                args=(device.name,))
                if device.memory_used is not None and device.memory_total:
                    st.caption(f"{device.memory_used / 2**30:.1f} of {device.memory_total / 2**30:.1f} GiB in use",
                               width="content")
                if device.utilisation is not None:
                    st.caption(f"{100 * device.utilisation:.0f}% busy", width="content")


def _set_workers(device: str) -> None:
    lab().launcher.set_workers(device, int(st.session_state[f"workers/{device}"]))


def _table(entries: list[Entry]) -> list[Entry]:
    names = [e.id for e in entries]
    rows = [{"state": f"{labels.ICONS[e.state]} {e.state}", "experiment": e.experiment or "", "run": labels.group(e)
             if e.state != "unreadable" else e.error or "", "data": labels.data(e), "seed": e.seed,
             "progress": e.progress, "metric": labels.measure_of(e).title, "test": e.value, "validation": e.best,
             "time": e.seconds,
             "created": time.strftime("%Y-%m-%d %H:%M", time.localtime(e.created)) if e.created else "",
             "tags": list(e.tags), "notes": e.notes, "id": e.id} for e in entries]
    state = st.dataframe(
        rows, hide_index=True, height=min(38 + 35 * max(len(rows), 1), 480), on_select="rerun",
        selection_mode="multi-row", key=f"runs/{hash(tuple(names))}", selection_default=chosen_first("runs", names, []),
        column_config={"progress": st.column_config.ProgressColumn(min_value=0, max_value=1, format="percent",
                                                                   width="small"),
                       "test": st.column_config.NumberColumn(format="%.4g"),
                       "validation": st.column_config.NumberColumn(format="%.4g"),
                       "time": st.column_config.NumberColumn("seconds", format="%.0f"),
                       "run": st.column_config.TextColumn(width="medium"),
                       "tags": st.column_config.ListColumn()})
    chosen = [entries[i] for i in state["selection"]["rows"] if i < len(entries)]
    text = ",".join(e.id for e in chosen)
    if st.query_params.get("runs", "") != text:
        if text:
            st.query_params["runs"] = text
        else:
            st.query_params.pop("runs", None)
    return chosen


def _actions(chosen: list[Entry]) -> None:
    launcher = lab().launcher
    with st.container(horizontal=True, gap="small"):
        busy = [e for e in chosen if e.busy]
        still = [e for e in chosen if e.state in RESUMABLE]
        readable = [e for e in chosen if e.state != "unreadable"]
        if st.button("Stop", icon=":material/stop:", disabled=not busy, key="runs/stop"):
            _each(busy, launcher.stop)
        if st.button("Resume", icon=":material/play_arrow:", disabled=not still, key="runs/resume"):
            _each(still, launcher.resume)
        if st.button("Compare", icon=":material/compare_arrows:", disabled=not readable, key="runs/compare"):
            st.switch_page(navigation.compare(), query_params={"runs": ",".join(e.id for e in readable)})
        single = readable[0] if len(readable) == 1 and readable[0].experiment in experiments.EXPERIMENTS else None
        if st.button("Repeat with changes", icon=":material/edit:", disabled=not single, key="runs/repeat") and single:
            st.switch_page(navigation.experiment(single.experiment), query_params={"from": single.id})
        waiting = launcher.queue()
        if len(chosen) == 1 and chosen[0].id in waiting:
            if st.button("First in the queue", icon=":material/vertical_align_top:", key="runs/first"):
                _each(chosen, lambda run: launcher.move(run, 0))
            if st.button("One place later", icon=":material/arrow_downward:", key="runs/later"):
                _each(chosen, lambda run: launcher.move(run, waiting.index(run.id) + 1))
        if st.button("Delete", icon=":material/delete:", disabled=bool(busy), key="runs/delete"):
            st.session_state["deleting"] = [e.id for e in chosen]
    if not set(st.session_state.get("deleting", [])) <= {e.id for e in chosen}:
        _keep()  # of runs that are not chosen any more
    if st.session_state.get("deleting"):
        _delete(st.session_state["deleting"])


def _each(entries: list[Entry], act: Callable[[Run], None]) -> None:
    for entry in entries:
        try:
            act(lab().store.open(entry.id))
        except (UserError, OSError) as error:  # somebody else was faster
            say.late(error)
    st.rerun()


def _keep() -> None:
    st.session_state.pop("deleting", None)


@st.dialog("Delete runs?", on_dismiss=_keep)
def _delete(names: list[str]) -> None:
    """Asked twice: the button, and here."""
    st.markdown(f"**{len(names)} run{'s' * (len(names) > 1)}** with all curves, snapshots and checkpoints will be gone "
                "for good:")
    st.code("\n".join(names[:20]) + ("\n…" if len(names) > 20 else ""), language=None)
    with st.container(horizontal=True):
        if st.button("Delete for good", type="primary", icon=":material/delete_forever:", key="delete/yes"):
            for name in names:
                try:
                    lab().launcher.delete(lab().store.folder(name))
                except (UserError, OSError) as error:
                    say.late(error)
            _keep()
            st.rerun()
        if st.button("Keep", key="delete/no"):
            _keep()
            st.rerun()


def _annotate(name: str) -> None:
    """Keep what was just written; only whoever writes changes anything."""
    try:
        notes.write_notes(lab().store.open(name), st.session_state[f"notes/{name}"], st.session_state[f"tags/{name}"])
    except (UserError, OSError) as error:
        say.late(error)
    st.session_state.pop(f"said/{name}", None)


def _one(entry: Entry) -> None:
    """Notes, tags and exports of one run."""
    st.subheader(say.plain(entry.id))
    if entry.error:
        say.trouble(entry.error)
    left, right = st.columns(2, gap="large")
    with left:
        fresh = f"notes/{entry.id}" not in st.session_state  # the widgets forget what they held while they were away
        if fresh or st.session_state.get(f"said/{entry.id}") != (entry.notes, entry.tags):
            st.session_state[f"said/{entry.id}"] = (entry.notes, entry.tags)
            st.session_state[f"notes/{entry.id}"] = entry.notes
            st.session_state[f"tags/{entry.id}"] = list(entry.tags)
        known = sorted({t for e in lab().catalogue.entries() for t in e.tags})
        st.text_area("Notes", key=f"notes/{entry.id}", max_chars=notes.MAX_NOTES, on_change=_annotate,
                     args=(entry.id,))
        st.multiselect("Tags", known, accept_new_options=True, key=f"tags/{entry.id}", on_change=_annotate,
                       args=(entry.id,), placeholder="type a new one, or choose")
    with right:
        export.show(entry)
