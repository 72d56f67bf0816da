"""The results on an experiment's page: player, score, live curves and charts of the chosen runs, and their controls."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from acenode.compare.metrics import metric_format
from acenode.config import Config
from acenode.errors import UserError
from acenode.experiments import Experiment
from acenode.runs.entry import Entry
from acenode.runs.store import Run

from .. import components, estimates, labels, messages, navigation
from ..labels import for_charts as for_charts
from ..results import tabs as result_tabs
from ..runs import details as run_details
from ..services import services
from . import player_first, preset, shown_runs

START = 0.6  # of the time that the player shows at first: attention has moved by then


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
            if _above(entry):
                _show_controls(experiment, entry)
    with st.container(key="run-player"):  # page.css shows it first on narrow pages
        if shown:
            with player_first.before_the_rest(experiment.name, [entry.id for entry in shown]):
                components.player("player", for_charts(shown), START, scroll=st.session_state.pop("scroll", None))
        elif shown_runs.entries_of(experiment):
            st.info("Choose a run to see its player, curves and results.", icon=":material/touch_app:")
        else:
            st.info("No runs of this experiment yet. Press **Train**: the sample needs no download. The player and "
                    "curves appear here during training.", icon=":material/play_arrow:")


def _above(entry: Entry) -> bool:
    """Return True for a run whose controls stand above the player: it trains, or it can be resumed."""
    return entry.busy or entry.resumable


def show_results(experiment: Experiment, shown: list[Entry]) -> None:
    """Show scores, controls, curves and charts of runs."""
    entries = shown_runs.entries_of(experiment)
    if not entries:
        return
    with st.container():
        for entry in shown:
            if not _above(entry):
                with st.container(border=True):
                    _show_controls(experiment, entry)
                    result_tabs.show_numbers(entry)
                    run_details.warn_if_changed(entry)
            elif not entry.busy:
                run_details.warn_if_changed(entry)
    shown_runs.show_choice(experiment, entries)
    if shown:
        metric = metric_format(experiment.metric.name, experiment.name)
        components.curves("curves", for_charts(shown), metric)
        result_tabs.show(shown, "watch")


def _show_controls(experiment: Experiment, entry: Entry) -> None:
    """Show a run's state and the buttons that apply to it."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"{labels.ICONS[labels.state_name(entry)]} {messages.escape(labels.label(entry))}", width="content")
        st.caption(messages.escape(labels.provenance(entry)) if entry.recorded else _state(entry), width="content")
        if entry.busy:
            _button("Stop", "stop", entry, services().launcher.stop,
                    "Writes a checkpoint after the current iteration")
        if _place(entry):
            _button("Run next", "vertical_align_top", entry, lambda run: services().launcher.move(run, 0),
                    "Puts it before the other queued runs")
        if entry.resumable:
            _button("Resume", "play_arrow", entry, services().launcher.resume,
                    "Continues from the last good checkpoint")
        if entry.state in ("failed", "finished"):
            _button("Run again", "replay", entry, partial(_run_again, experiment),
                    "Starts a new run with the same configuration")
        if not entry.busy and st.button("Repeat with changes", key=f"Repeat/{entry.id}", icon=":material/edit:",
                                        help="Copies the settings into the form above"):
            st.session_state[preset.COPIES] = st.session_state.get(preset.COPIES, 0) + 1
            st.switch_page(navigation.experiment(entry.experiment), query_params={"from": entry.id})
    if entry.data_note:
        st.caption(messages.escape(f"Data: {entry.data_note}"))
    if entry.error and entry.state == "failed":
        st.error(f"{messages.escape(entry.error)}. The curves below end there. Resume continues from the last good "
                 "checkpoint.", icon=":material/error:")
    elif entry.error and entry.state == "interrupted":
        st.warning("The process that trained this run has ended. The curves below end there. Resume continues from "
                   "the last checkpoint.", icon=":material/bolt:")
    elif entry.error and entry.state == "stopped":
        st.caption(messages.escape(entry.error[:1].upper() + entry.error[1:]))


def _state(entry: Entry) -> str:
    """Return the state, of a queued run its place in the queue and when it starts, as far as that is known."""
    place = _place(entry)
    if place is None:
        return entry.state
    seconds = estimates.seconds_until_start(entry.run)
    when = f", starts in about {labels.duration(seconds)}" if seconds else ""
    return f"{labels.ordinal(place + 1)} in queue{when}"


def _place(entry: Entry) -> int | None:
    """Return the place of a run in the queue, counted from 0."""
    return services().launcher.position(entry.id) if entry.state == "queued" and services().launcher_ready else None


def _run_again(experiment: Experiment, run: Run) -> None:
    select(experiment, [services().launcher.retry(run).id, *shown_runs.selected(experiment)])


def _button(title: str, icon: str, entry: Entry, action: Callable[[Run], None], help: str) -> None:
    """Show a button that acts on a run; an error, such as a run that has ended meanwhile, is a notice."""
    def pressed() -> None:
        try:
            action(services().store.open(entry.id))
        except (UserError, OSError) as error:
            messages.notify(error)

    st.button(title, key=f"{title}/{entry.id}", icon=f":material/{icon}:", help=help, on_click=pressed)
