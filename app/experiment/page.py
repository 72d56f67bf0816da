"""The page of an experiment, built from its entry in the registry: a result first, and one line to train more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from html import escape
from itertools import product
from typing import Any
from urllib.parse import urlencode

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from acenode import experiments
from acenode.compare.against_host import Compared, MethodMean, compared
from acenode.config import SETTINGS, Config, read_seeds
from acenode.config.groups import Training
from acenode.errors import UserError
from acenode.experiments import Experiment

from .. import components, estimates, form, labels, messages
from ..form import FormValues
from ..questions import page as links
from ..services import services
from . import live_runs
from .live_runs import COPIES

METHODS_PER_ROW = 5
MAX_GRID = 200  # runs
PARTIAL = "partial"  # in a heading: the data of runs on a part of the full data
ANSWERS = {"ahead": "Yes", "behind": "No, it is worse", "open": "It cannot be told"}


@dataclass(frozen=True)
class Preset:
    """Initial values of the form; `name` is the run they come from, empty for the defaults."""

    method: str
    data: str = "sample"
    seeds: str = "0"
    device: str = "auto"
    name: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)


def show(name: str) -> None:
    experiment = experiments.get(name)
    heading = st.container(gap="xsmall")
    with st.container():  # a container each, so that a notice that comes or goes does not rebuild the player
        shown = live_runs.chosen(experiment)
        start = read_preset(experiment)
    line = st.container(horizontal=True, vertical_alignment="center", gap="small", key="form-line")
    open_key = f"unfolded/{experiment.name}/{start.name}"
    asks_full = st.session_state.get("data", st.query_params.get("data")) == "full"
    unfolded = st.session_state.get(  # for missing data the form offers the download
        open_key, bool(start.name) or (asks_full and not form.has_full_data(experiment)))
    folding = st.container(key="form-open" if unfolded else "form-folded")  # page.css hides the folded form
    if shown:
        with heading:
            _show_heading(experiment, {PARTIAL if entry.partial else entry.data for entry in shown}, "shown: ")
    with line:
        sentence = st.empty()  # makes the line appear; page.css gives it its height, so that the player does not move
    live_runs.show_player(experiment, shown)
    with folding:
        values, configs, ready = _show_form(experiment, start)
    if not shown:
        with heading:
            _show_heading(experiment, {values.data})
    with line:
        _show_line(sentence, experiment, values, configs, ready, unfolded, open_key)
    live_runs.show_results(experiment, shown)
    copied = f"{start.name} {st.session_state.get(COPIES, 0)}" if start.name else ""
    components.show("page_top", "form-top", {"shown": copied})  # scrolls to the form when another run was copied


def read_preset(experiment: Experiment) -> Preset:
    """Return the configuration of the run in `?from=RUN`, if it is a run of this experiment, else the defaults."""
    run_id = st.query_params.get("from")
    entry = services().catalogue.entry(run_id) if run_id else None
    if entry is None or entry.experiment != experiment.name or entry.method not in experiment.methods:
        if run_id:
            st.warning(f"There is no run {messages.escape(run_id)} of {experiment.title} here. The form has the "
                       "defaults.", icon=":material/link_off:")
        return Preset("ace" if "ace" in experiment.methods else next(iter(experiment.methods)))
    st.info(f"The form has the settings of {messages.escape(entry.id)}. Change them as you like.",
            icon=":material/content_copy:")
    values = {k: v for k, v in entry.config.items() if k in SETTINGS}
    with suppress(UserError):  # the form explains what is wrong
        constants = experiment.configure(entry.method, entry.data, **values).settings
        if lost := [f"{k}={v}" for k, v in entry.config.items() if k not in SETTINGS and constants.get(k, v) != v]:
            st.warning(f"This run had {messages.escape(', '.join(lost))}, which can no longer be set.")
    return Preset(entry.method, entry.data, str(entry.seed), entry.config.get("device", "auto"), entry.id, values)


def _show_heading(experiment: Experiment, used: set[str], before: str = "") -> None:
    """Show the title with the data used: what the shown runs were trained on, or what Train uses if none is shown."""
    titles = {"sample": f"sample ({experiment.sample_title})", "full": "full data", PARTIAL: "a part of the full data"}
    data = before + " and ".join(title for kind, title in titles.items() if kind in used)
    note = f" This is the sample: {experiment.about_sample}. Not comparable with the paper" if "sample" in used else ""
    if experiment.source is None:  # it has one data set, which is no sample
        data, note = experiment.sample_title, f" {messages.capital(experiment.about_sample)}"
    st.title(f"{messages.escape(experiment.title)} :small[:gray[{data}]]", anchor=False)
    summary = experiment.summary.removeprefix(f"{experiment.title}: ")
    st.caption(messages.escape(f"{messages.capital(summary)}.{note}"))
    if lines := compared(experiment, list(live_runs.entries_of(experiment).values())):
        st.html(f'<div class="ace-verdict">{verdict_html(lines)}</div>')


def verdict_html(lines: Sequence[Compared]) -> str:
    """Write the question whether ACE is better than the method it extends, and a line for each measure with both means,
    which link to their cells of the paper's tables or to all of the runs side by side."""
    runs = ",".join(run for line in lines for mean in (line.ace, line.host) for run in mean.runs)

    def linked(mean: MethodMean) -> str:
        page, query = ("paper", {"cell": mean.cell}) if mean.cell else ("compare", {"runs": runs})
        return f'<a href="{escape(f"{page}?{urlencode(query)}")}" target="_self">{escape(mean.value)}</a>'

    first = lines[0]
    host = "no attention" if first.host.title == "No attention" else first.host.title  # names stay as they are
    question = f"Is {first.ace.title} better than {host}{f' {first.where}' if first.where else ''}?"
    return f"<strong>{escape(question)}</strong>" + "".join(
        f"<p><b>{ANSWERS[line.verdict]}</b>: test {escape(line.measure)} {linked(line.ace)} against "
        f"{linked(line.host)} <span>({'higher' if line.higher_is_better else 'lower'} is better; "
        f"{escape(line.repeats)}; {escape(line.numbers)})</span></p>" for line in lines)


def _show_form(experiment: Experiment, start: Preset) -> tuple[FormValues, list[Config], bool]:
    """Show all settings; return them, a configuration for each seed, none if there are errors, and whether the data is
    there."""
    data, method = _choose_data_and_method(experiment, start)
    ready = data == "sample" or form.show_full_data(experiment)
    if data == "sample" and experiment.source is not None:
        st.caption(f":material/database: Sample: {experiment.about_sample}. Not comparable with the paper")
    values = form.show(experiment, method, data, start.values if start.method == method else {}, start.name)
    seeds, configs = list[int](), list[Config]()
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        text = st.text_input("Seeds", start.seeds, key=f"seeds/{start.name}", width=160,
                             help="One seed, several (0 1 2) or a range (0-4). Each seed is one run.")
        device = form.ask_device(f"device/{start.name}", start.device)
        try:
            seeds = read_seeds(text)
            if not values.errors:
                configs = [values.configure(experiment, seed=seed, device=device) for seed in seeds]
                st.caption(f"{form.parameters(values.configure(experiment)):,} parameters")
        except UserError as error:
            configs = []
            messages.invalid(error)
    _show_ablations(experiment, values, seeds, ready)
    return values, configs, ready


def _choose_data_and_method(experiment: Experiment, start: Preset) -> tuple[str, str]:
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
        data = form.ask_data(experiment, "data", start.data, bind="query-params")
        choose = st.segmented_control if few else partial(st.pills, wrap=True)
        method = choose("Method", methods, default=start.method, key="method", required=True, bind="query-params",
                        format_func=lambda m: labels.method_title(experiment.name, m))
    return data, method or start.method


def _show_line(place: DeltaGenerator, experiment: Experiment, values: FormValues, configs: list[Config], ready: bool,
               unfolded: bool, open_key: str) -> None:
    """Show what Train would train and how long it takes, in `place`, and the buttons that unfold the form and train."""
    with place.container(width="stretch", key="form-sentence"):
        sentence = _sentence(experiment, values, configs) if configs else "Correct the settings below to train"
        if configs and ready:
            estimates.show(f"{sentence}, {{time}}", configs)
        else:
            st.markdown(sentence + ". The full data is not on this machine yet" * bool(configs))
    if st.button("Close" if unfolded else "Change", icon=":material/tune:", key="change",
                 help="Data, method, attention, hyperparameters, seeds and the ablation set"):
        st.session_state[open_key] = not unfolded
        st.rerun()
    with st.popover("Study", icon=":material/quiz:", help="Questions that several runs answer"):
        links.show_presets(experiment)
    if st.button("Train" if len(configs) < 2 else f"Train {len(configs)} runs", type="primary",
                 icon=":material/play_arrow:", disabled=not configs or not ready, key="train"):
        st.session_state[open_key] = False
        live_runs.start(experiment, configs)


def _sentence(experiment: Experiment, values: FormValues, configs: list[Config]) -> str:
    """Describe the runs: method, data, epochs, seeds, and the settings that were changed."""
    changed = ", ".join(f"{labels.setting(k)} = {labels.setting_value(v)}" for k, v in values.changed.items()
                        if k != "epochs")
    data = "" if experiment.source is None else " on the sample" if values.data == "sample" else " on the full data"
    epochs = messages.count(configs[0].part(Training).epochs, "epoch") + " (changed)" * ("epochs" in values.changed)
    return ", ".join([
        f"**{messages.escape(labels.method_title(experiment.name, values.method))}**{data}", epochs,
        *([f"changed: {messages.escape(changed)}"] if changed else []),
        f"seed {configs[0].seed}" if len(configs) == 1 else f"{len(configs)} seeds"])


def _show_ablations(experiment: Experiment, values: FormValues, seeds: list[int], ready: bool) -> None:
    """Show the expander in which a grid of runs is chosen and queued, after saying how many these are."""
    box = st.expander("Train the ablation set", icon=":material/grid_on:", key="grid/box", on_change="rerun")
    with box:
        st.caption("Each combination becomes one run for each seed above. Settings that a method does not have are "
                   "left out. The form's settings apply to its own method, its training settings to all methods.")
        usual = [m for m in ("odenet", "augmented", "ace") if m in experiment.methods] or list(experiment.methods)[-3:]
        methods = st.multiselect("Methods", list(experiment.methods), usual, key="grid/methods",
                                 format_func=lambda m: labels.method_title(experiment.name, m))
        uses = frozenset().union(*(m.uses for m in experiment.methods.values()))
        names = [s.key for s in SETTINGS.values() if s.key in uses and s.group == "attention" and s.choices]
        chosen: dict[str, list[str]] = {}
        for column, name in zip(st.columns(len(names)) if names else [], names, strict=True):
            with column:
                chosen[name] = st.multiselect(labels.setting(name), list(experiment.choices(name)), key=f"grid/{name}",
                                              help=SETTINGS[name].help, placeholder="As in the form")
        configs = list(grid(experiment, values, methods, chosen, seeds))
        if len(configs) > MAX_GRID:
            messages.invalid(f"that would be {len(configs)} runs: choose at most {MAX_GRID} at a time")
        elif not configs:
            st.caption("Choose at least one method and one seed.")
        else:
            ready = ready and not values.errors
            with st.container(horizontal=True, vertical_alignment="center"):
                count = f"**{messages.count(len(configs), 'run')}**"
                if box.open and ready:
                    estimates.show(f"{count}, {{time}}{{order}}", configs)
                else:
                    st.markdown(count)
                if st.button("Add to queue", key="grid/queue", disabled=not ready, type="primary",
                             icon=":material/playlist_add:"):
                    live_runs.start(experiment, configs)


def grid(experiment: Experiment, values: FormValues, methods: list[str], chosen: dict[str, list[str]],
         seeds: list[int]) -> Iterator[Config]:
    """Yield the distinct configurations of a grid of methods × settings × seeds, without settings that do not apply to
    a method and combinations that are no valid model."""
    seen = set()
    axes = {name: options for name, options in chosen.items() if options}
    for method, *picked in product(methods, *axes.values()):
        own = {k: v for k, v in values.changed.items() if method == values.method or form.is_shared(k)}
        settings: dict[str, Any] = {}
        for key, value in {**own, **dict(zip(axes, picked, strict=True))}.items():
            try:
                experiment.configure(method, values.data, **{**settings, key: value})
            except UserError:
                continue
            settings[key] = value
        for seed in seeds:
            config = experiment.configure(method, values.data, **{**settings, "seed": seed})
            if config not in seen:
                seen.add(config)
                yield config
