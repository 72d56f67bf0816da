"""The lower half of an experiment's page: chosen runs with their controls, live curves, player and results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from acenode.config import Config
from acenode.errors import UserError
from acenode.experiments import Experiment
from acenode.results import metric_format
from acenode.runs.entry import Entry
from acenode.runs.store import Run

from . import components, labels, messages, navigation, result_tabs
from .labels import for_charts as for_charts
from .services import services
from .url_state import keep_in_url

MAX_RUNS = 8  # on one page


def start(experiment: Experiment, configs: list[Config]) -> None:
    """Queue runs and show them. If one cannot be started, those before it stay queued and are shown."""
    started: list[str] = []
    try:
        for config in configs:
            started.append(services().launcher.start(config).id)
    except (UserError, OSError) as error:
        messages.error(error)
        if started:
            messages.notify(f"{len(started)} of {len(configs)} runs were queued before that")
            select(experiment, started)
        return
    select(experiment, started)
    st.rerun()


def select(experiment: Experiment, ids: list[str]) -> None:
    """Show these runs at the page's next rerun, and scroll to them."""
    counter = f"asked/{experiment.name}"
    st.session_state[counter] = st.session_state.get(counter, 0) + 1
    st.session_state[_selection_key(experiment)] = ids[-MAX_RUNS:]
    st.session_state["scroll"] = ",".join(ids)


def _selection_key(experiment: Experiment) -> str:
    """Return the key of the widget that holds the shown runs.

    The key changes whenever the page selects runs itself. Otherwise a value of the old widget that the browser has
    already sent would undo the selection.
    """
    count = st.session_state.get(f"asked/{experiment.name}", 0)
    return f"shown/{experiment.name}" + (f"/{count}" if count else "")


def show(experiment: Experiment) -> None:
    """Show the runs of an experiment."""
    entries = {e.id: e for e in services().catalogue.entries() if e.experiment == experiment.name}
    if not entries:
        st.info("No runs of this experiment yet. Press **Train**: the sample needs no download and takes a minute or "
                "two. Curves and attention appear here during training.", icon=":material/play_arrow:")
        return
    chosen = [entries[name] for name in _choose(entries, _selection_key(experiment))]
    if not chosen:
        st.info("Choose a run above to see its curves, attention and results.", icon=":material/touch_app:")
        return
    for entry in chosen:
        _show_controls(experiment, entry)
    runs = for_charts(chosen)
    metric = metric_format.of(experiment.metric.name, experiment.name)
    components.curves("curves", runs, metric, scroll=st.session_state.pop("scroll", None))
    st.subheader("State h(t) and attention a(t)")
    components.player("player", runs)
    result_tabs.show_numbers(chosen)
    result_tabs.show(chosen, "watch")


def _choose(entries: dict[str, Entry], key: str) -> list[str]:
    """Ask which runs to show, which the URL keeps; at first the queued and running ones, or the latest."""
    if key not in st.session_state:
        wanted = list(dict.fromkeys(n for n in st.query_params.get("runs", "").split(",") if n))[:MAX_RUNS]
        busy = [e.id for e in entries.values() if e.busy]
        st.session_state[key] = wanted or busy[:MAX_RUNS] or _first_choice(list(entries.values()))
    missing = [n for n in st.session_state[key] if n not in entries]
    if missing:
        st.session_state[key] = [n for n in st.session_state[key] if n in entries]
        st.caption(f"Deleted or unknown: {messages.escape(', '.join(missing))[:300]}")
    # the labels do not contain the state: Streamlit would lose the selection when it changes
    shown = st.multiselect("Runs shown", list(entries), key=key, max_selections=MAX_RUNS,
                           format_func=lambda n: labels.label(entries[n]))
    keep_in_url(shown)
    return shown


def _first_choice(entries: list[Entry]) -> list[str]:
    """Return the latest run of the folder, or the recorded run of ACE that tells most."""
    if not entries[0].recorded:
        return [entries[0].id]
    return [max(entries, key=lambda e: (e.method == "ace", bool(e.run.snapshots()), -e.seed)).id]


def _show_controls(experiment: Experiment, entry: Entry) -> None:
    """Show a run's state and the buttons that apply to it."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"{labels.ICONS[labels.state_name(entry)]} {messages.escape(labels.label(entry))}", width="content")
        st.caption(messages.escape(labels.provenance(entry)) if entry.recorded else entry.state, width="content")
        if entry.busy:
            _button("Stop", "stop", entry, services().launcher.stop,
                    "Writes a checkpoint after the current iteration")
        if entry.state in ("stopped", "failed", "interrupted") and not entry.recorded:
            _button("Resume", "play_arrow", entry, services().launcher.resume,
                    "Continues from the last good checkpoint")
        if entry.state in ("failed", "finished"):
            _button("Run again", "replay", entry, partial(_run_again, experiment),
                    "Starts a new run with the same configuration")
        if not entry.busy and st.button("Repeat with changes", key=f"Repeat/{entry.id}", icon=":material/edit:",
                                        help="Copies the settings into the form above"):
            st.switch_page(navigation.experiment(entry.experiment), query_params={"from": entry.id})
    if entry.data_note:
        st.caption(messages.escape(f"Data: {entry.data_note}"))
    if entry.error and entry.state == "failed":
        st.error(f"{messages.escape(entry.error)}. The curves below end there. Resume continues from the last good "
                 "checkpoint.", icon=":material/error:")
    elif entry.error and entry.state == "interrupted":
        st.warning("The process that trained this run has ended. The curves below end there. Resume continues from "
                   "the last checkpoint.", icon=":material/bolt:")


def _run_again(experiment: Experiment, run: Run) -> None:
    select(experiment, [*st.session_state.get(_selection_key(experiment), []), services().launcher.retry(run).id])


def _button(title: str, icon: str, entry: Entry, action: Callable[[Run], None], help: str) -> None:
    """Show a button that acts on a run; an error, such as a run that has ended meanwhile, is a notice."""
    def pressed() -> None:
        try:
            action(services().store.open(entry.id))
        except (UserError, OSError) as error:
            messages.notify(error)

    st.button(title, key=f"{title}/{entry.id}", icon=f":material/{icon}:", help=help, on_click=pressed)
