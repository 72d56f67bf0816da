"""What a page can ask of the playground: settings and commands, and a check of what a browser sends."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from acenode.errors import UserError

ACTIONS = ("run", "pause", "step", "rewind", "set")
PROBLEM_NAMES = ("swap", "zero", "circles", "spirals", "drawn")
ATTENTIONS = ("elementwise", "pairwise")
MOST_STROKES, MOST_POINTS, EDGE = 8, 200, 3.0  # of drawn paths; their coordinates are between −EDGE and EDGE
SHORTEST = 0.05  # length of a drawn path


class Range(NamedTuple):
    """The numbers that a setting may have."""

    low: float
    high: float
    whole: bool = False


RANGES = {"learning_rate": Range(1e-4, 0.1), "tolerance": Range(1e-5, 0.1), "penalty_weight": Range(0.0, 0.1),
          "hidden": Range(2, 64, whole=True), "seed": Range(0, 9999, whole=True)}
NUMBERS_CHANGED_IN_PLACE = ("learning_rate", "tolerance", "penalty_weight")  # the others build new networks


@dataclass(frozen=True)
class PlaygroundSettings:
    """What is trained and how."""

    problem: str = "swap"  # a name of `problems.PROBLEMS`
    learning_rate: float = 0.02
    tolerance: float = 0.003  # rtol and atol of the solver
    penalty_weight: float = 1e-4  # λ in L_a = L_task + λ‖θ_g‖
    hidden: int = 16  # the width of the hidden layer of f, g and q
    attention: str = "elementwise"  # how ACE-NODE attends: elementwise (Eq. 5) or pairwise (Eq. 4)
    seed: int = 0
    strokes: tuple[tuple[tuple[float, float], ...], ...] = ()  # the drawn paths, for the problem "drawn"

    def changed(self, values: Mapping[str, Any]) -> PlaygroundSettings:
        """Return the settings with some values replaced, after a check of each, which raises a UserError."""
        return dataclasses.replace(self, **{key: _checked(key, value) for key, value in values.items()})

    def needs_new_networks(self, old: PlaygroundSettings) -> bool:
        """Return whether a change from `old` cannot be applied to networks that train already."""
        return any(getattr(self, f.name) != getattr(old, f.name) for f in dataclasses.fields(self)
                   if f.name not in NUMBERS_CHANGED_IN_PLACE)


@dataclass(frozen=True)
class Command:
    """An action, and for "set" the new values of settings."""

    action: str
    values: Mapping[str, Any] = field(default_factory=dict)


def read_command(message: Any) -> Command:
    """Read {"action": "run"} or {"action": "set", "values": {"hidden": 8}}; a UserError says what else it is."""
    if not isinstance(message, dict) or message.get("action") not in ACTIONS:
        raise UserError(f"send an action of the playground: {', '.join(ACTIONS)}")
    values = message.get("values", {})
    if not isinstance(values, dict) or (values and message["action"] != "set"):
        raise UserError("only the action set has values, as an object of settings")
    if message.keys() - {"action", "values"}:
        raise UserError("a command of the playground has an action and values, nothing else")
    PlaygroundSettings().changed(values)  # raises
    return Command(message["action"], values)


def _checked(key: str, value: Any) -> Any:
    if key in RANGES:
        low, high, whole = RANGES[key]
        if type(value) not in ((int,) if whole else (int, float)) or not low <= value <= high:  # NaN is neither
            what = "a whole number" if whole else "a number"
            raise UserError(f"{key} is {what} from {low:g} to {high:g}, not {str(value)[:40]!r}")
        return value if whole else float(value)
    if key == "strokes":
        return _strokes(value)
    choices = {"problem": PROBLEM_NAMES, "attention": ATTENTIONS}.get(key, ())
    if not choices:
        raise UserError(f"the playground has no setting {str(key)[:40]!r}")
    if value not in choices:
        raise UserError(f"{key} is one of {', '.join(choices)}, not {str(value)[:40]!r}")
    return value


def _strokes(value: Any) -> tuple[tuple[tuple[float, float], ...], ...]:
    """Check drawn paths: lists of places [x, y]."""
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MOST_STROKES:
        raise UserError(f"draw between 1 and {MOST_STROKES} paths")
    found = []
    for stroke in value:
        if not isinstance(stroke, list | tuple) or not 2 <= len(stroke) <= MOST_POINTS:
            raise UserError(f"a drawn path has between 2 and {MOST_POINTS} places")
        if not all(isinstance(p, list | tuple) and len(p) == 2
                   and all(type(x) in (int, float) and abs(x) <= EDGE for x in p) for p in stroke):
            raise UserError(f"a place of a drawn path has two coordinates between {-EDGE:g} and {EDGE:g}")
        path = tuple((float(x), float(y)) for x, y in stroke)
        if sum(math.dist(a, b) for a, b in pairwise(path)) < SHORTEST:
            raise UserError("a drawn path goes somewhere: drag further")
        found.append(path)
    return tuple(found)
