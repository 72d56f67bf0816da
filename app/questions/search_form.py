"""The form of a new search: which settings are tried and in which range, and what the trials share."""

from __future__ import annotations

from typing import Any

import streamlit as st

from acenode import experiments
from acenode.config import KEYS, SETTINGS
from acenode.config.groups import Training
from acenode.config.ranges import SearchRange, read_range
from acenode.errors import UserError
from acenode.execution.devices import device_choices
from acenode.experiments import Experiment
from acenode.runs.questions import MAX_TRIALS, SAMPLERS, Search, SearchStore
from acenode.search.plan import base_config, check_search, defaults_outside

from .. import estimates, full_data, labels, messages
from ..form import FormValues
from ..services import services
from . import search_actions, search_draft, search_edits, search_links, search_range, study_links

PRUNING = {"median": "Median", "halving": "Halving", "hyperband": "Hyperband", "none": "None"}
TIMED = 200  # trials whose time is added up
SCALES = {"log": "Logarithmic", "linear": "Linear", "list": "List"}


def show(experiment_name: str) -> None:
    """Show the form, with the line that starts the search above it."""
    search_links.show_all()
    experiment = experiments.find(experiment_name)
    st.title("New search", anchor=False)
    if experiment is None:
        messages.invalid(f"There is no experiment {experiment_name[:40]!r}: choose one from all searches")
        return
    line = st.container()
    search, ready = _ask(experiment)
    with line:
        if search is None:
            st.markdown("Correct the settings below to start")
        else:
            _show_start(search, ready)


def _ask(experiment: Experiment) -> tuple[Search | None, bool]:
    """Show the fields; return the search, None if a field is wrong, and whether its data is there."""
    with st.container(border=True):
        with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
            _choose_experiment(experiment)
            method = st.selectbox("Method", list(experiment.methods), search_draft.usual_method(experiment), width=240,
                                  key=f"search/{experiment.name}/method",
                                  format_func=lambda m: labels.method_title(experiment.name, m))
            data = "sample"
            if experiment.source is not None:
                data = st.segmented_control("Data", ["sample", "full"], default="sample", required=True,
                                            key="search/data", help=KEYS["data"].help) or "sample"
        ready = data == "sample" or full_data.show(experiment, key="search/download")
        ranges = _ask_ranges(experiment, method, data)
        how = _ask_how(experiment, method, data)
    st.subheader("Settings that all trials share", anchor=False)
    st.caption("Those that are searched are ignored here. Epochs and batch size are among the hyperparameters.")
    values = search_edits.ask_shared(experiment, method, data)
    if values.errors or not ranges:
        return None, ready  # the field says what is wrong
    try:
        return check_search(_search(experiment, values, ranges, how)), ready
    except UserError as error:
        messages.invalid(error)
        return None, ready


def _choose_experiment(experiment: Experiment) -> None:
    """Ask for the experiment, which the URL keeps."""
    st.session_state["search/experiment"] = experiment.name

    def changed() -> None:
        st.query_params.from_dict({search_links.EXPERIMENT: st.session_state["search/experiment"]})

    st.selectbox("Experiment", study_links.experiment_names(), key="search/experiment", on_change=changed, width=220,
                 format_func=lambda name: experiments.get(name).title)


def _ask_ranges(experiment: Experiment, method: str, data: str) -> tuple[SearchRange, ...]:
    """Ask which settings are searched, and for the range of each; return none if one is wrong."""
    key = f"search/{experiment.name}/{method}/{data}"
    names = search_draft.settings_to_search(experiment, method)
    usual = [name for name in search_draft.USUAL if name in names]
    edited = search_edits.of(experiment)
    start = edited.get("settings", usual)
    chosen = st.multiselect("Settings to search", names, [name for name in start if name in names],
                            key=f"{key}/settings", format_func=labels.setting)
    search_edits.keep(edited, "settings", [*chosen, *(name for name in start if name not in names)], usual)
    if not chosen:
        messages.invalid("Choose at least one setting to search")
    base, found = experiment.configure(method, data), list[SearchRange | None]()
    with st.container(horizontal=True, gap="medium"):
        for name in (name for name in names if name in chosen):
            with st.container(width=300, border=True, gap="xsmall"):
                try:
                    found.append(_ask_range(experiment, name, base.get(name), f"{key}/{name}"))
                except UserError as error:
                    messages.invalid(error)
                    found.append(None)
    return tuple(one for one in found if one is not None) if None not in found else ()


def _ask_range(experiment: Experiment, name: str, default: Any, key: str) -> SearchRange:
    """Ask for the values of one setting."""
    setting, edited = SETTINGS[name], search_edits.of(experiment)
    if setting.choices or setting.type is bool:
        choices = list(experiment.choices(name)) if setting.choices else ["false", "true"]
        values = search_edits.ask(edited, f"{name}/values", choices, lambda start: st.multiselect(
            labels.setting(name), choices, start, key=f"{key}/values", help=setting.help))
        if len(values) < 2:
            raise UserError("choose at least two values")
        return read_range(name, ",".join(values))
    usual = search_draft.usual_range(name, default)
    scale = search_edits.ask(edited, f"{name}/scale", "log" if usual.log else "linear", lambda start: (
        st.segmented_control(labels.setting(name), list(SCALES), default=start, format_func=lambda kind: SCALES[kind],
                             key=f"{key}/scale", required=True, help=setting.help) or "log"))
    if scale == "list":
        text = search_edits.ask(edited, f"{name}/values", search_draft.usual_values(usual, default), lambda start: (
            st.text_input("Values", start, key=f"{key}/values", help="Separated by commas: 0, 0.0001, 0.001")))
        return search_range.listed(name, text)
    with st.container(horizontal=True, gap="small"):
        low = search_edits.ask(edited, f"{name}/low", f"{usual.low:g}", lambda start: (
            st.text_input("From", start, key=f"{key}/low", width=120)))
        high = search_edits.ask(edited, f"{name}/high", f"{usual.high:g}", lambda start: (
            st.text_input("To", start, key=f"{key}/high", width=120)))
    st.caption(f"Default: {messages.escape(labels.setting_value(default))}" if default is not None else
               "Applies to some trials only")
    return search_range.interval(name, low, high, log=scale == "log")


def _ask_how(experiment: Experiment, method: str, data: str) -> dict[str, Any]:
    """Ask for the number of trials, the sampler, pruning, seed, device and name."""
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        trials = st.number_input("Trials", 1, MAX_TRIALS, 30, step=1, key="search/trials", width=120,
                                 help="How many settings are tried in all")
        sampler = st.segmented_control("Sampler", list(SAMPLERS), default="tpe", key="search/sampler", required=True,
                                       format_func=lambda name: {"tpe": "TPE", "random": "Random"}[name],
                                       help="TPE tries what resembles the best trials so far; Random does not learn")
        pruner = st.segmented_control("Pruning", list(PRUNING), default="median", key="search/pruner", required=True,
                                      format_func=lambda name: PRUNING[name],
                                      help="Stops a trial early if its validation after an epoch is not good enough. "
                                           "Median: worse than the median of the earlier trials at that epoch")
        seed = st.number_input("Seed", 0, 2**31 - 1, 0, step=1, key="search/seed", width=120,
                               help="Of the sampler and of every trial: the same seed gives the same trials, if one is "
                                    "trained at a time")
        device = "auto"
        if len(known := device_choices()) > 1:
            device = st.selectbox("Device", known, key="search/device", width=120,
                                  help=KEYS["device"].help)
        name = search_edits.ask(search_edits.of(experiment), "name", f"{experiment.name}-{method}", lambda start: (
            st.text_input("Name", start, key=f"search/{experiment.name}/{method}/name", width=220,
                          help="Of the search's folder in runs/searches/")))
    return {"trials": int(trials), "sampler": sampler or "tpe", "pruner": pruner or "median", "seed": int(seed),
            "device": device, "name": name.strip(), "data": data}


def _search(experiment: Experiment, values: FormValues, ranges: tuple[SearchRange, ...], how: dict[str, Any]) -> Search:
    searched = {one.key for one in ranges}
    held = {key: value for key, value in values.changed.items() if key not in searched}
    free = SearchStore(services().store).free_name(how["name"]) if how["name"] else how["name"]
    return Search(experiment=experiment.name, method=values.method, ranges=ranges, held=held, **{**how, "name": free})


def _show_start(search: Search, ready: bool) -> None:
    """Say what is tried and how long it takes at most, and offer to start."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="study-line"):
        with st.container(width="stretch", key="study-sentence"):
            if ready:
                epochs = base_config(search).part(Training).epochs
                over = messages.escape(labels.ranges_words(search.ranges))
                length = f" of {epochs} epoch{'s' * (epochs > 1)}" * all(one.key != "epochs" for one in search.ranges)
                what = f"**{search.trials} trials**{length} over {over}"
                upto = "up to " * (search.pruner != "none")
                if search.trials <= TIMED:
                    estimates.show(f"{what}, {{time}}", [base_config(search)] * search.trials,
                                   known=f"{upto}{{time}}, one after the other")
                else:
                    estimates.show(f"{what}, {{time}}", [base_config(search)], known=f"each {upto}{{time}}")
            else:
                st.markdown("The full data is not on this machine yet")
        start = st.button("Start", key="search/start", type="primary", icon=":material/play_arrow:", disabled=not ready)
    if outside := defaults_outside(search):
        st.caption(messages.escape(f"The first trial is not the default: {', '.join(outside)} is outside its range"))
    else:
        st.caption("The first trial is the default, so the best settings are at least as good on the validation data")
    if start:
        try:
            search_actions.start(search)
        except (UserError, OSError) as error:
            messages.error(error)
            return
        search_edits.forget(search.experiment)
        search_links.go_to(search.name)
        st.rerun()
