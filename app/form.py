"""A configuration as a form, made from what the fields say of themselves: bounds, choices, help, what they hang on."""

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

from . import say

OPEN = {"task": "Task and data", "attention": "Attention"}  # what is seen at once
TITLES = {"training": "Training", "model": "Model", "solver": "Solver", "record": "Recording"}


@dataclass
class Wish:
    """What the form asks for: settings that are not the default, and why it may not be granted."""

    method: str
    data: str
    given: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def configure(self, experiment: Experiment, **more: Any) -> Config:
        return experiment.configure(self.method, self.data, **{**self.given, **more})


def settings(experiment: Experiment, method: str, data: str, preset: Mapping[str, Any], mark: str) -> Wish:
    """Task and attention in the open, the rest behind an expander. `preset` are first values, `mark` their name.

    Every field is asked in the order of the configuration, after those it depends on; one that has no meaning with what
    was chosen so far is not shown.
    """
    wish = Wish(method, data)
    carried = f"carried/{experiment.name}/{data}"  # training settings outlive a change of the method
    opened = f"carried/{experiment.name}"  # what is asked in the open outlives a change of the data too
    preset = {**st.session_state.get(opened, {}), **st.session_state.get(carried, {}), **preset}
    fields = [name for name in SETTINGS if name in experiment.methods[method].uses]
    for group, title in OPEN.items():
        toggles = [name for name in fields if SETTINGS[name].group == group]
        if toggles:
            with st.container(border=True):
                st.markdown(f"**{title}**")
                with st.container(horizontal=True, gap="medium"):
                    for name in toggles:
                        _ask(experiment, wish, name, preset, mark)
    with st.expander("Hyperparameters", icon=":material/tune:"):
        st.caption("The paper's best settings stand here to begin with; for the sample, ones that suit it.")
        groups = [g for g in TITLES if any(SETTINGS[name].group == g for name in fields)]
        for column, title in zip(st.columns(len(groups)), groups, strict=True):
            with column:
                st.markdown(f"**{TITLES[title]}**")
                for name in fields:
                    if SETTINGS[name].group == title:
                        _ask(experiment, wish, name, preset, mark)
    if any(SETTINGS[name].group == "attention" for name in fields):
        st.session_state[opened] = {k: v for k, v in wish.given.items() if SETTINGS[k].group in OPEN}
    st.session_state[carried] = {k: v for k, v in wish.given.items() if shared(k)}
    return wish


def shared(name: str) -> bool:
    """Whether a setting means the same for every method."""
    return SETTINGS[name].group in ("task", "training", "record")


def _ask(experiment: Experiment, wish: Wish, name: str, preset: Mapping[str, Any], mark: str) -> None:
    """Show one field, if it has a meaning, and take down what is not the default."""
    try:
        default = wish.configure(experiment).get(name)
    except UserError:
        return  # said at the field that caused it
    if default is None:
        return
    start = preset.get(name, default)
    key = f"{experiment.name}/{wish.method}/{wish.data}/{name}/{default}/{mark}"
    setting = SETTINGS[name]
    title = name.replace("_", " ")
    try:
        if setting.choices:
            value = _choose(title, setting, experiment.choices(name), start, key)
        elif setting.type is bool:
            value = st.toggle(title, start, key=key, help=setting.help)
        elif setting.type is int:
            value = check(name, st.number_input(title, value=start, step=1, key=key, help=_help(setting)))
        else:
            text = st.text_input(title, repr(start), key=key, help=_help(setting),
                                 width=140 if _toggle(setting) else "stretch")
            value = parse(name, text.strip())
    except UserError as error:
        say.refused(error)
        wish.faults.append(str(error))
        return
    if value != default:
        wish.given[name] = value


def _choose(title: str, setting: Setting, choices: Sequence[str], start: Any, key: str) -> Any:
    if _toggle(setting):
        return st.segmented_control(title, choices, default=start, key=key, help=setting.help, required=True)
    return st.selectbox(title, choices, choices.index(start), key=key, help=setting.help)


def _toggle(setting: Setting) -> bool:
    return setting.group in OPEN


def _help(setting: Setting) -> str:
    low = f"at least {setting.low:g}" if setting.low is not None else f"above {setting.above:g}"
    return f"{setting.help} ({low}, at most {setting.high:g})"


@lru_cache(maxsize=256)
def parameters(config: Config) -> int:
    """How many parameters the model has; a UserError says why there is none."""
    return experiments.get(config.experiment).count(config)
