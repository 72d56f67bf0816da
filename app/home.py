"""The home page: what ACE-NODE is, the player on a recorded run, recorded results, a demo, the latest own results."""

from __future__ import annotations

from html import escape
from urllib.parse import urlencode

import streamlit as st

from acenode import experiments
from acenode.compare.against_host import contests, prediction_note, summary
from acenode.compare.cells import Measured, mean_text, measure, measure_all, printed_text, repeats_text
from acenode.compare.paper import CELLS, HOSTS, PaperCell
from acenode.compare.verdict import judge
from acenode.errors import UserError
from acenode.runs.entry import Entry

from . import messages, navigation, recorded
from .services import services

LATEST = 8  # results in the table
COLUMNS = ["Method", "Seed", "Test result", "Experiment", "Open", "Metric", "Created", "Settings", "Data",
           "Training time"]
ABOUT = {"silhouette": "Silhouette: how far apart clusters of the features are",
         "negll": "Test NegLL: negative log-likelihood of the forecasts"}


def show() -> None:
    """Show the page."""
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
    _show_demo()
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        st.page_link(navigation.page("studies"), label="Study: does attention help?", icon=":material/quiz:",
                     query_params={"experiment": "mnist", "preset": "attention"})
        st.caption("Evolving, fixed and no attention on the digits, three seeds each, with an answer in words")
    if examples := recorded.examples(entries):
        recorded.show_player(examples)
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


def _show_demo() -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        pressed = st.button("Train the demo", type="primary", icon=":material/play_arrow:", key="demo",
                            help="ACE-ODE-Net on the bundled digits")
        st.caption("ACE-ODE-Net on scikit-learn's digits: no download, a few minutes on a CPU")
    if pressed:
        from .experiment import live_runs  # it loads the charts, which the first page does without

        try:
            run = services().launcher.start(experiments.get("mnist").configure("ace"))
        except (UserError, OSError) as error:
            messages.error(error)
            return
        live_runs.select(experiments.get("mnist"), [run.id])
        st.switch_page(navigation.page("mnist"), query_params={"runs": run.id})


def result_card(ace: PaperCell, entries: list[Entry]) -> str:
    """Return the card of a column of a table, measured beside printed: host method, augmented and ACE; empty if ACE is
    not measured."""
    rows = []
    for method in (HOSTS[ace.experiment], "augmented", "ace"):
        cell = next((c for c in CELLS.values() if (c.experiment, c.method, c.metric) == (ace.experiment, method,
                     ace.metric) and c.settings == ace.settings), None)
        if cell is not None:
            rows.append((cell, measure(cell, entries)))
    if rows[-1][1].mean is None:
        return ""
    found: dict[str, list[str]] = {}  # how many seeds or folds and epochs the values have, once if all have the same
    for cell, measured in rows:
        if measured.n:
            found.setdefault(repeats_text(measured), []).append(cell.title)
    note = next(iter(found)) if len(found) == 1 else "; ".join(
        f"{', '.join(titles)}: {repeats}" for repeats, titles in found.items())
    task = f", {ace.settings['task']}" if "task" in ace.settings else ""
    arrow = "higher is better" if ace.format.higher_is_better else "lower is better"
    return recorded.result_card(f"{experiments.get(ace.experiment).title}{task}",
                                f"{ABOUT.get(ace.metric, f'Test {ace.format.heading}')}, {arrow}",
                                ("Method", "Here", "Paper"), [_row(cell, measured) for cell, measured in rows], note)


def _row(cell: PaperCell, found: Measured) -> list[str]:
    """Return a row: method, our mean ± standard deviation as a link to its runs, the printed value."""
    printed = "not compared" if found.mark == "partial" else escape(printed_text(cell))
    ours = escape(mean_text(cell, found))
    if found.n:
        link = escape(f"paper?{urlencode({'cell': cell.key})}")
        ours = f'<a href="{link}" target="_self" title="{escape(repeats_text(found))}">{ours}</a>'
    return [escape(cell.title), ours + " (part of the data)" * (found.mark == "partial"), printed]
