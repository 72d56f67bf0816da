"""Train a grid: methods × toggles × seeds, after saying how many runs that is and how long they take."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import streamlit as st

from acenode.config import SETTINGS, Config, read_seeds
from acenode.errors import UserError
from acenode.execution.estimate import estimate
from acenode.experiments import Experiment

from . import form, labels, say, watch
from .form import Wish
from .lab import lab

MOST = 200


def show(experiment: Experiment, wish: Wish, ready: bool) -> None:
    with st.expander("Train the ablation set", icon=":material/grid_on:"):
        st.caption("Every combination becomes a run; what a method has no use for is left out. The form's settings "
                   "hold for its own method, and its training settings for the other methods too.")
        methods = st.multiselect("Methods", list(experiment.methods), _usual(experiment), key="grid/methods",
                                 format_func=lambda m: labels.method_title(experiment.name, m))
        varied = _toggles(experiment)
        chosen: dict[str, list[str]] = {}
        for column, name in zip(st.columns(len(varied)) if varied else [], varied, strict=True):
            with column:
                chosen[name] = st.multiselect(name, list(experiment.choices(name)), key=f"grid/{name}",
                                              help=SETTINGS[name].help, placeholder="as above")
        text = st.text_input("Seeds", "0", key="grid/seeds", width=160)
        try:
            configs = list(grid(experiment, wish, methods, chosen, read_seeds(text)))
            if len(configs) > MOST:
                raise UserError(f"that would be {len(configs)} runs: choose at most {MOST} at a time")
        except UserError as error:
            say.refused(error)
            return
        _offer(experiment, configs, ready and not wish.faults)


def _offer(experiment: Experiment, configs: list[Config], ready: bool) -> None:
    if not configs:
        st.caption("Choose at least one method.")
        return
    key = f"{hash(tuple(configs))}"
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**{len(configs)} run{'s' * (len(configs) > 1)}**")
        if st.session_state.get("grid/estimate", (None,))[0] == key:
            st.caption(st.session_state["grid/estimate"][1])
            if st.button("Queue them", key="grid/queue", disabled=not ready, type="primary",
                         icon=":material/playlist_add:"):
                watch.start(experiment, configs)
            return
        st.button("Queue them", key="grid/queue", disabled=True, icon=":material/playlist_add:",
                  help="once it is said how long they take")
        if st.button("How long will they take?", key="grid/how_long", disabled=not ready, icon=":material/timer:"):
            with st.spinner("Looking at earlier runs, and timing an iteration where there is none"):
                found = estimate(configs, lab().catalogue, lab().data_root)
            words = f"about {labels.duration(found.seconds)} one after the other" if found.seconds else "time unknown"
            st.session_state["grid/estimate"] = (key, f"{words} ({found.basis})")
            st.rerun()
        st.caption("Then they can be queued.")


def grid(experiment: Experiment, wish: Wish, methods: list[str], chosen: dict[str, list[str]],
         seeds: list[int]) -> Iterator[Config]:
    """Every configuration that is different; a toggle without meaning for a method is dropped, not an error."""
    seen = set()
    names = [name for name, values in chosen.items() if values]
    for method, *values in product(methods, *(chosen[name] for name in names)):
        picked = dict(zip(names, values, strict=True))
        try:
            config = _fitting(experiment, wish, method, picked)
        except UserError:
            continue  # the combination is no model
        for seed in seeds:
            one = experiment.configure(method, wish.data, **{**config, "seed": seed})
            if one not in seen:
                seen.add(one)
                yield one


def _fitting(experiment: Experiment, wish: Wish, method: str, picked: dict[str, Any]) -> dict[str, Any]:
    """The form's settings and the picked ones, less those that have no meaning here."""
    given: dict[str, Any] = {}
    own = wish.given if method == wish.method else {k: v for k, v in wish.given.items() if form.shared(k)}
    for key, value in {**own, **picked}.items():
        try:
            experiment.configure(method, wish.data, **{**given, key: value})
        except UserError:
            continue
        given[key] = value
    return given


def _toggles(experiment: Experiment) -> list[str]:
    uses = frozenset().union(*(m.uses for m in experiment.methods.values()))
    return [s.key for s in SETTINGS.values() if s.key in uses and s.group == "attention" and s.choices]


def _usual(experiment: Experiment) -> list[str]:
    return [m for m in ("odenet", "augmented", "ace") if m in experiment.methods] or list(experiment.methods)[-3:]
