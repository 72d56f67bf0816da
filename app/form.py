"""The configuration form, built from the metadata of the settings: bounds, choices, help, dependencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import streamlit as st

from acenode import experiments
from acenode.config import SETTINGS, Config, Setting, check, parse
from acenode.errors import UserError
from acenode.experiments import Experiment

from . import labels, messages

OPEN = {"task": "Task and data", "attention": "Attention"}  # groups that are always visible
FOLDED = {"training": "Training", "model": "Model", "solver": "Solver", "record": "Recording"}


@dataclass
class FormValues:
    """What the user entered: settings that differ from the defaults, and errors in the input."""

    method: str
    data: str
    changed: dict[str, Any] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def configure(self, experiment: Experiment, **more: Any) -> Config:
        """Build the configuration, with `more` settings on top."""
        return experiment.configure(self.method, self.data, **{**self.changed, **more})


def show(experiment: Experiment, method: str, data: str, preset: Mapping[str, Any], preset_name: str, *,
         carry: bool = True) -> FormValues:
    """Show the settings of a method and return what was entered.

    Settings are asked in the order of the configuration, so that a setting follows those it depends on; one that does
    not apply to the values entered so far is not shown.

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
    names = [name for name in SETTINGS if name in experiment.methods[method].uses]
    for group, title in OPEN.items():
        members = [name for name in names if _group(name) == group]
        if members:
            with st.container(border=True):
                st.markdown(f"**{title}**")
                with st.container(horizontal=True, gap="medium"):
                    for name in members:
                        with st.container(width="content", gap="xxsmall"):
                            _ask(experiment, values, name, preset, preset_name)
    with st.expander("Hyperparameters", icon=":material/tune:"):
        if experiment.source is not None:
            st.caption("Defaults: the paper's best settings for the full data, smaller ones for the sample.")
        groups = [g for g in FOLDED if any(_group(name) == g for name in names)]
        for column, group in zip(st.columns(len(groups)), groups, strict=True):
            with column:
                st.markdown(f"**{FOLDED[group]}**")
                for name in names:
                    if _group(name) == group:
                        _ask(experiment, values, name, preset, preset_name)
    if not carry:
        return values
    if any(_group(name) == "attention" for name in names):
        st.session_state[open_key] = {k: v for k, v in values.changed.items() if _group(k) in OPEN}
    st.session_state[training_key] = {k: v for k, v in values.changed.items() if is_shared(k)}
    return values


def is_shared(name: str) -> bool:
    """Return True if a setting means the same for every method."""
    return _group(name) in ("task", "training", "record")


def _group(name: str) -> str:
    return SETTINGS[name].group


def _ask(experiment: Experiment, values: FormValues, name: str, preset: Mapping[str, Any], preset_name: str) -> None:
    """Show the widget of a setting, if it applies here, and store a value that is not the default."""
    try:
        default = values.configure(experiment).get(name)
    except UserError:
        return  # reported at the field that caused it
    if default is None:
        return
    start = preset.get(name, default)
    key = f"{experiment.name}/{values.method}/{values.data}/{name}/{default}/{preset_name}"
    setting, title = SETTINGS[name], labels.setting(name)
    try:
        if setting.choices:
            value = _choose(title, setting, experiment.choices(name), start, key)
        elif setting.type is bool:
            value = st.toggle(title, start, key=key, help=setting.help)
        elif setting.type is int:
            value = check(name, st.number_input(title, value=start, step=1, key=key, help=_help(setting)))
        else:
            text = st.text_input(title, repr(start), key=key, help=_help(setting),
                                 width=200 if setting.group in OPEN else "stretch")
            value = parse(name, text.strip())
    except UserError as error:
        messages.invalid(error)
        values.errors.append(str(error))
        return
    if value != default:
        values.changed[name] = value
        st.caption(f":material/edit: Changed from {messages.escape(labels.setting_value(default))}")


def _choose(title: str, setting: Setting, choices: Sequence[str], start: Any, key: str) -> Any:
    if setting.group in OPEN:
        return st.segmented_control(title, choices, default=start, key=key, help=setting.help, required=True)
    return st.selectbox(title, choices, choices.index(start), key=key, help=setting.help)


def _help(setting: Setting) -> str:
    low = f"at least {setting.low:g}" if setting.low is not None else f"above {setting.above:g}"
    return f"{setting.help} ({low}, at most {setting.high:g})"


@lru_cache(maxsize=256)
def parameters(config: Config) -> int:
    """Count the parameters of the model; a UserError says why it cannot be built."""
    return experiments.get(config.experiment).count(config)
