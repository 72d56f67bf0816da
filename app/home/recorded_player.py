"""The player on a recorded run of ACE, with evolving, fixed or no attention; for the home page."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from acenode.compare.groups import method_title
from acenode.compare.metrics import metric_format
from acenode.compare.paper import HOSTS
from acenode.compare.study_grid import WITHOUT
from acenode.experiments import EXAMPLES, EXPERIMENTS, get
from acenode.runs.entry import Entry

from .. import components, labels, messages, navigation
from . import recorded_choice

PREFERRED = ("physionet", "mnist", "ushcn")  # shown first if they have as many kinds of attention as the others
KINDS = ("evolving", "fixed", "none")
ABOUT = {"evolving": "Evolving: attention has an ODE of its own, beside that of the state",
         "fixed": "Fixed: attention has no ODE; it is computed anew from the state at every time",
         "none": "None: the method that ACE extends, without attention"}
START = 0.6  # of the time that the player shows at first: a(t) has moved by then
HEIGHT_KEY = "home-player"  # page.css reserves the height of the container with this key


@dataclass(frozen=True)
class Example:
    """An experiment with recorded runs that the player can show, one for each kind of attention."""

    experiment: str
    runs: dict[str, Entry]  # by kind: evolving, fixed, none

    @property
    def title(self) -> str:
        """The experiment's title."""
        return get(self.experiment).title


def examples(entries: list[Entry]) -> list[Example]:
    """Return the experiments with a recorded run of ACE, those with most kinds of attention first."""
    found = [Example(name, kinds) for name in (*EXPERIMENTS, *EXAMPLES)
             if "evolving" in (kinds := _kinds([e for e in entries if e.recorded and e.experiment == name]))]
    return sorted(found, key=lambda e: (-len(e.runs), PREFERRED.index(e.experiment) if e.experiment in PREFERRED
                                        else len(PREFERRED)))


def _kinds(entries: list[Entry]) -> dict[str, Entry]:
    """Return a run of each kind of attention that has snapshots, all of one seed if there is one that all have.

    Without attention, ACE is its host method. Of several seeds, the one whose least followed run has most snapshots is
    chosen.
    """
    found: dict[str, list[Entry]] = {}
    for kind in KINDS:
        runs = [e for e in entries if e.method == "ace" and e.config.get("attention") == kind] or [
            e for e in entries if kind == "none" and e.method == HOSTS.get(e.experiment, WITHOUT)]
        if playable := [e for e in runs if e.run.snapshots()]:
            found[kind] = sorted(playable, key=recorded_choice.rank)
    seeds = set[int].intersection(*({e.seed for e in runs} for runs in found.values())) if found else set[int]()
    by_seed = [{kind: next(e for e in runs if e.seed == seed) for kind, runs in found.items()} for seed in seeds]
    return min(by_seed, default={kind: runs[0] for kind, runs in found.items()},
               key=lambda kinds: max(map(recorded_choice.rank, kinds.values())))


def show(found: list[Example]) -> Example:
    """Show the player with a choice of the data and of the kind of attention, kept in the URL; return the choice."""
    by_name = {example.experiment: example for example in found}
    with st.container(horizontal=True, gap="large", vertical_alignment="bottom", key="home-choice"):
        name = st.selectbox("Recorded run on", list(by_name), key="on", bind="query-params", width=260,
                            format_func=lambda n: by_name[n].title)
        example = by_name.get(name or "", found[0])
        kinds = list(example.runs)
        if st.session_state.get("attention", kinds[0]) not in kinds:  # this experiment has no such run
            st.session_state["attention"] = kinds[0]
        kind = st.segmented_control("Attention (a)", kinds, default=kinds[0], key="attention", required=True,
                                    bind="query-params", help="evolving: attention has an ODE of its own; fixed: "
                                    "it is the correlation of the state at every moment; none: the method that ACE "
                                    "extends")
    kind = kind if kind in example.runs else kinds[0]
    entry = example.runs[kind]
    with st.container(key="home-about"):
        st.caption(ABOUT[kind])
    with st.container(key=HEIGHT_KEY):
        components.player("home-player-runs", labels.for_charts([entry]), start_at=START)
    with st.container(horizontal=True, gap="medium", vertical_alignment="center", key="home-run"):
        measure = metric_format(entry.metric, entry.experiment)
        st.caption(messages.escape(f"{method_title(entry.experiment, entry.method)} on {example.title}, test "
                                   f"{measure.title} {measure.text(entry.value)}, {_seed(example, entry)}, recorded: "
                                   f"{labels.provenance(entry)}"), width="content")
        st.page_link(navigation.experiment(entry.experiment), label="Open this run with its curves and results",
                     icon=":material/open_in_full:", query_params={"runs": entry.id})
    return example


def _seed(example: Example, entry: Entry) -> str:
    """Return the seed of a run, and that of the run with evolving attention if it is another one."""
    evolving = example.runs["evolving"].seed
    return f"seed {entry.seed}" + (f" (evolving attention: seed {evolving})" if entry.seed != evolving else "")
