"""The page of one search: its state, live charts of the trials, and the best settings."""

from __future__ import annotations

import streamlit as st

from acenode import experiments
from acenode.config import read_seeds
from acenode.errors import UserError
from acenode.runs.questions import MAX_TRIALS, PRUNERS, SAMPLERS, SearchStore
from acenode.search.plan import made_winner
from acenode.search.results import SearchReport

from .. import components, labels, messages, navigation
from ..services import services
from . import search_links, search_live, study_links

NOTE = "Values are of the validation data. Trials are never tested."


def show(name: str) -> None:
    """Show the search with this name."""
    search_links.show_all()
    if name not in SearchStore(services().store).names():
        st.title("Search", anchor=False)
        messages.invalid(f"There is no search {name[:60]!r}: press All searches to choose one")
        return
    try:
        report = search_live.report(name)
    except UserError as error:
        st.title("Search", anchor=False)
        messages.invalid(error)
        return
    search = report.search
    st.title(messages.escape(name), anchor=False)
    title = f"{labels.method_title(search.experiment, search.method)} on {experiments.get(search.experiment).title}"
    held = f", with {labels.settings_words(search.held)}" if search.held else ""
    over = labels.ranges_words(search.ranges)
    st.caption(messages.escape(
        f"{title} ({search.data}) over {over}{held}. Sampler: {SAMPLERS[search.sampler]}, "
        f"pruning: {PRUNERS[search.pruner]}, seed {search.seed}. {NOTE}"))
    with st.container(key="search-controls"):  # a container each: what comes or goes does not rebuild the rest
        _show_controls(report)
    components.search_charts("search-charts", name)
    with st.container():
        _show_winner(report)


def _show_controls(report: SearchReport) -> None:
    """Say what happens, and offer to stop, continue and delete."""
    name, search, status = report.search.name, report.search, report.status
    left = search.trials - len(report.trials)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="study-line"):
        with st.container(width="stretch", key="study-sentence"):
            if status.running:
                st.markdown("Searching. The charts follow every trial")
            elif status.state == "finished" and left <= 0:
                st.markdown("All trials are done")
            else:
                st.markdown({"failed": "The search failed", "interrupted": "The process of this search has ended",
                             }.get(status.state, "Stopped"))
        if status.running:
            st.button("Stop", key="search/stop", icon=":material/stop:", on_click=_act, args=("stop", name),
                      help="Running trials write a checkpoint, and no further one starts")
        elif status.state == "finished":
            with st.popover("More trials", icon=":material/add:", key="search/more-box"):
                more = st.number_input("Trials in all", len(report.trials) + 1, MAX_TRIALS,
                                       min(MAX_TRIALS, search.trials + 20), step=1, key=f"search/more/{search.trials}")
                st.button("Continue", key="search/continue", type="primary", icon=":material/play_arrow:",
                          on_click=_act, args=("resume", name, int(more)))
        else:
            st.button("Resume", key="search/resume", type="primary", icon=":material/play_arrow:", on_click=_act,
                      args=("resume", name), help="Open trials continue from their last checkpoint")
        if not status.running:
            with st.popover("Delete", icon=":material/delete:", key="search/delete-box"):
                st.markdown("Deletes the search. Its runs stay.")
                if st.button("Delete the search", key="search/delete"):
                    _delete(name)
    if status.error:
        messages.error(status.error)


def _show_winner(report: SearchReport) -> None:
    """Offer to train the best settings over seeds and test them."""
    best = report.best
    if best is None:
        return
    st.header("Best settings", anchor=False)
    study = made_winner(services().store, report.search.name)
    if study is not None:
        study_links.show_study(study, f"Best settings over seeds: {study}")
    if best.default:
        st.markdown("The defaults are the best settings so far")
        return
    st.markdown(messages.escape(f"{report.best_text[:1].upper()}{report.best_text[1:]}"))
    if report.so_far_text:
        st.caption(messages.escape(f"{report.so_far_text[:1].upper()}{report.so_far_text[1:]}"))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        seeds = st.text_input("Seeds", "0 1 2", key="search/winner-seeds", width=140, help="0 1 2, or 0-4")
        train = st.button("Train over seeds and test", key="search/winner", type="primary",
                          icon=":material/emoji_events:",
                          help="Trains the best settings and the defaults with each seed, tests each run once, and "
                               "compares them in a study")
    if train:
        from . import search_actions  # here and below: it needs torch, which the page itself does not wait for

        try:
            with st.spinner("Adding runs to the queue"):
                made = search_actions.train_winner(report.search.name, tuple(read_seeds(seeds)))
        except (UserError, OSError) as error:
            messages.error(error)
            return
        st.switch_page(navigation.studies(), query_params={study_links.STUDY: made})


def _act(action: str, name: str, *more: int) -> None:
    from . import search_actions

    try:
        {"stop": search_actions.stop, "resume": search_actions.resume}[action](name, *more)
    except (UserError, OSError) as error:
        messages.notify(error)


def _delete(name: str) -> None:
    from . import search_actions

    try:
        search_actions.delete(name)
    except UserError as error:
        messages.error(error)
        return
    st.query_params.clear()
    st.rerun()
