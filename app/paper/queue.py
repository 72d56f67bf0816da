"""Queue the runs that cells of the paper's tables still need, after saying how long they take here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import streamlit as st

from acenode import experiments
from acenode.compare import reproduction
from acenode.compare.cells import CAMPAIGN_EPOCHS
from acenode.compare.paper import CELLS, TABLES, PaperCell, PaperTable
from acenode.compare.reproduction import USUAL_SEEDS, PlannedRun, Wanted, cell_plans, partial_data, time_of
from acenode.config import Config
from acenode.errors import UserError
from acenode.runs.entry import Entry

from .. import full_data, labels, messages, navigation
from ..services import services

TITLE = "Train more runs"
CELL, TABLE, ALL = "This cell", "This table", "All tables"
PLAN = (f"Planned are {USUAL_SEEDS} seeds (on USHCN the five folds). Runs on images have "
        f"{max(CAMPAIGN_EPOCHS.values())} epochs, a quarter of the paper's, others the default of their experiment.")
COMPLETE = {CELL: "this cell", TABLE: "every cell of this table", ALL: "every cell"}


def show(cell: PaperCell, table: PaperTable, entries: list[Entry]) -> None:
    """Offer to train the runs that are still planned for a cell, its table or all tables."""
    st.markdown(f"**{TITLE}**")
    scope = st.segmented_control(f"{TITLE} for", [CELL, TABLE, ALL], default=CELL, required=True,
                                 key="paper/scope", label_visibility="collapsed")
    cells = {CELL: [cell], TABLE: list(table.cells), ALL: list(CELLS.values())}[scope or CELL]
    _offer(needed(cells, entries), entries, "paper", scope or CELL)


def show_all(entries: list[Entry]) -> None:
    """Offer to train the runs that are still planned for a table or all tables, in an expander."""
    box = st.expander(TITLE, icon=":material/playlist_add:", key="paper/all", on_change="rerun")
    if not box.open:
        return
    with box:
        name = st.selectbox("Table", ["", *TABLES], key="paper/table", width=320,
                            format_func=lambda n: TABLES[n].title if n else ALL)
        planned = needed(TABLES[name].cells if name else CELLS.values(), entries)
        _offer(planned, entries, "paper-all", TABLE if name else ALL)


def needed(cells: Iterable[PaperCell], entries: Sequence[Entry]) -> list[PlannedRun]:
    """Return the runs that cells still need, those worth most first, each once: a run may count for several cells."""
    wanted, partial = Wanted(), partial_data(entries, services().data_root)
    return reproduction.queue(cell_plans(cells, entries, wanted, partial), entries, wanted, partial)


def recorded_time(configs: Iterable[Config], entries: Iterable[Entry]) -> str:
    """Say how long runs like these took where recorded runs were trained; empty if there are none."""
    by_device: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.recorded and entry.device:
            by_device.setdefault(entry.device, []).append(entry)
    if not by_device:
        return ""
    device, recorded = max(by_device.items(), key=lambda item: len(item[1]))
    wanted = list(configs)
    found = [(time, config) for config in wanted if (time := time_of(config, recorded)) is not None]
    if not found:
        return ""
    seconds = sum(time.seconds(config) for time, config in found)
    least = "at least " * (len(found) < len(wanted))
    return f"{least}{labels.duration(seconds)} on {device}, where similar runs were recorded"


def _offer(planned: list[PlannedRun], entries: list[Entry], key: str, scope: str) -> None:
    """Say how many runs are still planned; offer missing data, an estimate of the time, and then the queue."""
    if not planned:
        st.caption(f"Nothing to train: {COMPLETE[scope]} has as many runs as planned, or they are queued. {PLAN}")
        return
    there = recorded_time([run.config for run in planned], entries)
    lengths = {int(run.config.get("epochs")) for run in planned}
    each = f"{lengths.pop()} epochs" + " each" * (len(planned) > 1) if len(lengths) == 1 else ""
    st.markdown(" · ".join(filter(None, (f"**{_runs(len(planned))}** would give {COMPLETE[scope]} the planned seeds, "
                                         "folds and epochs", each, there))))
    st.caption(PLAN)
    ready = [run for run in planned if _has_data(run.config)]
    waiting = [experiments.get(run.config.experiment) for run in planned if run not in ready]
    for experiment in {e.source: e for e in reversed(waiting)}.values():  # two experiments may share their data
        full_data.show(experiment, key=f"{key}/download/{experiment.source}")
    if not ready:
        return
    if len(ready) < len(planned):
        st.caption(f"{_runs(len(planned) - len(ready))} of these must wait for data that is not on this machine.")
    _offer_queue(ready, key)


def _runs(count: int) -> str:
    return f"{count} run{'s' * (count != 1)}"


def _has_data(config: Config) -> bool:
    source = experiments.get(config.experiment).source
    return source is None or services().fetcher.state(source).data.state == "ready"


def _offer_queue(planned: list[PlannedRun], key: str) -> None:
    """Offer an estimate of the time here and, once it is shown, the button that queues the runs."""
    asked = f"{hash(tuple(run.config for run in planned))}"
    title = f"Queue {_runs(len(planned))}"
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.session_state.get(f"{key}/estimate", (None,))[0] != asked:
            if st.button("Estimate time here", key=f"{key}/how_long", icon=":material/timer:"):
                st.session_state[f"{key}/estimate"] = (asked, _estimate([run.config for run in planned]))
                st.rerun()
            st.button(title, key=f"{key}/queue", disabled=True, icon=":material/playlist_add:",
                      help="Estimate the time first")
            return
        st.caption(messages.escape(st.session_state[f"{key}/estimate"][1]))
        if st.button(title, key=f"{key}/queue", type="primary", icon=":material/playlist_add:"):
            _queue(planned)
            st.rerun()
        st.page_link(navigation.runs(), label="All runs", icon=":material/list:")


def _estimate(configs: list[Config]) -> str:
    """Say how long the runs take on this machine."""
    from acenode.execution.estimate import estimate  # loads torch

    with st.spinner("Estimating from earlier runs, or by timing a few iterations"):
        found = estimate(configs, services().catalogue, services().data_root)
    if found.seconds is None:
        return f"Time unknown here: {found.basis}"
    return f"About {labels.duration(found.seconds)} here, one after the other ({found.basis})"


def _queue(planned: list[PlannedRun]) -> None:
    """Start the runs, or continue those that were interrupted; an error ends it with a notice."""
    started = 0
    try:
        with services().launcher.queue_together():
            for run in planned:
                if run.resumes is None:
                    services().launcher.start(run.config)
                else:
                    services().launcher.resume(services().store.open(run.resumes))
                started += 1
    except (UserError, OSError) as error:
        messages.notify(error)
    messages.notify(f"{_runs(started)} queued")
