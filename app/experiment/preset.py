"""The values a form starts with: the defaults, or the configuration of an earlier run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from acenode.config import SETTINGS
from acenode.errors import UserError
from acenode.experiments import Experiment
from acenode.runs.catalogue import Entry

from .. import messages
from ..services import services

COPIES = "preset/copies"  # how often a run's settings were copied into the form


@dataclass(frozen=True)
class Preset:
    """Initial values of the form; `name` is the run they come from, empty for the defaults."""

    method: str
    data: str = "sample"
    seeds: str = "0"
    device: str = "auto"
    name: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)


def read(experiment: Experiment) -> Preset:
    """Return the configuration of the run in `?from=RUN`, if it is a run of this experiment, else the defaults."""
    default = Preset("ace" if "ace" in experiment.methods else next(iter(experiment.methods)))
    run_id = st.query_params.get("from")
    entry = services().catalogue.entry(run_id) if run_id else None
    if entry is None or entry.experiment != experiment.name or entry.method not in experiment.methods:
        if run_id:
            st.warning(f"There is no run {messages.escape(run_id)} of {experiment.title} here. The form has the "
                       "defaults.", icon=":material/link_off:")
        return default
    st.info(f"The form has the settings of {messages.escape(entry.id)}. Change them as you like.",
            icon=":material/content_copy:")
    values = {k: v for k, v in entry.config.items() if k in SETTINGS}
    lost = _no_longer_set(experiment, entry, values)
    if lost:
        st.warning(f"This run had {messages.escape(', '.join(lost))}, which can no longer be set.")
    return Preset(entry.method, entry.data, str(entry.seed), entry.config.get("device", "auto"), entry.id, values)


def _no_longer_set(experiment: Experiment, entry: Entry, values: Mapping[str, Any]) -> list[str]:
    """Return the settings of an older run that are constants now, where its values differ from them."""
    try:
        constants = experiment.configure(entry.method, entry.data, **values).settings
    except UserError:  # the form explains what is wrong
        return []
    return [f"{k}={v}" for k, v in entry.config.items() if k not in SETTINGS and constants.get(k, v) != v]
