"""The results on an experiment's page: player, score, live curves and charts of the chosen runs, and their controls."""

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

from .. import components, estimates, labels, messages, navigation
from ..results import tabs as result_tabs
from ..runs import warn_if_changed
from ..services import services
from . import shown_runs

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
    shown_runs.ask_for(experiment, ids)
    st.session_state["scroll"] = ",".join(ids)


def show_player(experiment: Experiment, shown: list[Entry]) -> None:
    """Show the player of runs, with the controls of those that train or can be resumed above it. The rest of a page
    waits for it."""
    with st.container():  # a container each: a run that ends then does not rebuild the player and the curves
        for entry in shown:
            if entry.busy or entry.resumable:
                _show_controls(experiment, entry)
    with st.container(key="run-player"):  # page.css shows it first on narrow pages
        if shown:
            with components.before_the_rest(experiment.name, [entry.id for entry in shown]):
                components.player("player", labels.for_charts(shown), components.PLAYER_START,
                                  scroll=st.session_state.pop("scroll", None))
        elif shown_runs.entries_of(experiment):
            st.info("Choose a run to see its player, curves and results.", icon=":material/touch_app:")
        else:
            st.info("No runs of this experiment yet. Press **Train**: the sample needs no download. The player and "
                    "curves appear here during training.", icon=":material/play_arrow:")


def show_results(experiment: Experiment, shown: list[Entry]) -> None:
    """Show scores, controls, curves and charts of runs."""
    entries = shown_runs.entries_of(experiment)
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
    shown_runs.show_choice(experiment, entries)
    if shown:
        metric = metric_format(experiment.metric.name, experiment.name)
        components.curves("curves", labels.for_charts(shown), metric)
        result_tabs.show(shown, "watch")


def _show_controls(experiment: Experiment, entry: Entry) -> None:
    """Show a run's state and the buttons that apply to it."""
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
                experiment, [launcher.retry(run).id, *shown_runs.selected(experiment)]),
             "Starts a new run with the same configuration")]
        for applies, title, icon, action, about in buttons:
            if applies:
                st.button(title, key=f"{title}/{entry.id}", icon=f":material/{icon}:", help=about, on_click=_act,
                          args=(action, entry.id))
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


def _act(action: Callable[[Launcher, Run], object], run: str) -> None:
    """Act on a run; an error, such as a run that has ended meanwhile, is a notice."""
    try:
        action(services().launcher, services().store.open(run))
    except (UserError, OSError) as error:
        messages.notify(error)
