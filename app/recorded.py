"""Recorded runs: which of several a page shows first, and the player with a choice of the kind of attention."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import streamlit as st

from acenode.compare.groups import group_settings, method_title
from acenode.compare.metrics import metric_format
from acenode.compare.paper import HOSTS
from acenode.compare.study_grid import WITHOUT
from acenode.experiments import EXAMPLES, EXPERIMENTS, get
from acenode.runs.entry import Entry

from . import components, labels, messages, navigation

CHOSEN = frozenset({"attention", "epochs"})  # pages choose the attention themselves; the length changes no method
PREFERRED = ("physionet", "mnist", "ushcn")  # shown first if they have as many kinds of attention as the others
ABOUT = {"evolving": "Evolving: attention has an ODE of its own, beside that of the state",
         "fixed": "Fixed: attention has no ODE; it is computed anew from the state at every time",
         "none": "None: the method that ACE extends, without attention"}

Example = dict[str, Entry]  # the recorded run of an experiment for each kind of attention: evolving, fixed, none


def rank(entry: Entry) -> tuple[int, int, int]:
    """Return a key that sorts the run to show first to the front: fewest changed settings, then most snapshots, then
    the smallest seed."""
    return len(group_settings(entry.config).keys() - CHOSEN), -len(entry.run.snapshots()), entry.seed


def longest_first(entry: Entry) -> tuple[int, int, int, int]:
    """Return a key like `rank` that puts longer training before more snapshots: the runs of the paper's tables."""
    changed, snapshots, seed = rank(entry)
    return changed, -entry.epochs, snapshots, seed


def examples(entries: list[Entry]) -> dict[str, Example]:
    """Return the experiments with a recorded run of ACE that the player can show, those with most kinds of attention
    first."""
    found = {name: kinds for name in (*EXPERIMENTS, *EXAMPLES)
             if "evolving" in (kinds := _kinds([e for e in entries if e.recorded and e.experiment == name]))}
    order = [*PREFERRED, *(name for name in found if name not in PREFERRED)]
    return {name: found[name] for name in sorted(found, key=lambda n: (-len(found[n]), order.index(n)))}


def _kinds(entries: list[Entry]) -> Example:
    """Return a run of each kind of attention that has snapshots, all of one seed if there is one that all have.

    Without attention, ACE is its host method. Of several seeds, the one whose least followed run has most snapshots is
    chosen.
    """
    found: dict[str, list[Entry]] = {}
    for kind in ABOUT:
        runs = [e for e in entries if e.method == "ace" and e.config.get("attention") == kind] or [
            e for e in entries if kind == "none" and e.method == HOSTS.get(e.experiment, WITHOUT)]
        if playable := [e for e in runs if e.run.snapshots()]:
            found[kind] = sorted(playable, key=rank)
    seeds = set[int].intersection(*({e.seed for e in runs} for runs in found.values())) if found else set[int]()
    by_seed = [{kind: next(e for e in runs if e.seed == seed) for kind, runs in found.items()} for seed in seeds]
    return min(by_seed, default={kind: runs[0] for kind, runs in found.items()},
               key=lambda kinds: max(map(rank, kinds.values())))


def show_player(found: dict[str, Example]) -> str:
    """Show the player with a choice of the data and of the kind of attention, kept in the URL; return the experiment.

    page.css reserves the height of the container of the player.
    """
    with st.container(horizontal=True, gap="large", vertical_alignment="bottom", key="home-choice"):
        name = st.selectbox("Recorded run on", list(found), key="on", bind="query-params", width=260,
                            format_func=lambda n: get(n).title)
        name = name if name in found else next(iter(found))
        kinds = list(found[name])
        if st.session_state.get("attention", kinds[0]) not in kinds:  # this experiment has no such run
            st.session_state["attention"] = kinds[0]
        kind = st.segmented_control("Attention (a)", kinds, default=kinds[0], key="attention", required=True,
                                    bind="query-params", help="evolving: attention has an ODE of its own; fixed: "
                                    "it is the correlation of the state at every moment; none: the method that ACE "
                                    "extends")
    kind = kind if kind in kinds else kinds[0]
    entry, evolving = found[name][kind], found[name]["evolving"].seed
    with st.container(key="home-about"):
        st.caption(ABOUT[kind])
    with st.container(key="home-player"):
        components.player("home-player-runs", labels.for_charts([entry]), start_at=components.PLAYER_START)
    with st.container(horizontal=True, gap="medium", vertical_alignment="center", key="home-run"):
        measure = metric_format(entry.metric, entry.experiment)
        seed = f"seed {entry.seed}" + f" (evolving attention: seed {evolving})" * (entry.seed != evolving)
        st.caption(messages.escape(f"{method_title(entry.experiment, entry.method)} on {get(name).title}, test "
                                   f"{measure.title} {measure.text(entry.value)}, {seed}, recorded: "
                                   f"{labels.provenance(entry)}"), width="content")
        st.page_link(navigation.page(entry.experiment), label="Open this run with its curves and results",
                     icon=":material/open_in_full:", query_params={"runs": entry.id})
    return name


def result_card(title: str, about: str, heads: Sequence[str], rows: Iterable[Sequence[str]], note: str,
                style: str = "") -> str:
    """Return a table of results as HTML. Its cells are HTML already; `style` is the class of the note below it."""
    heading = "".join(f"<th>{head}</th>" for head in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return (f"<section><h3>{escape(title)}</h3><p>{escape(about)}</p><table><thead><tr>{heading}</tr></thead>"
            f'<tbody>{body}</tbody></table><p class="{style}">{escape(note)}</p></section>')
