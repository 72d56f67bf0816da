"""Queue the runs that cells of the paper's tables still need, after saying how long they take here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

import streamlit as st

from acenode import experiments
from acenode.config import Config
from acenode.errors import UserError
from acenode.results.cells import CELLS, missing
from acenode.results.paper_tables import TABLES, PaperCell, PaperTable
from acenode.runs.entry import Entry

from . import full_data, labels, messages, navigation
from .services import services

CELL, TABLE, ALL = "This cell", "This table", "All tables"


def show(cell: PaperCell, table: PaperTable, entries: list[Entry]) -> None:
    """Offer to train what a cell, its table or all tables still need."""
    st.markdown("**Train what is missing**")
    scope = st.segmented_control("Train what is missing for", [CELL, TABLE, ALL], default=CELL, required=True,
                                 key="paper/scope", label_visibility="collapsed")
    cells = {CELL: [cell], TABLE: list(table.cells), ALL: list(CELLS.values())}[scope or CELL]
    _offer(needed(cells, entries), entries, "paper")


def show_all(entries: list[Entry]) -> None:
    """Offer to train what a table or all tables need, in an expander."""
    box = st.expander("Train what is missing", icon=":material/playlist_add:", key="paper/all", on_change="rerun")
    if not box.open:
        return
    with box:
        name = st.selectbox("Table", ["", *TABLES], key="paper/table", width=320,
                            format_func=lambda n: TABLES[n].title if n else ALL)
        _offer(needed(TABLES[name].cells if name else CELLS.values(), entries), entries, "paper-all")


def needed(cells: Iterable[PaperCell], entries: Sequence[Entry]) -> list[Config]:
    """Return the configurations that cells still need, each once: a run may count for several cells."""
    return list(dict.fromkeys(config for cell in cells for config in missing(cell, entries)))


def recorded_seconds(configs: Iterable[Config], entries: Iterable[Entry]) -> tuple[float, set[str]] | None:
    """Return the time that runs like these took where recorded runs were trained, and the devices' names.

    The time of an epoch is the median over recorded runs of the same experiment and method. None if one has no run.
    """
    found: dict[tuple[str, str], list[tuple[float, float, str]]] = {}
    for e in entries:
        if e.recorded and e.seconds and e.epochs:
            like = found.setdefault((e.experiment, e.method), [])
            like.append((e.seconds / e.epochs, e.other_seconds or 0.0, e.device))
    total, devices = 0.0, set()
    for config in configs:
        like = found.get((config.experiment, config.method), [])
        if not like:
            return None
        total += median(epoch for epoch, _, _ in like) * int(config.get("epochs")) + median(rest for _, rest, _ in like)
        devices |= {device for _, _, device in like if device}
    return total, devices


def _offer(configs: list[Config], entries: list[Entry], key: str) -> None:
    """Say how many runs are missing; offer missing data, an estimate of the time, and then the queue."""
    if not configs:
        st.caption("Nothing is missing: every cell has its runs, or they are queued.")
        return
    ready = [config for config in configs if _has_data(config)]
    for name in dict.fromkeys(config.experiment for config in configs if config not in ready):
        full_data.show(experiments.get(name), key=f"{key}/download/{name}")
    there = recorded_seconds(configs, entries)
    text = f"**{len(configs)} run{'s' * (len(configs) > 1)}** missing"
    if there:
        text += f" · {labels.duration(there[0])} on {' and '.join(sorted(there[1])) or 'the recorded runs’ device'}"
    st.markdown(text)
    if not ready:
        return
    if len(ready) < len(configs):
        st.caption(f"{len(configs) - len(ready)} of them need data that is not on this machine.")
    _offer_queue(ready, key)


def _has_data(config: Config) -> bool:
    source = experiments.get(config.experiment).source
    return source is None or services().fetcher.state(source).data.state == "ready"


def _offer_queue(configs: list[Config], key: str) -> None:
    """Offer an estimate of the time here and, once it is shown, the button that queues the runs."""
    asked = f"{hash(tuple(configs))}"
    title = f"Queue {len(configs)} run{'s' * (len(configs) > 1)}"
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.session_state.get(f"{key}/estimate", (None,))[0] != asked:
            if st.button("Estimate time here", key=f"{key}/how_long", icon=":material/timer:"):
                st.session_state[f"{key}/estimate"] = (asked, _estimate(configs))
                st.rerun()
            st.button(title, key=f"{key}/queue", disabled=True, icon=":material/playlist_add:",
                      help="Estimate the time first")
            return
        st.caption(messages.escape(st.session_state[f"{key}/estimate"][1]))
        if st.button(title, key=f"{key}/queue", type="primary", icon=":material/playlist_add:"):
            _queue(configs)
            st.rerun()
        st.page_link(navigation.runs(), label="All runs", icon=":material/list:")


def _estimate(configs: list[Config]) -> str:
    from acenode.execution.estimate import estimate  # loads torch

    with st.spinner("Estimating from earlier runs, or by timing a few iterations"):
        found = estimate(configs, services().catalogue, services().data_root)
    if found.seconds is None:
        return f"Time unknown here: {found.basis}"
    return f"About {labels.duration(found.seconds)} here, one after the other ({found.basis})"


def _queue(configs: list[Config]) -> None:
    started = 0
    try:
        for config in configs:
            services().launcher.start(config)
            started += 1
    except (UserError, OSError) as error:
        messages.notify(error)
    messages.notify(f"{started} run{'s' * (started != 1)} queued")
