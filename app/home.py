"""The home page: what this is, in a picture that moves; what runs now; the latest results; a demo at a press."""

from __future__ import annotations

import streamlit as st

from acenode import experiments
from acenode.errors import UserError
from acenode.runs.catalogue import Entry

from . import components, labels, navigation, say, watch
from .lab import lab

LATEST = 8


def show() -> None:
    st.title("ACE-NODE Lab")
    st.markdown("Two neural ODEs that evolve together: **h(t)**, the state, and **a(t)**, the attention on it. "
                "Each reads the other at every instant, and they are trained in turn. Train them here, watch attention "
                "being learned, and put every ablation beside the paper's baselines.")
    components.hero("hero")
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        pressed = st.button("Train the demo", type="primary", icon=":material/play_arrow:", key="demo",
                            help="ACE-ODE-Net on the bundled digits")
        st.caption("ACE-ODE-Net on scikit-learn's digits: no download, a minute or two on a CPU.")
    if pressed:
        try:
            run = lab().launcher.start(experiments.get("mnist").configure("ace"))
        except (UserError, OSError) as error:
            say.trouble(error)
            return
        watch.look_at(experiments.get("mnist"), [run.id])
        st.switch_page(navigation.experiment("mnist"), query_params={"runs": run.id})
    st.subheader("Latest results")
    _results(lab().catalogue.entries())
    st.page_link(navigation.compare(), label="Compare runs side by side", icon=":material/compare_arrows:")


def _results(entries: list[Entry]) -> None:
    done = [e for e in entries if e.state == "finished"][:LATEST]
    if not done:
        st.info("No finished run yet. **Train the demo** above makes the first one.", icon=":material/flag:")
        return
    st.dataframe(
        [{"open": f"/{e.experiment}?runs={e.id}", "experiment": e.experiment, "run": labels.group(e),
          "test": f"{labels.measure_of(e).title} {labels.value(e, e.value)}", "data": labels.data(e), "seed": e.seed,
          "time": labels.duration(e.seconds)} for e in done],
        hide_index=True, column_config={"open": st.column_config.LinkColumn("", display_text="open"),
                                        "run": st.column_config.TextColumn(width="medium")})
