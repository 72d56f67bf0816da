"""The page of an experiment, built from its entry in the registry: configure, train, watch."""

from __future__ import annotations

from functools import partial

import streamlit as st

from acenode import experiments
from acenode.config import KEYS, read_seeds
from acenode.errors import UserError
from acenode.execution.devices import kinds
from acenode.experiments import Experiment

from . import ablations, form, full_data, labels, live_runs, messages, preset
from .form import FormValues

METHODS_PER_ROW = 5


def show(name: str) -> None:
    """Show the page of the experiment with this name."""
    experiment = experiments.get(name)
    st.title(experiment.title)
    summary = experiment.summary.removeprefix(f"{experiment.title}: ")
    st.caption(summary[:1].upper() + summary[1:])
    start = preset.read(experiment)
    data, method = _choose_data_and_method(experiment, start)
    ready = data == "sample" or full_data.show(experiment)
    if data == "sample":
        st.caption(f":material/database: Sample: {experiment.about_sample}. Not comparable with the paper")
    values = form.show(experiment, method, data, start.values if start.method == method else {}, start.name)
    _launch(experiment, values, ready, start)
    ablations.show(experiment, values, ready)
    live_runs.show(experiment)


def _choose_data_and_method(experiment: Experiment, start: preset.Preset) -> tuple[str, str]:
    """Ask for the data and the method, which the URL keeps."""
    methods = list(experiment.methods)
    if st.session_state.get("preset", "") != start.name:  # another run was chosen to start from
        st.session_state["preset"] = start.name
        if start.name:
            st.session_state["data"], st.session_state["method"] = start.data, start.method
    for key, options, initial in (("data", ("sample", "full"), start.data), ("method", methods, start.method)):
        if st.session_state.get(key, initial) not in options:  # left over from another experiment's page
            st.session_state.pop(key, None)
    few = len(methods) <= METHODS_PER_ROW
    with st.container(horizontal=few, gap="large" if few else "small", vertical_alignment="bottom" if few else "top"):
        data = st.segmented_control("Data", ["sample", "full"], default=start.data, key="data", required=True,
                                    bind="query-params", help=KEYS["data"].help)
        choose = st.segmented_control if few else partial(st.pills, wrap=True)
        method = choose("Method", methods, default=start.method, key="method", required=True, bind="query-params",
                        format_func=lambda m: labels.method_title(experiment.name, m))
    return data or start.data, method or start.method


def _launch(experiment: Experiment, values: FormValues, ready: bool, start: preset.Preset) -> None:
    """Ask for seeds and device, show the number of parameters, and train when the button is pressed."""
    errors = list(values.errors)
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        text = st.text_input("Seeds", start.seeds, key=f"seeds/{start.name}", width=160,
                             help="One seed, several (0, 1, 2) or a range (0-4). Each seed is one run.")
        device = "auto"
        if len(kinds()) > 1:
            known = ["auto", *kinds()]
            device = st.selectbox("Device", known, known.index(start.device) if start.device in known else 0, width=120,
                                  key=f"device/{start.name}", help=KEYS["device"].help)
        try:
            seeds = read_seeds(text)
        except UserError as error:
            seeds = []
            errors.append(str(error))
            messages.invalid(error)
        params = None
        if not errors:
            try:
                params = form.parameters(values.configure(experiment))
            except UserError as error:
                errors.append(str(error))
                messages.invalid(error)
        pressed = st.button("Train" if len(seeds) < 2 else f"Train {len(seeds)} runs", type="primary",
                            icon=":material/play_arrow:", disabled=bool(errors) or not ready, key="train")
        if params is not None:
            st.caption(f"{params:,} parameters")
    if pressed:
        live_runs.start(experiment, [values.configure(experiment, seed=seed, device=device) for seed in seeds])
