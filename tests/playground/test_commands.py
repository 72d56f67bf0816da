"""Commands from a browser are checked like the values of a form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acenode.errors import UserError
from acenode.playground.commands import read_command
from acenode.playground.settings import PlaygroundSettings

PATH = [[0.0, 0.0], [1.0, 0.5]]


@pytest.mark.parametrize("message", [
    {"action": "run"}, {"action": "rewind"}, {"action": "set", "values": {}},
    {"action": "set", "values": {"learning_rate": 0.1, "tolerance": 1e-5, "penalty_weight": 0, "hidden": 64}},
    {"action": "set", "values": {"seed": 0}},
    {"action": "set", "values": {"problem": "drawn", "attention": "pairwise", "strokes": [PATH] * 8}}])
def test_good_commands(message: dict[str, Any]) -> None:
    assert read_command(message).action == message["action"]


@pytest.mark.parametrize(("message", "words"), [
    (None, "send an action"), ([], "send an action"), ({"action": "explode"}, "send an action"),
    ({"action": ["run"]}, "send an action"), ({"action": "run", "values": {"hidden": 3}}, "only the action set"),
    ({"action": "set", "values": [1]}, "only the action set"), ({"action": "run", "path": "/"}, "nothing else"),
    ({"action": "set", "values": {"__class__": 1}}, "no setting"),
    ({"action": "set", "values": {"problem": "x"}}, "one of"),
    ({"action": "set", "values": {"problem": ["swap"]}}, "one of"),
    ({"action": "set", "values": {"hidden": 65}}, "from 2 to 64"),
    ({"action": "set", "values": {"hidden": 8.0}}, "whole"),
    ({"action": "set", "values": {"hidden": True}}, "whole"), ({"action": "set", "values": {"hidden": "8"}}, "whole"),
    ({"action": "set", "values": {"learning_rate": 0}}, "from 0.0001"),
    ({"action": "set", "values": {"tolerance": json.loads("NaN")}}, "from 1e-05"),
    ({"action": "set", "values": {"penalty_weight": json.loads("1e999")}}, "from 0 to"),
    ({"action": "set", "values": {"learning_rate": 10**400}}, "from 0.0001"),
    ({"action": "set", "values": {"strokes": []}}, "between 1 and 8"),
    ({"action": "set", "values": {"strokes": [PATH] * 9}}, "between 1 and 8"),
    ({"action": "set", "values": {"strokes": [[[0, 0]]]}}, "between 2 and 200"),
    ({"action": "set", "values": {"strokes": [[[0, 0], [0, 9]]]}}, "two coordinates"),
    ({"action": "set", "values": {"strokes": [[[0, 0], [0, "1"]]]}}, "two coordinates"),
    ({"action": "set", "values": {"strokes": [[[0, 0], [0, 0]]]}}, "drag further")])
def test_bad_commands(message: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        read_command(message)


def test_settings_change_without_losing_the_others() -> None:
    settings = PlaygroundSettings().changed({"hidden": 8}).changed({"tolerance": 0.05})
    assert (settings.hidden, settings.tolerance, settings.problem) == (8, 0.05, "swap")
    assert not settings.changed({"tolerance": 0.01}).needs_new_networks(settings)
    assert settings.changed({"seed": 4}).needs_new_networks(settings)
