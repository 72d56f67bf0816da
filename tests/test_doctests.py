"""The public names, and those of the API page: every docstring is complete, and its examples run."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import acenode

PUBLIC = list(acenode.__all__)
API = re.findall(r"^::: ([\w.]+)\.(\w+)$", (Path(__file__).parents[1] / "docs" / "api.md").read_text(), re.M)
MODULES = sorted({getattr(acenode, name).__module__ for name in PUBLIC} | {module for module, _ in API})


@pytest.mark.parametrize("module", MODULES)
def test_examples_run(module: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(module))
    assert tried > 0
    assert failed == 0


@pytest.mark.parametrize("name", PUBLIC)
def test_public_name_has_an_example(name: str) -> None:
    assert any(test.examples for test in doctest.DocTestFinder(recurse=False).find(getattr(acenode, name), name))


def sections_missing(documented: Any, sections: tuple[str, ...]) -> list[str]:
    lines = [line.strip() for line in (inspect.getdoc(documented) or "").splitlines()]
    return [section for section in sections if f"{section}:" not in lines]


def arguments_missing(function: Any, documented: Any) -> list[str]:
    """Return the parameters of a function that a docstring does not describe."""
    text = inspect.getdoc(documented) or ""
    return [name for name in inspect.signature(function).parameters
            if name != "self" and f"\n    {name}: " not in text]


def test_the_api_page_has_all_public_names_and_those_of_training() -> None:
    training = {"Trainer", "BestEpoch", "Task", "Recipe", "ParameterGroups", "Loss", "Metric"}
    assert {name for _, name in API} == {*PUBLIC, *training}


@pytest.mark.parametrize(("module", "name"), API)
def test_documented_docstring_is_complete(module: str, name: str) -> None:
    """A function describes arguments and result; so do a class's constructor and its call, and a protocol's members."""
    thing = getattr(importlib.import_module(module), name)
    if getattr(thing, "_is_protocol", False):
        assert [name for name, member in vars(thing).items() if name[0] != "_" and not inspect.getdoc(member)] == []
        return
    if not inspect.isclass(thing):
        assert sections_missing(thing, ("Args", "Returns")) == []
        assert arguments_missing(thing, thing) == []
        return
    if dataclasses.is_dataclass(thing) or "__init__" in vars(thing):
        assert sections_missing(thing, ("Args",)) == []
        assert arguments_missing(thing.__init__, thing) == []  # type: ignore[misc]
    for call in ("forward", "__call__"):
        if call in vars(thing):
            assert sections_missing(vars(thing)[call], ("Args", "Returns")) == []
            assert arguments_missing(vars(thing)[call], vars(thing)[call]) == []
