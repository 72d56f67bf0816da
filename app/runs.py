"""Runs: all of them, with what can be done to one or to several."""

from __future__ import annotations

import time

import streamlit as st

from acenode import experiments, notes
from acenode.catalogue import Entry
from acenode.errors import UserError
from app import export, filters, labels, navigation, say
from app.lab import lab

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
    if len(chosen) == 1 and chosen[0].state != "unreadable":
        _one(chosen[0])


def _workers() -> None:
    """How many runs a device trains at a time."""
    with st.expander("Devices", icon=":material/memory:"):
        for device in lab().launcher.read_outs():
            with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
                st.markdown(f"**{say.plain(device.title)}**", width="content")
                count = st.number_input("runs at a time", 1, 64, device.workers, key=f"workers/{device.name}",
                                        width=160)
                if count != device.workers:
                    lab().launcher.set_workers(device.name, int(count))
                if device.memory_used is not None and device.memory_total:
                    st.caption(f"{device.memory_used / 2**30:.1f} of {device.memory_total / 2**30:.1f} GiB in use",
                               width="content")
                if device.utilisation is not None:
                    st.caption(f"{100 * device.utilisation:.0f}% busy", width="content")


def _table(entries: list[Entry]) -> list[Entry]:
    names = [e.id for e in entries]
    wanted = set(st.query_params.get("runs", "").split(","))
    rows = [{"state": f"{labels.ICONS[e.state]} {e.state}", "experiment": e.experiment or "", "run": labels.group(e)
             if e.state != "unreadable" else e.error or "", "data": e.data or "", "seed": e.seed,
             "progress": e.progress, "test": None if e.value is None else round(e.value, 4),
             "validation": None if e.best is None else round(e.best, 4), "time": e.seconds,
             "created": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(e.created)) if e.created else "",
             "tags": list(e.tags), "notes": e.notes, "id": e.id} for e in entries]
    state = st.dataframe(
        rows, hide_index=True, height=min(38 + 35 * max(len(rows), 1), 480), on_select="rerun",
        selection_mode="multi-row", key=f"runs/{hash(tuple(names))}",
        selection_default={"selection": {"rows": [i for i, n in enumerate(names) if n in wanted]}},
        column_config={"progress": st.column_config.ProgressColumn(min_value=0, max_value=1, format="percent"),
                       "time": st.column_config.NumberColumn("seconds", format="%.0f"),
                       "run": st.column_config.TextColumn(width="large"),
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
        busy = [e for e in chosen if e.state in ("running", "queued")]
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
    if st.session_state.get("deleting"):
        _delete(st.session_state["deleting"])


def _each(entries: list[Entry], act: object) -> None:
    for entry in entries:
        try:
            act(lab().store.open(entry.id))  # type: ignore[operator]
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


def _one(entry: Entry) -> None:
    """Notes, tags and exports of one run."""
    st.subheader(say.plain(entry.id))
    if entry.error:
        say.trouble(entry.error)
    left, right = st.columns(2, gap="large")
    with left:
        text = st.text_area("Notes", entry.notes, key=f"notes/{entry.id}", max_chars=notes.LONGEST_NOTES)
        tags = st.multiselect("Tags", sorted({t for e in lab().catalogue.entries() for t in e.tags}), list(entry.tags),
                              accept_new_options=True, key=f"tags/{entry.id}", placeholder="type a new one, or choose")
        if (text, tuple(tags)) != (entry.notes, entry.tags):
            try:
                notes.write_notes(lab().store.open(entry.id), text, tags)
                st.rerun()
            except (UserError, OSError) as error:
                say.refused(error)
    with right:
        export.show(entry)
