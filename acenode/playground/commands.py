"""What a page can ask of the playground, and a check of what a browser sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from acenode.errors import UserError
from acenode.playground.settings import PlaygroundSettings

ACTIONS = ("run", "pause", "step", "rewind", "set")


@dataclass(frozen=True)
class Command:
    """An action, and for "set" the new values of settings."""

    action: str
    values: Mapping[str, Any] = field(default_factory=dict)


def read_command(message: Any) -> Command:
    """Read {"action": "run"} or {"action": "set", "values": {"hidden": 8}}.

    Raises:
        UserError: it is anything else, or a value is not allowed.
    """
    if not isinstance(message, dict) or message.get("action") not in ACTIONS:
        raise UserError(f"send an action of the playground: {', '.join(ACTIONS)}")
    values = message.get("values", {})
    if not isinstance(values, dict) or (values and message["action"] != "set"):
        raise UserError("only the action set has values, as an object of settings")
    if message.keys() - {"action", "values"}:
        raise UserError("a command of the playground has an action and values, nothing else")
    PlaygroundSettings().changed(values)  # raises
    return Command(message["action"], values)
