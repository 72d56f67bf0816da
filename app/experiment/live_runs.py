"""The runs of an experiment's page: which are shown, their player, score, live curves, charts and controls."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from acenode.compare.metrics import metric_format
from acenode.config import Config
from acenode.errors import UserError
from acenode.execution.launcher import Launcher
from acenode.experiments import Experiment
from acenode.runs.entry import Entry
from acenode.runs.store import Run

from .. import components, estimates, home, labels, messages, navigation
from ..results import tabs as result_tabs
from ..runs import warn_if_changed
from ..services import services

COPIES = "preset/copies"  # session key: how often a run's settings were copied into the form


def start(experiment: Experiment, configs: list[Config]) -> None:
    """Queue runs and show them. If one cannot be started, those before it stay queued and are shown."""
    started: list[str] = []
    try:
        with services().launcher.queue_together():
            for config in configs:
                started.append(services().launcher.start(config).id)
    except (UserError, OSError) as error:
        if not started:
            messages.error(error)
            return
        messages.notify(f"{len(started)} of {len(configs)} runs were queued. {error}")
    select(experiment, started)
    st.rerun()


def select(experiment: Experiment, ids: list[str]) -> None:
    """Show these runs at the page's next rerun, and scroll to them."""
    ask_for(experiment, ids)
    st.session_state["scroll"] = ",".join(ids)


def show_player(experiment: Experiment, shown: list[Entry]) -> None:
    """Show the player of runs, below the controls of those that train or can be resumed. The rest waits for it."""
    with st.container():  # a container each: a run that ends then does not rebuild the player and the curves
        for entry in shown:
            if entry.busy or entry.resumable:
                _show_controls(experiment, entry)
    with st.container(key="run-player"):  # page.css shows it first on narrow pages
        if shown:
            with components.before_the_rest(experiment.name, [entry.id for entry in shown]):
                components.player("player", labels.for_charts(shown), components.PLAYER_START,
                                  scroll=st.session_state.pop("scroll", None))
        elif entries_of(experiment):
            st.info("Choose a run to see its player, curves and results.", icon=":material/touch_app:")
        else:
            st.info("No runs of this experiment yet. Press **Train**: the sample needs no download. The player and "
                    "curves appear here during training.", icon=":material/play_arrow:")


def show_results(experiment: Experiment, shown: list[Entry]) -> None:
    entries = entries_of(experiment)
    if not entries:
        return
    with st.container():
        for entry in shown:
            if entry.resumable and not entry.busy:
                warn_if_changed(entry)
            elif not entry.busy:
                with st.container(border=True):
                    _show_controls(experiment, entry)
                    result_tabs.show_numbers(entry)
                    warn_if_changed(entry)
    show_choice(experiment, entries)
    if shown:
        metric = metric_format(experiment.metric.name, experiment.name)
        components.curves("curves", labels.for_charts(shown), metric)
        result_tabs.show(shown, "watch")


def _show_controls(experiment: Experiment, entry: Entry) -> None:
    state, ready = entry.state, services().launcher_ready  # the page does not wait for torch
    place = services().launcher.position(entry.id) if ready and state == "queued" else None  # counted from 0
    words = messages.escape(labels.provenance(entry)) if entry.recorded else state
    if place is not None:
        seconds = estimates.seconds_until_start(entry.run)
        words = f"{labels.ordinal(place + 1)} in queue" + (
            f", starts in about {labels.duration(seconds)}" if seconds else "")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"{labels.ICONS[labels.state_name(entry)]} {messages.escape(labels.label(entry))}", width="content")
        st.caption(words, width="content")
        buttons: list[tuple[object, str, str, Callable[[Launcher, Run], object], str]] = [
            (entry.busy, "Stop", "stop", Launcher.stop, "Writes a checkpoint after the current iteration"),
            (place, "Run next", "vertical_align_top", lambda launcher, run: launcher.move(run, 0),
             "Puts it before the other queued runs"),
            (entry.resumable, "Resume", "play_arrow", Launcher.resume, "Continues from the last good checkpoint"),
            (state in ("failed", "finished"), "Run again", "replay", lambda launcher, run: select(
                experiment, [launcher.retry(run).id, *selected(experiment)]),
             "Starts a new run with the same configuration")]
        for applies, title, icon, action, about in buttons:
            if applies:
                st.button(title, key=f"{title}/{entry.id}", icon=f":material/{icon}:", help=about,
                          on_click=messages.attempt, args=(_do, action, entry.id))
        if not entry.busy and st.button("Repeat with changes", key=f"Repeat/{entry.id}", icon=":material/edit:",
                                        help="Copies the settings into the form above"):
            st.session_state[COPIES] = st.session_state.get(COPIES, 0) + 1
            st.switch_page(navigation.page(entry.experiment), query_params={"from": entry.id})
    if entry.data_note:
        st.caption(messages.escape(f"Data: {entry.data_note}"))
    if entry.error and state == "failed":
        st.error(f"{messages.escape(entry.error)}. The curves below end there. Resume continues from the last good "
                 "checkpoint.", icon=":material/error:")
    elif entry.error and state == "interrupted":
        st.warning("The process that trained this run has ended. The curves below end there. Resume continues from "
                   "the last checkpoint.", icon=":material/bolt:")
    elif entry.error and state == "stopped":
        st.caption(messages.escape(messages.capital(entry.error)))


def _do(action: Callable[[Launcher, Run], object], run_id: str) -> None:
    action(services().launcher, services().store.open(run_id))


MAX_RUNS = 8  # on one page
TRIALS = "shown/trials"  # session key: trials of searches can be chosen as well


def entries_of(experiment: Experiment) -> dict[str, Entry]:
    return {e.id: e for e in services().catalogue.entries() if e.experiment == experiment.name}


def chosen(experiment: Experiment) -> list[Entry]:
    """Return the runs to show: those of the selection or of the URL, or else `first_choice`."""
    entries, (asked, widget), wanted = entries_of(experiment), _keys(experiment), list[str]()
    if widget not in st.session_state and asked not in st.session_state:
        wanted = navigation.linked_runs()
        st.session_state[asked] = [n for n in wanted if n in entries][:MAX_RUNS] or first_choice(
            list(entries.values()), ace_first=experiment.source is None)
    navigation.warn_about_missing(wanted, entries, f"among the runs of {experiment.title} here")
    names = selected(experiment)
    if deleted := [n for n in names if n not in entries]:
        st.caption(f"Deleted: {messages.escape(', '.join(deleted))[:300]}")
        names = [n for n in names if n in entries]
        ask_for(experiment, names)
    return [entries[n] for n in names]


def ask_for(experiment: Experiment, ids: list[str]) -> None:
    """Show these runs at the page's next rerun. The widget gets a new key, since a value of the old one that the
    browser has already sent would undo this, and the runs are its default: Streamlit sends a value set in the
    session once, and a page that is rerun meanwhile would never receive it."""
    count = f"asked/{experiment.name}/count"
    st.session_state[count] = st.session_state.get(count, 0) + 1
    st.session_state[_keys(experiment)[0]] = ids[:MAX_RUNS]  # these train first


def _keys(experiment: Experiment) -> tuple[str, str]:
    """Return the session keys of the runs that were asked for, and of the widget that they are the default of."""
    count = st.session_state.get(f"asked/{experiment.name}/count", 0)
    return f"asked/{experiment.name}/runs", f"shown/{experiment.name}" + (f"/{count}" if count else "")


def selected(experiment: Experiment) -> list[str]:
    asked, widget = _keys(experiment)
    return list(st.session_state.get(widget, st.session_state.get(asked, [])))


def show_choice(experiment: Experiment, entries: dict[str, Entry]) -> None:
    """Ask which runs to show, which the URL keeps."""
    trials = sum(bool(entry.search) for entry in entries.values())
    with_trials = trials and st.session_state.get(TRIALS, False)
    asked_key, widget = _keys(experiment)
    asked = [n for n in st.session_state.get(asked_key, []) if n in entries]
    kept = {*selected(experiment), *asked}
    offered = [n for n, entry in entries.items() if with_trials or not entry.search or n in kept]
    # the labels do not contain the state: Streamlit would lose the selection when it changes
    chosen = st.multiselect("Runs shown", offered, asked, key=widget, max_selections=MAX_RUNS,
                            on_change=navigation.forget_missing, format_func=lambda n: labels.label(entries[n]))
    navigation.keep_in_url(chosen)
    if trials:
        st.checkbox(f"Offer trials of searches as well ({trials:,})", key=TRIALS)


def first_choice(entries: list[Entry], *, ace_first: bool = False) -> list[str]:
    """Return which runs of an experiment, newest first, its page opens with: those that train now, or the next queued
    one; the newest own run, finished ones first; of the recorded runs one of ACE with snapshots and evolving attention,
    the longest one with default settings. Trials of a search come last. With `ace_first`, ACE with evolving attention
    comes before newer own runs in the same state: studies of named variables train it first."""
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
        home.rank(e)[0], -e.epochs, *home.rank(e)[1:]))
    return [best.id] if best else []
