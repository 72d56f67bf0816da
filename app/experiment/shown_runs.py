"""Which runs an experiment's page shows: those of the selection, of the URL, or the ones it opens with."""

from __future__ import annotations

import streamlit as st

from acenode.experiments import Experiment
from acenode.runs.entry import Entry

from .. import labels, messages, navigation, recorded
from ..services import services

MAX_RUNS = 8  # on one page
TRIALS = "shown/trials"  # session key: trials of searches can be chosen as well


def entries_of(experiment: Experiment) -> dict[str, Entry]:
    """Return all runs of an experiment by their id."""
    return {e.id: e for e in services().catalogue.entries() if e.experiment == experiment.name}


def chosen(experiment: Experiment) -> list[Entry]:
    """Return the runs to show: those of the selection or of the URL, or else `first_choice`.

    Runs in the URL that do not exist here are named in a warning.
    """
    entries, key = entries_of(experiment), _widget_key(experiment)
    wanted = list[str]()
    if key not in st.session_state and _asked_key(experiment.name) not in st.session_state:
        wanted = navigation.linked_runs()
        known = [n for n in wanted if n in entries][:MAX_RUNS]
        st.session_state[_asked_key(experiment.name)] = known or first_choice(
            list(entries.values()), ace_first=experiment.source is None)
    navigation.warn_about_missing(wanted, entries, f"among the runs of {experiment.title} here")
    names = selected(experiment)
    if deleted := [n for n in names if n not in entries]:
        st.caption(f"Deleted: {messages.escape(', '.join(deleted))[:300]}")
        names = [n for n in names if n in entries]
        ask_for(experiment, names)
    return [entries[n] for n in names]


def ask_for(experiment: Experiment, ids: list[str]) -> None:
    """Show these runs at the page's next rerun.

    The widget that holds the selection gets a new key, since a value of the old one that the browser has already sent
    would undo this. The runs are its default and not its value in the session: Streamlit sends such a value once, and
    a page that is rerun meanwhile would never receive it.
    """
    count = f"asked/{experiment.name}/count"
    st.session_state[count] = st.session_state.get(count, 0) + 1
    st.session_state[_asked_key(experiment.name)] = ids[:MAX_RUNS]  # these train first


def forget_others(page: str) -> None:
    """Forget what pages other than this one were asked to show, so that they choose anew when they are opened."""
    for key in [k for k in st.session_state if str(k).startswith("asked/") and str(k).endswith("/runs")]:
        if key != _asked_key(page):
            del st.session_state[key]


def _asked_key(name: str) -> str:
    return f"asked/{name}/runs"


def _widget_key(experiment: Experiment) -> str:
    count = st.session_state.get(f"asked/{experiment.name}/count", 0)
    return f"shown/{experiment.name}" + (f"/{count}" if count else "")


def selected(experiment: Experiment) -> list[str]:
    """Return the ids of the selected runs."""
    asked: list[str] = st.session_state.get(_asked_key(experiment.name), [])
    return list(st.session_state.get(_widget_key(experiment), asked))


def show_choice(experiment: Experiment, entries: dict[str, Entry]) -> None:
    """Ask which runs to show, which the URL keeps."""
    trials = sum(bool(entry.search) for entry in entries.values())
    with_trials = trials and st.session_state.get(TRIALS, False)
    asked = [n for n in st.session_state.get(_asked_key(experiment.name), []) if n in entries]
    kept = {*selected(experiment), *asked}
    offered = [n for n, entry in entries.items() if with_trials or not entry.search or n in kept]
    # the labels do not contain the state: Streamlit would lose the selection when it changes
    chosen = st.multiselect("Runs shown", offered, asked, key=_widget_key(experiment), max_selections=MAX_RUNS,
                            on_change=navigation.forget_missing, format_func=lambda n: labels.label(entries[n]))
    navigation.keep_in_url(chosen)
    if trials:
        st.checkbox(f"Offer trials of searches as well ({trials:,})", key=TRIALS)


def first_choice(entries: list[Entry], *, ace_first: bool = False) -> list[str]:
    """Return the runs that a page opens with, newest entries first.

    In this order: the runs that train now, or the next queued one; the newest finished run of the user's own; the
    newest own run in any other state; of the recorded runs one of ACE with snapshots and evolving attention, the
    longest one with default settings. Trials of a search are shown only if there is nothing else.

    Args:
        entries: the runs of an experiment, newest first.
        ace_first: of the user's own runs in the same state, prefer ACE with evolving attention to newer runs, as for
            named variables, whose studies train the method without attention last.
    """
    entries = [e for e in entries if not e.search] or entries
    running = [e.id for e in entries if e.state == "running" and not e.recorded]
    queued = [e.id for e in entries if e.state == "queued" and not e.recorded]
    own = [e for e in entries if not e.recorded and e.state != "unreadable"]
    if running or queued:
        return running[:MAX_RUNS] or queued[-1:]
    if own:
        alike = [e for e in own if e.state == "finished"] or own
        return [min(alike, key=lambda e: (  # the first of equals
            ace_first and e.method != "ace",
            ace_first and e.method == "ace" and e.config.get("attention") != "evolving")).id]
    best = min((e for e in entries if e.recorded), default=None, key=lambda e: (
        e.method != "ace", not e.run.snapshots(), e.config.get("attention") != "evolving",
        recorded.longest_first(e)))
    return [best.id] if best else []
