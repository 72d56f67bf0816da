"""What a page begins with: the defaults, or the configuration of a run that is to be repeated with changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from acenode.config import SETTINGS
from acenode.experiments import Experiment

from . import say
from .lab import lab


@dataclass(frozen=True)
class Preset:
    """Values for the form; `mark` keeps the widgets of different presets apart."""

    method: str
    data: str = "sample"
    seeds: str = "0"
    device: str = "auto"
    mark: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)


def read(experiment: Experiment) -> Preset:
    """From `?from=RUN` in the URL, if it names a run of this experiment."""
    usual = Preset("ace" if "ace" in experiment.methods else next(iter(experiment.methods)))
    name = st.query_params.get("from")
    entry = lab().catalogue.entry(name) if name else None
    if entry is None or entry.experiment != experiment.name or entry.method not in experiment.methods:
        return usual
    st.info(f"The form below repeats {say.plain(entry.id)}: change what you want to change.",
            icon=":material/content_copy:")
    values = {k: v for k, v in entry.config.items() if k in SETTINGS}
    return Preset(entry.method, entry.data, str(entry.seed), entry.config.get("device", "auto"), entry.id, values)
