"""The list of searches, and the page of one: its state, live charts of the trials, and the best settings."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from acenode import experiments
from acenode.config import read_seeds
from acenode.errors import UserError
from acenode.runs.questions import MAX_TRIALS, PRUNERS, SAMPLERS, SearchStore, StudyStore
from acenode.search.plan import made_winner, winner_study
from acenode.search.results import SearchReport

from .. import components, labels, messages, navigation
from ..services import services
from . import live
from .page import QuestionPage, action_line, ask_experiment, show_link, start_study

NOTE = "Values are of the validation data. Trials are never tested."
STATES = {"failed": "The search failed", "interrupted": "The process of this search has ended"}


def find(name: str) -> SearchReport:
    if name not in SearchStore(services().store).names():
        raise UserError(f"There is no search {name[:60]!r}: press All searches to choose one")
    return live.report(name)


def list_one(name: str) -> SearchReport:
    show_link("searches", messages.escape(name), search=name)
    report = live.report(name)
    search, best = report.search, f"; {report.best_text}" * bool(report.best_text)
    st.caption(messages.escape(f"{experiments.get(search.experiment).title} ({search.data}), {search.method}, "
                               f"{report.status.state}: {report.counts_text}{best}"))
    return report


def offer_new() -> None:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium", key="search-new"):
        show_link("searches", "Choose the settings", experiment=ask_experiment("searches/experiment", width=260))


def show_form() -> None:
    from . import search_form  # needs torch, which the list does not wait for

    search_form.show()


def heading(report: SearchReport) -> tuple[str, str]:
    search = report.search
    title = f"{labels.method_title(search.experiment, search.method)} on {experiments.get(search.experiment).title}"
    held = f", with {labels.settings_words(search.held)}" if search.held else ""
    return search.name, (
        f"{title} ({search.data}) over {labels.ranges_words(search.ranges)}{held}. Sampler: "
        f"{SAMPLERS[search.sampler]}, pruning: {PRUNERS[search.pruner]}, seed {search.seed}. {NOTE}")


def show_controls(report: SearchReport) -> None:
    name, search, status = report.search.name, report.search, report.status
    line, sentence = action_line()
    done = status.state == "finished" and len(report.trials) >= search.trials
    sentence.markdown("Searching. The charts follow every trial" if status.running else "All trials are done" if done
                      else STATES.get(status.state, "Stopped"))
    with line:
        if status.running:
            st.button("Stop", key="search/stop", icon=":material/stop:", on_click=messages.attempt,
                      args=(lambda: services().searches.stop(name),),
                      help="Running trials write a checkpoint, and no further one starts")
            return
        if status.state == "finished":
            with st.popover("More trials", icon=":material/add:", key="search/more-box"):
                more = st.number_input("Trials in all", len(report.trials) + 1, MAX_TRIALS,
                                       min(MAX_TRIALS, search.trials + 20), step=1, key=f"search/more/{search.trials}")
                st.button("Continue", key="search/continue", type="primary", icon=":material/play_arrow:",
                          on_click=messages.attempt, args=(resume, name, int(more)))
        else:
            st.button("Resume", key="search/resume", type="primary", icon=":material/play_arrow:",
                      on_click=messages.attempt, args=(resume, name),
                      help="Open trials continue from their last checkpoint")
        PAGE.offer_deletion(name)
    if status.error:
        messages.error(status.error)


def resume(name: str, trials: int | None = None) -> None:
    from acenode.execution.study_run import check_data  # needs torch, which the page itself does not wait for

    store = SearchStore(services().store)
    search = store.read(name)
    check_data(search, services().data_root)
    if trials is not None and trials != search.trials:
        if trials < live.report(name).tried:
            raise UserError("a search cannot have fewer trials than it has tried")
        search = replace(search, trials=trials)
        store.write(search, replace=True)
    services().searches.start(search)


def show_answer(report: SearchReport) -> None:
    """Show the charts of the trials; offer to train the best settings over seeds and test them."""
    name, best = report.search.name, report.best
    components.show("search_charts", "search-charts", {"name": name})  # the page reruns when the search starts or ends
    if best is None:
        return
    with st.container():
        st.header("Best settings", anchor=False)
        if (study := made_winner(services().store, name)) is not None:
            show_link("studies", messages.escape(f"Best settings over seeds: {study}"), study=study)
        if best.default:
            st.markdown("The defaults are the best settings so far")
            return
        st.markdown(messages.escape(messages.capital(report.best_text)))
        if report.so_far_text:
            st.caption(messages.escape(messages.capital(report.so_far_text)))
        with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
            seeds = st.text_input("Seeds", "0 1 2", key="search/winner-seeds", width=140, help="0 1 2, or 0-4")
            train = st.button("Train over seeds and test", key="search/winner", type="primary",
                              icon=":material/emoji_events:",
                              help="Trains the best settings and the defaults with each seed, tests each run once, and "
                                   "compares them in a study")
        if not train:
            return
        try:
            with st.spinner("Adding runs to the queue"):
                made = winner_study(live.report(name), tuple(read_seeds(seeds)))
                StudyStore(services().store).write(made, replace=True)
                start_study(made)
        except (UserError, OSError) as error:
            messages.error(error)
            return
        st.switch_page(navigation.page("studies"), query_params={"study": made.name})


PAGE = QuestionPage(
    noun="search", plural="searches", store=SearchStore, asks="experiment",
    about="A search tries settings of a method and keeps those that are best on the validation data. The test set is "
          "not used: the best settings can be trained over seeds and tested once.",
    nothing="No searches yet. Choose an experiment below, say which settings to try, then press **Start**: the trials "
            "are trained one after the other.",
    names=lambda: SearchStore(services().store).names(), find=find, list_one=list_one, offer_new=offer_new,
    form=show_form, heading=heading, controls=show_controls, answer=show_answer)
