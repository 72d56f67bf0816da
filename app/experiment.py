"""An experiment's page, made from its entry in the registry: set up, train, watch."""

from __future__ import annotations

from functools import partial

import streamlit as st

from acenode import experiments
from acenode.config import KEYS, read_seeds
from acenode.errors import UserError
from acenode.execution.devices import kinds
from acenode.experiments import Experiment

from . import ablations, data_state, form, labels, preset, say, watch
from .form import Wish

IN_A_ROW = 5  # methods that fit beside each other


def show(name: str) -> None:
    experiment = experiments.get(name)
    st.title(experiment.title)
    st.caption(experiment.summary.removeprefix(f"{experiment.title}: "))
    start = preset.read(experiment)
    data, method = _what(experiment, start)
    ready = data == "sample" or data_state.show(experiment)
    if data == "sample":
        st.caption(f":material/database: {experiment.about_sample}. Its numbers do not compare with the paper's.")
    wish = form.settings(experiment, method, data, start.values if start.method == method else {}, start.mark)
    _launch(experiment, wish, ready, start)
    ablations.show(experiment, wish, ready)
    watch.show(experiment)


def _what(experiment: Experiment, start: preset.Preset) -> tuple[str, str]:
    """The data and the method, both kept in the URL."""
    methods = list(experiment.methods)
    if st.session_state.get("preset", "") != start.mark:  # another run is to be repeated
        st.session_state["preset"] = start.mark
        if start.mark:
            st.session_state["data"], st.session_state["method"] = start.data, start.method
    for key, options, begin in (("data", ("sample", "full"), start.data), ("method", methods, start.method)):
        if st.session_state.get(key, begin) not in options:  # from another experiment's page
            st.session_state.pop(key, None)
    few = len(methods) <= IN_A_ROW
    with st.container(horizontal=few, gap="large" if few else "small", vertical_alignment="bottom" if few else "top"):
        data = st.segmented_control("Data", ["sample", "full"], default=start.data, key="data", required=True,
                                    bind="query-params", help=KEYS["data"].help)
        choose = st.segmented_control if few else partial(st.pills, wrap=True)
        method = choose("Method", methods, default=start.method, key="method", required=True, bind="query-params",
                        format_func=lambda m: labels.method_title(experiment.name, m))
    return data or start.data, method or start.method


def _launch(experiment: Experiment, wish: Wish, ready: bool, start: preset.Preset) -> None:
    """Seeds, device, what it will be, and the button."""
    faults = list(wish.faults)
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        text = st.text_input("Seeds", start.seeds, key=f"seeds/{start.mark}", width=160,
                             help="one, several (0, 1, 2) or a range (0-4): a run each")
        device = "auto"
        if len(kinds()) > 1:
            known = ["auto", *kinds()]
            device = st.selectbox("Device", known, known.index(start.device) if start.device in known else 0, width=120,
                                  key=f"device/{start.mark}", help=KEYS["device"].help)
        try:
            seeds = read_seeds(text)
        except UserError as error:
            seeds = []
            faults.append(str(error))
            say.refused(error)
        params = None
        if not faults:
            try:
                params = form.parameters(wish.configure(experiment))
            except UserError as error:
                faults.append(str(error))
                say.refused(error)
        pressed = st.button("Train" if len(seeds) < 2 else f"Train {len(seeds)} runs", type="primary",
                            icon=":material/play_arrow:", disabled=bool(faults) or not ready, key="train")
        if params is not None:
            st.caption(f"{params:,} parameters")
    if pressed:
        _start(experiment, wish, seeds, device)


def _start(experiment: Experiment, wish: Wish, seeds: list[int], device: str) -> None:
    watch.start(experiment, [wish.configure(experiment, seed=seed, device=device) for seed in seeds])
