"""The page that lists all runs: filter, choose, stop, resume, compare, repeat, delete."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from acenode import experiments
from acenode.errors import UserError
from acenode.runs.entry import Entry
from acenode.runs.store import Run

from .. import commands, filters, labels, messages, navigation, run_tables
from ..services import services
from ..url_state import keep_in_url, linked_runs, warn_about_missing
from . import details as run_details

TABLE_HEIGHT = 480  # pixels
COLUMNS = ["Open", "State", "Method", "Seed", "Created", "Experiment", "Test", "Metric and unit", "Settings",
           "Progress", "Validation", "Data", "Training time (s)", "Device", "Code", "Tags", "Notes", "Id"]


def show() -> None:
    """Show the page."""
    st.title("Runs")
    _show_devices()
    entries = services().catalogue.entries()
    if not any(not e.recorded for e in entries):
        own = " of your own" * bool(entries)
        st.info(f"No runs{own} yet. A run appears here as soon as it is started, in the app or with "
                f"`{commands.program()} train`.", icon=":material/list:")
        st.page_link(navigation.home(), label="Train the demo", icon=":material/play_arrow:")
    if not entries:
        return
    warn_about_missing(linked_runs(), {e.id for e in entries})
    filtered = filters.show(entries)
    st.caption(f"{len(filtered)} of {len(entries)} runs{_places(entries)}. Click a column header to sort.")
    chosen = _choose(filtered)
    if not filtered:
        st.info("No run matches. Remove a filter above, or search for fewer words.", icon=":material/filter_alt_off:")
        return
    if not chosen:
        st.caption("Select runs with the checkboxes on the left to stop, resume, annotate, export, compare or delete "
                   "them.")
        return
    _show_actions(chosen)
    if len(chosen) > 1:
        st.caption("Select a single run to edit notes and tags, to export it or to repeat it.")
    elif chosen[0].state != "unreadable":
        run_details.show(chosen[0])


def _places(entries: list[Entry]) -> str:
    """Say where the runs are: in the folder, and how many are recorded ones."""
    recorded = sum(e.recorded for e in entries)
    place = f" in {messages.escape(str(services().store.root))}"
    return f": {len(entries) - recorded}{place}, and {recorded} recorded ones" if recorded else place


def _show_devices() -> None:
    """Show each device's load and how many runs it trains at a time."""
    with st.expander("Devices", icon=":material/memory:"):
        for device in services().launcher.device_states():
            with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
                st.markdown(f"**{messages.escape(device.title)}**", width="content")
                key = f"workers/{device.name}"
                st.session_state[key] = device.workers  # another session may have changed it
                st.number_input("Runs at a time", 1, 64, key=key, width=160, on_change=_set_workers,
                                args=(device.name,), help="Several runs are trained in processes of their own, "
                                                          "each with about 0.2 GB of memory more.")
                if device.memory_used is not None and device.memory_total:
                    st.caption(f"{device.memory_used / 2**30:.1f} of {device.memory_total / 2**30:.1f} GiB in use",
                               width="content")
                if device.utilisation is not None:
                    st.caption(f"{100 * device.utilisation:.0f}% utilisation", width="content")


def _set_workers(device: str) -> None:
    services().launcher.set_workers(device, int(st.session_state[f"workers/{device}"]))


def _choose(entries: list[Entry]) -> list[Entry]:
    """Show the table and return the selected runs, which the URL keeps."""
    chosen = run_tables.select("runs", entries, COLUMNS, [], TABLE_HEIGHT) if entries else []
    if chosen:
        keep_in_url([e.id for e in chosen])
    else:
        st.query_params.pop("runs", None)
    return chosen


def _show_actions(chosen: list[Entry]) -> None:
    """Show the buttons that act on the selected runs."""
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
            st.switch_page(navigation.compare(), query_params={"runs": ",".join(e.id for e in readable)})
        single = readable[0] if len(readable) == 1 and experiments.find(readable[0].experiment) else None
        if len(chosen) == 1 and single and single.state == "finished" and \
                st.button("Run again", icon=":material/replay:", key="runs/again",
                          help="Starts a new run with the same configuration"):
            _for_each([single], lambda run: messages.notify(f"Queued {launcher.retry(run).id}"))
        if st.button("Repeat with changes", icon=":material/edit:", disabled=not single, key="runs/repeat") and single:
            st.switch_page(navigation.experiment(single.experiment), query_params={"from": single.id})
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


def _for_each(entries: list[Entry], action: Callable[[Run], None]) -> None:
    """Apply an action to runs; an error, such as a run that has ended meanwhile, is a notice."""
    for entry in entries:
        try:
            action(services().store.open(entry.id))
        except (UserError, OSError) as error:
            messages.notify(error)
    st.rerun()


def _cancel_deletion() -> None:
    st.session_state.pop("deleting", None)


@st.dialog("Delete runs?", on_dismiss=_cancel_deletion)
def _confirm_deletion(ids: list[str]) -> None:
    """Ask for confirmation, then delete."""
    st.markdown(f"**{len(ids)} run{'s' * (len(ids) > 1)}** with all curves, snapshots and checkpoints will be deleted "
                "permanently:")
    st.code("\n".join(ids[:20]) + ("\n…" if len(ids) > 20 else ""), language=None)
    with st.container(horizontal=True):
        if st.button("Delete permanently", type="primary", icon=":material/delete_forever:", key="delete/yes"):
            for run_id in ids:
                try:
                    services().launcher.delete(services().store.folder(run_id))
                except (UserError, OSError) as error:
                    messages.notify(error)
            _cancel_deletion()
            st.rerun()
        if st.button("Cancel", key="delete/no"):
            _cancel_deletion()
            st.rerun()
