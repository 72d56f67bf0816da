"""Train a grid of methods × settings × seeds, after showing how many runs it has and how long they take."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import streamlit as st

from acenode.config import SETTINGS, Config, read_seeds
from acenode.errors import UserError
from acenode.execution.estimate import estimate
from acenode.experiments import Experiment

from . import form, labels, live_runs, messages
from .form import FormValues
from .services import services

MAX_RUNS = 200


def show(experiment: Experiment, values: FormValues, ready: bool) -> None:
    """Show the expander in which a grid of runs is chosen and queued."""
    with st.expander("Train the ablation set", icon=":material/grid_on:"):
        st.caption("Each combination becomes one run. Settings that a method does not have are left out. The form's "
                   "settings apply to its own method, its training settings to all methods.")
        methods = st.multiselect("Methods", list(experiment.methods), _default_methods(experiment), key="grid/methods",
                                 format_func=lambda m: labels.method_title(experiment.name, m))
        names = _attention_settings(experiment)
        chosen: dict[str, list[str]] = {}
        for column, name in zip(st.columns(len(names)) if names else [], names, strict=True):
            with column:
                chosen[name] = st.multiselect(labels.setting(name), list(experiment.choices(name)), key=f"grid/{name}",
                                              help=SETTINGS[name].help, placeholder="As in the form")
        text = st.text_input("Seeds", "0", key="grid/seeds", width=160)
        try:
            configs = list(grid(experiment, values, methods, chosen, read_seeds(text)))
            if len(configs) > MAX_RUNS:
                raise UserError(f"that would be {len(configs)} runs: choose at most {MAX_RUNS} at a time")
        except UserError as error:
            messages.invalid(error)
            return
        _offer(experiment, configs, ready and not values.errors)


def _offer(experiment: Experiment, configs: list[Config], ready: bool) -> None:
    """Offer an estimate of the training time and, once it is shown, the button that queues the runs."""
    if not configs:
        st.caption("Choose at least one method.")
        return
    key = f"{hash(tuple(configs))}"
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**{len(configs)} run{'s' * (len(configs) > 1)}**")
        if st.session_state.get("grid/estimate", (None,))[0] == key:
            st.caption(st.session_state["grid/estimate"][1])
            if st.button("Add to queue", key="grid/queue", disabled=not ready, type="primary",
                         icon=":material/playlist_add:"):
                live_runs.start(experiment, configs)
            return
        st.button("Add to queue", key="grid/queue", disabled=True, icon=":material/playlist_add:",
                  help="Estimate the time first")
        if st.button("Estimate time", key="grid/how_long", disabled=not ready, icon=":material/timer:"):
            with st.spinner("Estimating from earlier runs, or by timing a few iterations"):
                found = estimate(configs, services().catalogue, services().data_root)
            time = f"About {labels.duration(found.seconds)} one after the other" if found.seconds else "Time unknown"
            st.session_state["grid/estimate"] = (key, f"{time} ({found.basis})")
            st.rerun()
        st.caption("Estimate the time before adding to the queue.")


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
