"""Meaning and unit of every variable of the data sets."""

from __future__ import annotations

import pytest

from acenode.data import activity, physionet, ushcn, variables


@pytest.mark.parametrize(("names", "known"), [
    (physionet.VARIABLES, variables.PHYSIONET), (ushcn.VARIABLES, variables.USHCN),
    (activity.NAMES, variables.ACTIVITY)])
def test_every_variable_is_known(names: tuple[str, ...], known: dict[str, variables.Variable]) -> None:
    assert set(names) == set(known)
    assert all(v.title for v in known.values())


def test_units_and_titles() -> None:
    assert variables.unit("HR") == "beats a minute"
    assert variables.title("HR") == "HR · heart rate"
    assert variables.unit("TMAX") == "standard deviations"
    assert (variables.unit("x1"), variables.title("x1")) == ("", "x1")


@pytest.mark.parametrize(("subject", "id", "name"), [
    ("patient", "132539", "patient 132539"), ("station", "17", "station 17"),
    ("window", "A01/0025", "window A01/0025"),
    ("patient", "stay012", "stay012"), ("", "7", "7")])
def test_names_of_subjects(subject: str, id: str, name: str) -> None:
    assert variables.subject_name(subject, id) == name
