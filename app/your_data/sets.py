"""The imported sets of the app's data folder, and errors of importing in the app's words."""

from __future__ import annotations

import re

import streamlit as st

from acenode.compare.study_grid import reserved_names
from acenode.data.importing.store import ImportedSets
from acenode.data.named_set import NamedSet
from acenode.errors import UserError
from acenode.files import stamp

from .. import messages
from ..services import services

SET = "set"  # query parameter: the name of a set
TASKS = {"forecast": "Forecast", "fill": "Fill in", "classify": "Classify"}
FLAG = re.compile(r" \(--[^)]*\)")  # how to do something on the command line


def imported_sets() -> ImportedSets:
    """Return the imported sets; they cannot have the names of experiments and of sets that runs were trained on."""
    return ImportedSets(services().data_root, lambda: reserved_names(services().catalogue))


def load(name: str) -> NamedSet:
    """Return a set, read once until its file changes. A UserError says why it cannot be read."""
    path = imported_sets().path(name)
    return _load(str(path), stamp(path / "set.npz"), stamp(path / "about.json"))


def window_of(name: str) -> float | None:
    """Return the length of a set's windows; None if its series are whole, or if that cannot be read."""
    try:
        return imported_sets().details(name).window
    except UserError:
        return None


@st.cache_resource(max_entries=16, show_spinner=False)
def _load(path: str, arrays: object, about: object) -> NamedSet:
    from pathlib import Path

    return NamedSet.load(Path(path))


def show_error(error: object) -> None:
    """Show what is wrong with a file, without the options of the command line."""
    text = FLAG.sub("", str(error))
    messages.error(f"{text[:1].upper()}{text[1:]}")


def open_set(name: str | None) -> None:
    """Show a set, or the list of all with None, at the next rerun."""
    if name is None:
        st.query_params.pop(SET, None)
    else:
        st.query_params[SET] = name
