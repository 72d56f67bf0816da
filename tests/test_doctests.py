"""The public names: every docstring is complete, and its examples run."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import inspect
from typing import Any

import pytest

import acenode

PUBLIC = list(acenode.__all__)
MODULES = sorted({getattr(acenode, name).__module__ for name in PUBLIC})


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


@pytest.mark.parametrize("name", PUBLIC)
def test_public_docstring_is_complete(name: str) -> None:
    """A function describes arguments and result; so do a class's constructor and its call."""
    thing = getattr(acenode, name)
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
