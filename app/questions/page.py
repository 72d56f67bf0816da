"""The page of studies or of searches, a list, the form of a new one, or one of them, and links to it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from acenode import experiments
from acenode.compare.fairness import equal_study, fairness
from acenode.compare.study_grid import StudyGrid, group_names, kind_of, make_grid, presets
from acenode.config import SETTINGS
from acenode.config.ranges import NOT_SEARCHED
from acenode.errors import UserError
from acenode.experiments import Experiment
from acenode.runs.questions import MAX_NAME, QuestionStore, Study, StudyStore

from .. import messages, navigation
from ..services import services

NO_DATA = "The full data is not on this machine yet"
OWN = "own"  # the preset that stands for a question of one's own
TITLES = {"attention": "Does attention help?", "host": "Is ACE better than other methods?",
          "schedule": "Train in turns or jointly?", "size": "Does a larger network do the same?",
          OWN: "A question of your own"}


def show_link(page: str, label: str, icon: str = "", **query: str) -> None:
    """Show the link to a study or search, or to the list or the form of a new one, as the query says."""
    st.page_link(navigation.page(page), label=label, query_params=query,
                 icon=f":material/{icon or navigation.ICONS[page]}:")


def show_presets(experiment: Experiment) -> None:
    for study in presets(experiment.name):
        show_link("studies", TITLES[kind_of(study)], experiment=experiment.name, preset=kind_of(study))
        st.caption(messages.escape(summary(study)))
    show_link("studies", TITLES[OWN], experiment=experiment.name, preset=OWN)


def summary(study: Study) -> str:
    """Say what is compared and how often: `evolving attention, fixed attention, no attention; 3 seeds`."""
    word = "fold" if study.folds and len(study.seeds) < 2 else "run" if study.folds else "seed"
    return f"{', '.join(group_names(study))}; {messages.count(len(study.repeats), word)} each"


@dataclass(frozen=True)
class QuestionPage:
    """What differs between the pages of studies and of searches."""

    noun: str  # also the query parameter that names one
    plural: str  # also the address
    store: type[QuestionStore[Any]]
    about: str  # says in the list what they are
    nothing: str  # is shown in the list while there are none
    asks: str  # the query parameter that opens the form
    names: Callable[[], list[str]]  # of the stored questions
    find: Callable[[str], Any]  # a question with its runs; a UserError says why there is none
    list_one: Callable[[str], Any]  # shows a question in the list and returns it
    offer_new: Callable[[], None]  # shows links to the form
    form: Callable[[], None]  # shows the form
    heading: Callable[[Any], tuple[str, str]]  # title and caption of a question
    controls: Callable[[Any], None]  # says in a line what happens, and offers to start, stop and continue
    answer: Callable[[Any], None]  # shows the live view and the answer
    list_more: Callable[[Sequence[Any]], None] = lambda found: None  # shows what belongs below the list

    def show(self) -> None:
        # written again when it names something else: links within one page do not change the browser's address
        named = [st.query_params.get(key) for key in (self.noun, "experiment", self.asks)]
        if st.session_state.get(f"{self.plural}/address") != named:
            st.session_state[f"{self.plural}/address"] = named
            st.query_params.from_dict(st.query_params.to_dict())
        if not st.query_params.keys() & {self.noun, self.asks}:
            self._show_list()
            return
        show_link(self.plural, f"All {self.plural}", "arrow_back")
        if self.noun in st.query_params:
            self._show_one(st.query_params[self.noun])
        else:
            self.form()

    def _show_list(self) -> None:
        st.title(self.plural.capitalize())
        st.caption(self.about)
        if names := self.names():
            st.header(f"Your {self.plural}", anchor=False)
            found = []
            for name in names:
                with st.container(border=True, gap="xsmall"):
                    try:
                        found.append(self.list_one(name))
                    except UserError as error:
                        messages.error(error)
            self.list_more(found)
        else:
            st.info(self.nothing, icon=f":material/{navigation.ICONS[self.plural]}:")
        st.header(f"New {self.noun}", anchor=False)
        self.offer_new()

    def _show_one(self, name: str) -> None:
        noun = self.noun
        try:
            found = self.find(name)
        except UserError as error:
            st.title(noun.capitalize(), anchor=False)
            messages.invalid(error)
            return
        title, caption = self.heading(found)
        st.title(messages.escape(title), anchor=False)
        st.caption(messages.escape(caption))
        with st.container(key=f"{noun}-controls"):  # a container each: what comes or goes does not rebuild the rest
            self.controls(found)
        self.answer(found)

    def offer_deletion(self, name: str) -> None:
        noun = self.noun
        with st.popover("Delete", icon=":material/delete:", key=f"{noun}/delete-box"):
            st.markdown(f"Deletes the {noun}. Its runs stay.")
            if st.button(f"Delete the {noun}", key=f"{noun}/delete"):
                try:
                    self.store(services().store).delete(name)
                except UserError as error:
                    messages.error(error)
                    return
                st.query_params.clear()
                st.rerun()


def ask_experiment(key: str, **look: Any) -> str:
    return st.selectbox("Experiment", navigation.experiment_names(), key=key,
                        format_func=lambda name: experiments.get(name).title, **look) or "mnist"


def action_line() -> tuple[DeltaGenerator, DeltaGenerator]:
    """Return a line for the buttons that act on a question, and the place of a sentence before them."""
    line = st.container(horizontal=True, vertical_alignment="center", gap="small", key="study-line")
    return line, line.container(width="stretch", key="study-sentence")


def start_study(study: Study, device: str = "auto") -> None:
    """Queue the runs that are missing, and continue those that are unfinished."""
    from acenode.execution.study_run import check_data, queue_study

    check_data(study, services().data_root)
    entries = services().catalogue.entries()
    queue_study(make_grid(study, entries), services().launcher, entries, device=device)


def stop_study(grid: StudyGrid) -> None:
    """Stop the study's runs: queued ones leave the queue, running ones write a checkpoint. The last ones first, so
    that no queued run starts meanwhile."""
    for cell in reversed(grid.running):
        if cell.entry is not None:
            with contextlib.suppress(UserError):  # it has ended meanwhile
                services().launcher.stop(cell.entry.run)


def settings_of(experiment: Experiment, methods: list[str]) -> list[str]:
    uses = frozenset().union(*(experiment.method(method).uses for method in methods)) - NOT_SEARCHED
    return [key for key, setting in SETTINGS.items() if key in uses and setting.group != "record"]


def show_fairness(grid: StudyGrid) -> tuple[Study, str] | None:
    """Say in what the groups differ besides what varies; return the equal study and its changes, if there is one."""
    notes = fairness(grid)
    if not notes:
        st.caption(":material/balance: The groups differ in nothing but what varies")
        return None
    lines = "\n".join(f"- {messages.escape(messages.capital(note.text))}" for note in notes)
    st.warning(f"The groups differ in more than what varies:\n{lines}", icon=":material/balance:")
    changes = [note.change for note in notes if note.change]
    equal = equal_study(grid) if changes else None
    return None if equal is None else (equal, "; ".join(changes))


def stored_as(study: Study, store: StudyStore) -> Study:
    """Store a study, if it is not yet, under a name that is free; return it with that name."""
    name, number = study.name, 1
    while store.exists(name):
        with contextlib.suppress(UserError):  # a file that cannot be read keeps its name
            if store.read(name) == replace(study, name=name):
                return replace(study, name=name)
        number += 1
        name = f"{study.name[:MAX_NAME - 1 - len(str(number))]}-{number}"
    study = replace(study, name=name)
    store.write(study)
    return study
