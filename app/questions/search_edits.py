"""What the user changed in the form of a new search: kept where another method or other data is chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import streamlit as st

from acenode.errors import UserError
from acenode.experiments import Experiment

from .. import form
from ..form import FormValues

T = TypeVar("T")


def of(experiment: Experiment, part: str = "fields") -> dict[str, Any]:
    """Return the edited values by name: `fields` of the search, or the `settings` that all trials share."""
    found: dict[str, Any] = st.session_state.setdefault(f"search/edited/{experiment.name}/{part}", {})
    return found


def ask(edited: dict[str, Any], name: str, usual: T, show: Callable[[T], T]) -> T:
    """Show a field that starts with the edited value, or the usual one, and remember what it has."""
    value = show(edited.get(name, usual))
    keep(edited, name, value, usual)
    return value


def keep(edited: dict[str, Any], name: str, value: Any, usual: Any) -> None:
    """Remember a value that is not the usual one; forget the name if the user has chosen the usual value again."""
    if value != usual:
        edited[name] = value
    elif edited.get(name) != value:  # what was entered elsewhere may happen to be the usual value here
        edited.pop(name, None)


def ask_shared(experiment: Experiment, method: str, data: str) -> FormValues:
    """Ask for the settings that all trials share, starting with what was entered for other methods and data."""
    edited = of(experiment, "settings")
    values = form.show(experiment, method, data, dict(edited), "search", carry=False)
    edited.update(values.changed)
    try:
        config = values.configure(experiment)
    except UserError:  # the form says what is wrong
        return values
    if not values.errors:
        for name in [name for name in edited if config.get(name) not in (None, edited[name])]:
            del edited[name]  # the default again; settings that do not apply here are kept
    return values


def forget(experiment_name: str) -> None:
    """Let the next form of this experiment start with the defaults."""
    for part in ("fields", "settings"):
        st.session_state.pop(f"search/edited/{experiment_name}/{part}", None)
