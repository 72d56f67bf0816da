"""The home page: what ACE-NODE is, the player on a recorded run, recorded results, a demo, the latest own results."""

from __future__ import annotations

import streamlit as st

from acenode import experiments
from acenode.compare.against_host import contests, prediction_note, summary
from acenode.compare.cells import measure_all
from acenode.compare.verdict import judge
from acenode.errors import UserError
from acenode.runs.entry import Entry

from .. import messages, navigation
from ..playground import texts as playground_texts
from ..services import services
from ..tour import texts as tour_texts
from . import recorded_player, recorded_results

LATEST = 8  # results in the table
COLUMNS = ["Method", "Seed", "Test result", "Experiment", "Open", "Metric", "Created", "Settings", "Data",
           "Training time"]


def show() -> None:
    """Show the page."""
    st.title("ACE-NODE Lab")
    st.markdown("Two neural ODEs that evolve together: one moves the **state (h)**, the other the **attention (a)** on "
                "it. Each depends on the other at every moment, and they are trained alternately. Train them here, "
                "watch the attention develop, and compare every ablation with the paper's baselines.")
    entries = services().catalogue.entries()
    _show_finding([e for e in entries if e.recorded])
    with st.container(horizontal=True, gap="medium"):
        st.page_link(navigation.tour(), label=tour_texts.LINK, icon=":material/school:", width="content")
        st.page_link(navigation.playground(), label=playground_texts.LINK, icon=":material/toys:", width="content")
        st.page_link(navigation.your_data(), label="Your data: train on a table of your own",
                     icon=":material/upload_file:", width="content")
    _show_demo()
    _show_study()
    examples = recorded_player.examples(entries)
    if examples:
        recorded_player.show(examples)
        st.header("Recorded results")
        if recorded_results.show([e for e in entries if e.recorded]):
            st.caption("Mean ± standard deviation over seeds or folds on real data, from the runs that come with the "
                       "project. Click a value to see its runs.")
        st.page_link(navigation.paper(), label="All tables of the paper", icon=":material/article:")
    st.header("Latest results")
    _show_results(entries)
    st.page_link(navigation.compare(), label="Compare runs side by side", icon=":material/compare_arrows:")


def _show_finding(recorded: list[Entry]) -> None:
    """Say where ACE is ahead of the methods that it extends, by the runs that come with the project."""
    if recorded:
        findings = [judge(contest) for contest in contests(measure_all(recorded))]
        st.markdown(f"Does attention help? **{messages.escape(summary(findings))}** "
                    f"{messages.escape(prediction_note(findings))} The recorded runs behind this are below.")


def _show_demo() -> None:
    """Offer to train the demo, and open it when it was started."""
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        pressed = st.button("Train the demo", type="primary", icon=":material/play_arrow:", key="demo",
                            help="ACE-ODE-Net on the bundled digits")
        st.caption("ACE-ODE-Net on scikit-learn's digits: no download, a few minutes on a CPU")
    if pressed:
        from ..experiment import live_runs  # it loads the charts, which the first page does without

        try:
            run = services().launcher.start(experiments.get("mnist").configure("ace"))
        except (UserError, OSError) as error:
            messages.error(error)
            return
        live_runs.select(experiments.get("mnist"), [run.id])
        st.switch_page(navigation.experiment("mnist"), query_params={"runs": run.id})


def _show_study() -> None:
    """Offer the study of attention on the digits."""
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        st.page_link(navigation.studies(), label="Study: does attention help?", icon=":material/quiz:",
                     query_params={"experiment": "mnist", "preset": "attention"})
        st.caption("Evolving, fixed and no attention on the digits, three seeds each, with an answer in words")


def _show_results(entries: list[Entry]) -> None:
    finished = [e for e in entries if e.state == "finished" and not e.recorded and not e.search][:LATEST]
    if not finished:
        st.info("No finished runs of your own yet. Press **Train the demo** above to create the first one.",
                icon=":material/flag:")
        return
    from .. import run_tables  # pandas takes longer to load than the rest of a first visit

    run_tables.show(finished, COLUMNS)
