"""Links to studies: to one of them, to the form of a new one, and to all."""

from __future__ import annotations

import contextlib

import streamlit as st

from acenode.compare.study_grid import kind_of, presets
from acenode.errors import UserError
from acenode.experiments import EXAMPLES, EXPERIMENTS, Experiment, get, imported_names

from .. import messages, navigation
from . import study_draft

STUDY, EXPERIMENT, PRESET = "study", "experiment", "preset"  # query parameters of the page Studies
SHORT = {"attention": "Does attention help?", "host": "Is ACE better than other methods?",
         "schedule": "Train in turns or jointly?", "size": "Does a larger network do the same?"}


def experiment_names() -> list[str]:
    """Return the names of all experiments: of the paper, examples of named variables, and imported sets that can be
    read."""
    names = [*EXPERIMENTS, *EXAMPLES]
    for name in imported_names():
        with contextlib.suppress(UserError):  # the page Your data says what is wrong with the others
            names.append(get(name).name)
    return names


def show_all() -> None:
    """Show the link to the list of studies."""
    st.page_link(navigation.studies(), label="All studies", icon=":material/arrow_back:")


def show_study(name: str, label: str) -> None:
    """Show the link to a study."""
    st.page_link(navigation.studies(), label=messages.escape(label), icon=":material/quiz:", query_params={STUDY: name})


def show_preset(experiment: str, kind: str, label: str) -> None:
    """Show the link to the form of a ready-made study."""
    st.page_link(navigation.studies(), label=label, icon=":material/quiz:",
                 query_params={EXPERIMENT: experiment, PRESET: kind})


def show_presets(experiment: Experiment) -> None:
    """Show links to all ready-made studies of an experiment, and to a study of one's own."""
    for study in presets(experiment.name):
        kind = kind_of(study)
        show_preset(experiment.name, kind, SHORT[kind])
        st.caption(messages.escape(study_draft.summary(study)))
    show_preset(experiment.name, study_draft.OWN, "A question of your own")


def go_to(name: str) -> None:
    """Open a study at the next rerun."""
    st.query_params.from_dict({STUDY: name})
