"""The configuration form, built from the metadata of the settings; and the full data set with its download."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import streamlit as st

from acenode import experiments
from acenode.config import KEYS, SETTINGS, Config, check, parse
from acenode.errors import UserError
from acenode.execution.devices import device_choices
from acenode.experiments import Experiment

from . import labels, messages
from .services import services

OPEN = {"task": "Task and data", "attention": "Attention"}  # groups that are always visible
FOLDED = {"training": "Training", "model": "Model", "solver": "Solver", "record": "Recording"}
REFRESH = "1s"  # while a download runs


@dataclass
class FormValues:
    """What the user entered: settings that differ from the defaults, and errors in the input."""

    method: str
    data: str
    changed: dict[str, Any] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def configure(self, experiment: Experiment, **more: Any) -> Config:
        return experiment.configure(self.method, self.data, **{**self.changed, **more})


def show(experiment: Experiment, method: str, data: str, preset: Mapping[str, Any], preset_name: str, *,
         carry: bool = True) -> FormValues:
    """Show the settings of a method that apply to the values entered so far, in the order of the configuration.

    Args:
        preset: values to start with, instead of the defaults.
        preset_name: part of the widgets' keys, so that another preset gets new widgets.
        carry: start with what was entered for another method or other data; False if the caller does this by `preset`.
    """
    values = FormValues(method, data)
    training_key = f"carried/{experiment.name}/{data}"  # training settings survive a change of method
    open_key = f"carried/{experiment.name}"  # settings of the open groups survive a change of data as well
    if carry:
        preset = {**st.session_state.get(open_key, {}), **st.session_state.get(training_key, {}), **preset}
    groups: dict[str, list[str]] = {}
    for name in SETTINGS:
        if name in experiment.methods[method].uses:
            groups.setdefault(SETTINGS[name].group, []).append(name)
    for group in (group for group in OPEN if group in groups):
        with st.container(border=True):
            st.markdown(f"**{OPEN[group]}**")
            with st.container(horizontal=True, gap="medium"):
                for name in groups[group]:
                    with st.container(width="content", gap="xxsmall"):
                        _ask(experiment, values, name, preset, preset_name)
    with st.expander("Hyperparameters", icon=":material/tune:"):
        if experiment.source is not None:
            st.caption("Defaults: the paper's best settings for the full data, smaller ones for the sample.")
        folded = [group for group in FOLDED if group in groups]
        for column, group in zip(st.columns(len(folded)), folded, strict=True):
            with column:
                st.markdown(f"**{FOLDED[group]}**")
                for name in groups[group]:
                    _ask(experiment, values, name, preset, preset_name)
    if carry and "attention" in groups:
        st.session_state[open_key] = {k: v for k, v in values.changed.items() if SETTINGS[k].group in OPEN}
    if carry:
        st.session_state[training_key] = {k: v for k, v in values.changed.items() if is_shared(k)}
    return values


def is_shared(name: str) -> bool:
    """Return True if a setting means the same for every method."""
    return SETTINGS[name].group in ("task", "training", "record")


def _ask(experiment: Experiment, values: FormValues, name: str, preset: Mapping[str, Any], preset_name: str) -> None:
    try:
        default = values.configure(experiment).get(name)
    except UserError:
        return  # reported at the field that caused it
    if default is None:
        return
    setting, title, start = SETTINGS[name], labels.setting(name), preset.get(name, default)
    key = f"{experiment.name}/{values.method}/{values.data}/{name}/{default}/{preset_name}"
    opened = setting.group in OPEN
    try:
        if setting.choices:
            choices = experiment.choices(name)
            value = st.segmented_control(title, choices, default=start, key=key, help=setting.help, required=True) \
                if opened else st.selectbox(title, choices, choices.index(start), key=key, help=setting.help)
        elif setting.type is bool:
            value = st.toggle(title, start, key=key, help=setting.help)
        else:
            low = f"at least {setting.low:g}" if setting.low is not None else f"above {setting.above:g}"
            about = f"{setting.help} ({low}, at most {setting.high:g})"
            if setting.type is int:
                value = check(name, st.number_input(title, value=start, step=1, key=key, help=about))
            else:
                text = st.text_input(title, repr(start), key=key, help=about, width=200 if opened else "stretch")
                value = parse(name, text.strip())
    except UserError as error:
        messages.invalid(error)
        values.errors.append(str(error))
        return
    if value != default:
        values.changed[name] = value
        st.caption(f":material/edit: Changed from {messages.escape(labels.setting_value(default))}")


def ask_device(key: str, start: str = "auto", **look: Any) -> str:
    known = device_choices()
    if len(known) < 2:
        return "auto"
    index = known.index(start) if start in known else 0
    return st.selectbox("Device", known, index, key=key, width=120, **({"help": KEYS["device"].help} | look))


def ask_data(experiment: Experiment, key: str, start: str = "sample", **look: Any) -> str:
    if experiment.source is None:
        return "sample"
    return st.segmented_control("Data", ["sample", "full"], default=start, key=key, required=True,
                                help=KEYS["data"].help, **look) or start


@lru_cache(maxsize=256)
def parameters(config: Config) -> int:
    """Count the parameters of the model; a UserError says why it cannot be built."""
    return experiments.get(config.experiment).count(config)


def has_full_data(experiment: Experiment) -> bool:
    return experiment.source is None or services().fetcher.state(experiment.source).data.state == "ready"


def show_full_data(experiment: Experiment, key: str = "download") -> bool:
    """Show the state of the full data and return True if it can be trained on; if not, offer the download."""
    if (source := experiment.source) is None:
        return True
    state = services().fetcher.state(source)
    if state.data.state == "ready":
        path = messages.escape(str(state.data.path))
        st.caption(f":material/database: {experiment.title}, {state.data.detail}, in {path}")
        return True
    if state.phase == "running":
        drawn = [state]

        @st.fragment(run_every=REFRESH)
        def show_progress() -> None:
            # no second look while the page is drawn: a rerun then would lose clicks still to be handled
            now = drawn.pop() if drawn else services().fetcher.state(source)
            if now.phase != "running":
                st.rerun(scope="app")
            size = f"{now.done / 1e6:.1f}" + (f" of {now.total / 1e6:.1f} MB" if now.total else " MB")
            st.progress(min(1.0, now.done / now.total) if now.total else 0.0,
                        f"{now.label} · {size}" if now.label else "Starting the download")

        show_progress()
        return False
    with st.container(border=True):
        if state.phase == "failed" and state.error:
            messages.error(state.error)
        elif state.data.state == "broken":
            messages.error(f"The file {state.data.path} is damaged. Download it again.")
        else:
            st.markdown(f"The full **{experiment.title}** data set is not on this machine yet. The sample needs no "
                        "download.")
        if st.button("Download and prepare", icon=":material/download:", key=key):
            services().fetcher.start(source)
            st.rerun()
    return False
