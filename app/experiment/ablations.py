"""Train a grid of methods × settings × seeds, after showing how many runs it has and how long they take."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import streamlit as st

from acenode.config import SETTINGS, Config
from acenode.errors import UserError
from acenode.experiments import Experiment

from .. import estimates, form, labels, messages
from ..form import FormValues
from . import live_runs

MAX_RUNS = 200


def show(experiment: Experiment, values: FormValues, seeds: list[int], ready: bool) -> None:
    """Show the expander in which a grid of runs is chosen and queued."""
    box = st.expander("Train the ablation set", icon=":material/grid_on:", key="grid/box", on_change="rerun")
    with box:
        st.caption("Each combination becomes one run for each seed above. Settings that a method does not have are "
                   "left out. The form's settings apply to its own method, its training settings to all methods.")
        methods = st.multiselect("Methods", list(experiment.methods), _default_methods(experiment), key="grid/methods",
                                 format_func=lambda m: labels.method_title(experiment.name, m))
        names = _attention_settings(experiment)
        chosen: dict[str, list[str]] = {}
        for column, name in zip(st.columns(len(names)) if names else [], names, strict=True):
            with column:
                chosen[name] = st.multiselect(labels.setting(name), list(experiment.choices(name)), key=f"grid/{name}",
                                              help=SETTINGS[name].help, placeholder="As in the form")
        try:
            configs = list(grid(experiment, values, methods, chosen, seeds))
            if len(configs) > MAX_RUNS:
                raise UserError(f"that would be {len(configs)} runs: choose at most {MAX_RUNS} at a time")
        except UserError as error:
            messages.invalid(error)
            return
        _offer(experiment, configs, ready and not values.errors, bool(box.open))


def _offer(experiment: Experiment, configs: list[Config], ready: bool, visible: bool) -> None:
    """Say how many runs these are and, if that can be seen, how long they take; offer to queue them."""
    if not configs:
        st.caption("Choose at least one method and one seed.")
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        count = f"**{len(configs)} run{'s' * (len(configs) > 1)}**"
        if visible and ready:
            estimates.show(f"{count}, {{time}}{{order}}", configs)
        else:
            st.markdown(count)
        if st.button("Add to queue", key="grid/queue", disabled=not ready, type="primary",
                     icon=":material/playlist_add:"):
            live_runs.start(experiment, configs)


def grid(experiment: Experiment, values: FormValues, methods: list[str], chosen: dict[str, list[str]],
         seeds: list[int]) -> Iterator[Config]:
    """Yield the distinct configurations of the grid; a setting that a method does not have is dropped."""
    seen = set()
    names = [name for name, options in chosen.items() if options]
    for method, *picked in product(methods, *(chosen[name] for name in names)):
        try:
            settings = _applicable(experiment, values, method, dict(zip(names, picked, strict=True)))
        except UserError:
            continue  # the combination is not a valid model
        for seed in seeds:
            config = experiment.configure(method, values.data, **{**settings, "seed": seed})
            if config not in seen:
                seen.add(config)
                yield config


def _applicable(experiment: Experiment, values: FormValues, method: str, picked: dict[str, Any]) -> dict[str, Any]:
    """Return the form's and the picked settings without those that do not apply to the method."""
    settings: dict[str, Any] = {}
    own = {k: v for k, v in values.changed.items() if method == values.method or form.is_shared(k)}
    for key, value in {**own, **picked}.items():
        try:
            experiment.configure(method, values.data, **{**settings, key: value})
        except UserError:
            continue
        settings[key] = value
    return settings


def _attention_settings(experiment: Experiment) -> list[str]:
    """Return the attention settings with a fixed set of choices."""
    uses = frozenset().union(*(m.uses for m in experiment.methods.values()))
    return [s.key for s in SETTINGS.values() if s.key in uses and s.group == "attention" and s.choices]


def _default_methods(experiment: Experiment) -> list[str]:
    return [m for m in ("odenet", "augmented", "ace") if m in experiment.methods] or list(experiment.methods)[-3:]
