"""The page of an experiment, built from its entry in the registry: a result first, and one line to train more."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from acenode import experiments
from acenode.config import KEYS, Config, read_seeds
from acenode.config.groups import Training
from acenode.errors import UserError
from acenode.execution.devices import device_choices
from acenode.experiments import Experiment

from .. import components, estimates, form, full_data, labels, messages
from ..form import FormValues
from ..questions import study_links
from . import ablations, live_runs, preset, shown_runs, verdict

METHODS_PER_ROW = 5
PARTIAL = "partial"  # in a heading: the data of runs on a part of the full data


@dataclass(frozen=True)
class RequestedRuns:
    """What the form asks for: one configuration for each seed, or errors."""

    values: FormValues
    seeds: list[int]
    configs: list[Config]
    errors: list[str]


def show(name: str) -> None:
    """Show the page of the experiment with this name."""
    experiment = experiments.get(name)
    heading = st.container(gap="xsmall")
    with st.container():  # a container each, so that a notice that comes or goes does not rebuild the player
        shown = shown_runs.chosen(experiment)
        start = preset.read(experiment)
    line = st.container(horizontal=True, vertical_alignment="center", gap="small", key="form-line")
    open_key = f"unfolded/{experiment.name}/{start.name}"
    unfolded = st.session_state.get(open_key, bool(start.name) or _lacks_data(experiment))
    folding = st.container(key="form-open" if unfolded else "form-folded")  # page.css hides the folded form
    if shown:
        with heading:
            _show_heading(experiment, {PARTIAL if entry.partial else entry.data for entry in shown}, "shown: ")
    with line:
        sentence = st.empty()  # makes the line appear; page.css gives it its height, so that the player does not move
    live_runs.show_player(experiment, shown)
    with folding:
        request, ready = _show_form(experiment, start)
    if not shown:
        with heading:
            _show_heading(experiment, {request.values.data})
    with line:
        _show_line(sentence, experiment, request, ready, unfolded, open_key)
    live_runs.show_results(experiment, shown)
    components.page_top("form-top", f"{start.name} {st.session_state.get(preset.COPIES, 0)}" if start.name else "")


def _show_heading(experiment: Experiment, used: set[str], before: str = "") -> None:
    """Show the title with the data used: what the shown runs were trained on, or what Train uses if none is shown."""
    titles = {"sample": f"sample ({experiment.sample_title})", "full": "full data", PARTIAL: "a part of the full data"}
    kinds = [title for kind, title in titles.items() if kind in used]
    data = f"{before}{' and '.join(kinds)}"
    if experiment.source is None:  # it has one data set, which is no sample
        data = experiment.sample_title
    st.title(f"{messages.escape(experiment.title)} :small[:gray[{data}]]", anchor=False)
    summary = experiment.summary.removeprefix(f"{experiment.title}: ")
    note = f" This is the sample: {experiment.about_sample}. Not comparable with the paper" if "sample" in used else ""
    if experiment.source is None:
        note = f" {experiment.about_sample[:1].upper()}{experiment.about_sample[1:]}"
    st.caption(messages.escape(f"{summary[:1].upper()}{summary[1:]}.{note}"))
    verdict.show(experiment, list(shown_runs.entries_of(experiment).values()))


def _lacks_data(experiment: Experiment) -> bool:
    """Return True if the page asks for full data that is not on this machine; the form then offers the download."""
    return st.session_state.get("data", st.query_params.get("data")) == "full" and not full_data.is_ready(experiment)


# The form -----------------------------------------------------------------------------------------------------------


def _show_form(experiment: Experiment, start: preset.Preset) -> tuple[RequestedRuns, bool]:
    """Show all settings; return what is asked for, and whether its data is there."""
    data, method = _choose_data_and_method(experiment, start)
    ready = data == "sample" or full_data.show(experiment)
    if data == "sample" and experiment.source is not None:
        st.caption(f":material/database: Sample: {experiment.about_sample}. Not comparable with the paper")
    values = form.show(experiment, method, data, start.values if start.method == method else {}, start.name)
    request = _ask_seeds_and_device(experiment, values, start)
    ablations.show(experiment, values, request.seeds, ready)
    return request, ready


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
        data: str | None = "sample"
        if experiment.source is not None:
            data = st.segmented_control("Data", ["sample", "full"], default=start.data, key="data", required=True,
                                        bind="query-params", help=KEYS["data"].help)
        choose = st.segmented_control if few else partial(st.pills, wrap=True)
        method = choose("Method", methods, default=start.method, key="method", required=True, bind="query-params",
                        format_func=lambda m: labels.method_title(experiment.name, m))
    return data or start.data, method or start.method


def _ask_seeds_and_device(experiment: Experiment, values: FormValues, start: preset.Preset) -> RequestedRuns:
    """Ask for seeds and device, show the number of parameters and what was changed from the defaults."""
    errors, seeds = list(values.errors), list[int]()
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        text = st.text_input("Seeds", start.seeds, key=f"seeds/{start.name}", width=160,
                             help="One seed, several (0 1 2) or a range (0-4). Each seed is one run.")
        device, known = "auto", device_choices()
        if len(known) > 1:
            device = st.selectbox("Device", known, known.index(start.device) if start.device in known else 0, width=120,
                                  key=f"device/{start.name}", help=KEYS["device"].help)
        configs = []
        try:
            seeds = read_seeds(text)
            if not errors:
                configs = [values.configure(experiment, seed=seed, device=device) for seed in seeds]
                st.caption(f"{form.parameters(values.configure(experiment)):,} parameters")
        except UserError as error:
            errors.append(str(error))
            messages.invalid(error)
    return RequestedRuns(values, seeds, [] if errors else configs, errors)


# The line -----------------------------------------------------------------------------------------------------------


def _show_line(place: DeltaGenerator, experiment: Experiment, request: RequestedRuns, ready: bool, unfolded: bool,
               open_key: str) -> None:
    """Show what Train would train and how long it takes, in `place`, and the buttons that unfold the form and train."""
    configs = request.configs
    with place.container(width="stretch", key="form-sentence"):
        if not configs:
            st.markdown("Correct the settings below to train")
        elif not ready:
            st.markdown(f"{_sentence(experiment, request)}. The full data is not on this machine yet")
        else:
            estimates.show(f"{_sentence(experiment, request)}, {{time}}", configs)
    if st.button("Close" if unfolded else "Change", icon=":material/tune:", key="change",
                 help="Data, method, attention, hyperparameters, seeds and the ablation set"):
        st.session_state[open_key] = not unfolded
        st.rerun()
    with st.popover("Study", icon=":material/quiz:", help="Questions that several runs answer"):
        study_links.show_presets(experiment)
    if st.button("Train" if len(configs) < 2 else f"Train {len(configs)} runs", type="primary",
                 icon=":material/play_arrow:", disabled=not configs or not ready, key="train"):
        st.session_state[open_key] = False
        live_runs.start(experiment, configs)


def _sentence(experiment: Experiment, request: RequestedRuns) -> str:
    """Describe the runs: method, data, epochs, seeds, and the settings that were changed."""
    values, config, seeds = request.values, request.configs[0], request.seeds
    epochs = config.part(Training).epochs
    changed = ", ".join(f"{labels.setting(k)} = {labels.setting_value(v)}" for k, v in values.changed.items()
                        if k != "epochs")
    data = "" if experiment.source is None else " on the sample" if values.data == "sample" else " on the full data"
    parts = [f"**{messages.escape(labels.method_title(experiment.name, values.method))}**{data}",
             f"{epochs} epoch{'s' * (epochs > 1)}" + " (changed)" * ("epochs" in values.changed),
             *([f"changed: {messages.escape(changed)}"] if changed else []),
             f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds"]
    return ", ".join(parts)
