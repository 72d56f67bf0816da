"""What studies and searches are called in the app, and links to them."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from acenode.compare.study_grid import group_names, kind_of, presets
from acenode.experiments import Experiment
from acenode.runs.questions import Study

from .. import messages, navigation

OWN = "own"  # the preset that stands for a question of one's own
TITLES = {"attention": "Does attention help?", "host": "Is ACE better than other methods?",
          "schedule": "Train in turns or jointly?", "size": "Does a larger network do the same?",
          OWN: "A question of your own"}


@dataclass(frozen=True)
class QuestionLinks:
    """Links to questions of one kind; `noun` is also the query parameter of their page that names one."""

    noun: str
    page: str  # its address
    icon: str

    def show_all(self) -> None:
        """Show the link to the list."""
        st.page_link(navigation.page(self.page), label=f"All {self.page}", icon=":material/arrow_back:")

    def show(self, label: str, **query: str) -> None:
        """Show the link to a question, or to the form of a new one, as the query says."""
        st.page_link(navigation.page(self.page), label=label, icon=f":material/{self.icon}:", query_params=query)

    def open(self, name: str) -> None:
        """Open a question at the next rerun."""
        st.query_params.from_dict({self.noun: name})


STUDIES, SEARCHES = QuestionLinks("study", "studies", "quiz"), QuestionLinks("search", "searches", "manage_search")


def show_study(name: str, label: str) -> None:
    """Show the link to a study."""
    STUDIES.show(messages.escape(label), study=name)


def show_presets(experiment: Experiment) -> None:
    """Show links to all ready-made studies of an experiment, and to a study of one's own."""
    for study in presets(experiment.name):
        STUDIES.show(TITLES[kind_of(study)], experiment=experiment.name, preset=kind_of(study))
        st.caption(messages.escape(summary(study)))
    STUDIES.show(TITLES[OWN], experiment=experiment.name, preset=OWN)


def summary(study: Study) -> str:
    """Say what is compared and how often: `evolving attention, fixed attention, no attention; 3 seeds`."""
    word = "fold" if study.folds and len(study.seeds) < 2 else "run" if study.folds else "seed"
    return f"{', '.join(group_names(study))}; {messages.count(len(study.repeats), word)} each"
