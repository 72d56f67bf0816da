"""The home page: what ACE-NODE is, the player on a recorded run, recorded results, a demo, the latest own results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from urllib.parse import urlencode

import streamlit as st

from acenode import experiments
from acenode.compare.against_host import contests, prediction_note, summary
from acenode.compare.cells import mean_text, measure, measure_all, printed_text, repeats_text
from acenode.compare.groups import group_settings, method_title
from acenode.compare.metrics import metric_format
from acenode.compare.paper import CELLS, HOSTS, PaperCell
from acenode.compare.study_grid import WITHOUT
from acenode.compare.verdict import judge
from acenode.errors import UserError
from acenode.runs.entry import Entry

from . import components, labels, messages, navigation
from .services import services

LATEST = 8  # results in the table
COLUMNS = ["Method", "Seed", "Test result", "Experiment", "Open", "Metric", "Created", "Settings", "Data",
           "Training time"]
ABOUT = {"silhouette": "Silhouette: how far apart clusters of the features are",
         "negll": "Test NegLL: negative log-likelihood of the forecasts"}
CHOSEN = frozenset({"attention", "epochs"})  # pages choose the attention themselves; the length changes no method
PREFERRED = ("physionet", "mnist", "ushcn")  # shown first if they have as many kinds of attention as the others
KINDS = {"evolving": "Evolving: attention has an ODE of its own, beside that of the state",
         "fixed": "Fixed: attention has no ODE; it is computed anew from the state at every time",
         "none": "None: the method that ACE extends, without attention"}

Example = dict[str, Entry]  # the recorded run of an experiment for each kind of attention: evolving, fixed, none


def show() -> None:
    st.title("ACE-NODE Lab")
    st.markdown("Two neural ODEs that evolve together: one moves the **state (h)**, the other the **attention (a)** on "
                "it. Each depends on the other at every moment, and they are trained alternately. Train them here, "
                "watch the attention develop, and compare every ablation with the paper's baselines.")
    entries = services().catalogue.entries()
    if shipped := [e for e in entries if e.recorded]:
        findings = [judge(contest) for contest in contests(measure_all(shipped))]
        st.markdown(f"Does attention help? **{messages.escape(summary(findings))}** "
                    f"{messages.escape(prediction_note(findings))} The recorded runs behind this are below.")
    with st.container(horizontal=True, gap="medium"):
        for page, label, icon in (("tour", navigation.TOUR, "school"), ("playground", navigation.PLAYGROUND, "toys"),
                                  ("your-data", "Your data: train on a table of your own", "upload_file")):
            st.page_link(navigation.page(page), label=label, icon=f":material/{icon}:", width="content")
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        pressed = st.button("Train the demo", type="primary", icon=":material/play_arrow:", key="demo",
                            help="ACE-ODE-Net on the bundled digits")
        st.caption("ACE-ODE-Net on scikit-learn's digits: no download, a few minutes on a CPU")
    if pressed:
        try:
            run = services().launcher.start(experiments.get("mnist").configure("ace"))
            st.session_state["scroll"] = run.id  # to its player
            st.switch_page(navigation.page("mnist"), query_params={"runs": run.id})
        except (UserError, OSError) as error:
            messages.error(error)
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        st.page_link(navigation.page("studies"), label="Study: does attention help?", icon=":material/quiz:",
                     query_params={"experiment": "mnist", "preset": "attention"})
        st.caption("Evolving, fixed and no attention on the digits, three seeds each, with an answer in words")
    if found := examples(entries):
        show_player(found)
        st.header("Recorded results")
        cards = [card for ace in CELLS.values() if ace.method == "ace" and not ace.ablation
                 if (card := result_card(ace, [e for e in shipped if e.experiment == ace.experiment]))]
        if cards:
            st.html(f'<div class="ace-results">{"".join(cards)}</div>')
            st.caption("Mean ± standard deviation over seeds or folds on real data, from the runs that come with the "
                       "project. Click a value to see its runs.")
        st.page_link(navigation.page("paper"), label="All tables of the paper", icon=":material/article:")
    st.header("Latest results")
    finished = [e for e in entries if e.state == "finished" and not e.recorded and not e.search][:LATEST]
    if finished:
        from . import run_tables  # pandas takes longer to load than the rest of a first visit

        run_tables.show(finished, COLUMNS)
    else:
        st.info("No finished runs of your own yet. Press **Train the demo** above to create the first one.",
                icon=":material/flag:")
    st.page_link(navigation.page("compare"), label="Compare runs side by side", icon=":material/compare_arrows:")


def result_card(ace: PaperCell, entries: list[Entry]) -> str:
    """Return the card of a column of a table, measured beside printed: host method, augmented and ACE; empty if ACE is
    not measured."""
    texts = []
    found: dict[str, list[str]] = {}  # how many seeds or folds and epochs the values have, once if all have the same
    for method in (HOSTS[ace.experiment], "augmented", "ace"):
        cell = next((c for c in CELLS.values() if (c.experiment, c.method, c.metric) == (ace.experiment, method,
                     ace.metric) and c.settings == ace.settings), None)
        if cell is None:
            continue
        measured = measure(cell, entries)
        partial, ours = measured.mark == "partial", escape(mean_text(cell, measured))
        if measured.n:
            link = escape(f"paper?{urlencode({'cell': cell.key})}")
            ours = f'<a href="{link}" target="_self" title="{escape(repeats_text(measured))}">{ours}</a>'
            found.setdefault(repeats_text(measured), []).append(cell.title)
        elif method == "ace":
            return ""
        texts.append([escape(cell.title), ours + " (part of the data)" * partial,
                      "not compared" if partial else escape(printed_text(cell))])
    note = next(iter(found)) if len(found) == 1 else "; ".join(
        f"{', '.join(titles)}: {repeats}" for repeats, titles in found.items())
    task = f", {ace.settings['task']}" if "task" in ace.settings else ""
    arrow = "higher is better" if ace.format.higher_is_better else "lower is better"
    about = f"{ABOUT.get(ace.metric, f'Test {ace.format.heading}')}, {arrow}"
    title = f"{experiments.get(ace.experiment).title}{task}"
    return card_html(title, about, ("Method", "Here", "Paper"), texts, note)


def rank(entry: Entry) -> tuple[int, int, int]:
    """Return a key that sorts the run to show first to the front: fewest changed settings, then most snapshots, then
    the smallest seed."""
    return len(group_settings(entry.config).keys() - CHOSEN), -len(entry.run.snapshots()), entry.seed


def examples(entries: list[Entry]) -> dict[str, Example]:
    """Return the experiments with a recorded run of ACE that the player can show, those with most kinds of attention
    first."""
    found = {name: kinds for name in (*experiments.EXPERIMENTS, *experiments.EXAMPLES)
             if "evolving" in (kinds := _kinds([e for e in entries if e.recorded and e.experiment == name]))}
    order = [*PREFERRED, *(name for name in found if name not in PREFERRED)]
    return {name: found[name] for name in sorted(found, key=lambda n: (-len(found[n]), order.index(n)))}


def _kinds(entries: list[Entry]) -> Example:
    """Return a run of each kind of attention that has snapshots, all of one seed if there is one that all have: the one
    whose least followed run has most snapshots. Without attention, ACE is its host method."""
    found: dict[str, list[Entry]] = {}
    for kind in KINDS:
        runs = [e for e in entries if e.method == "ace" and e.config.get("attention") == kind] or [
            e for e in entries if kind == "none" and e.method == HOSTS.get(e.experiment, WITHOUT)]
        if playable := [e for e in runs if e.run.snapshots()]:
            found[kind] = sorted(playable, key=rank)
    seeds = set[int].intersection(*({e.seed for e in runs} for runs in found.values())) if found else set[int]()
    by_seed = [{kind: next(e for e in runs if e.seed == seed) for kind, runs in found.items()} for seed in seeds]
    return min(by_seed, default={kind: runs[0] for kind, runs in found.items()},
               key=lambda kinds: max(map(rank, kinds.values())))


def show_player(found: dict[str, Example]) -> str:
    """Show the player with a choice of data and kind of attention, which the URL keeps; return the experiment."""
    with st.container(horizontal=True, gap="large", vertical_alignment="bottom", key="home-choice"):
        name = st.selectbox("Recorded run on", list(found), key="on", bind="query-params", width=260,
                            format_func=lambda n: experiments.get(n).title)
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
        st.caption(KINDS[kind])
    with st.container(key="home-player"):  # page.css reserves its height
        components.player("home-player-runs", labels.for_charts([entry]), start_at=components.PLAYER_START)
    with st.container(horizontal=True, gap="medium", vertical_alignment="center", key="home-run"):
        measure = metric_format(entry.metric, entry.experiment)
        seed = f"seed {entry.seed}" + f" (evolving attention: seed {evolving})" * (entry.seed != evolving)
        method, data = method_title(entry.experiment, entry.method), experiments.get(name).title
        st.caption(messages.escape(f"{method} on {data}, test {measure.title} {measure.text(entry.value)}, {seed}, "
                                   f"recorded: {labels.provenance(entry)}"), width="content")
        st.page_link(navigation.page(entry.experiment), label="Open this run with its curves and results",
                     icon=":material/open_in_full:", query_params={"runs": entry.id})
    return name


def card_html(title: str, about: str, heads: Sequence[str], rows: Iterable[Sequence[str]], note: str,
                style: str = "") -> str:
    """Return a table of results as HTML. Its cells are HTML already; `style` is the class of the note below it."""
    heading = "".join(f"<th>{head}</th>" for head in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return (f"<section><h3>{escape(title)}</h3><p>{escape(about)}</p><table><thead><tr>{heading}</tr></thead>"
            f'<tbody>{body}</tbody></table><p class="{style}">{escape(note)}</p></section>')
