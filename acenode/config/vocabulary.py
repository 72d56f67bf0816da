"""Read and check the values of settings, lists of seeds and presets, as users give them."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from acenode.config.groups import ARGUMENTS, DEPENDS, KEYS, SETTINGS
from acenode.errors import UserError

PRESET = "preset"  # given like a setting; config.json keeps what it resolves to
CHOSEN, PRINTED = "chosen", "printed"  # the lab's defaults; the paper's settings also where they do not work
PRESETS = (CHOSEN, PRINTED)
MOST_SEEDS = 50  # at a time


def excluded(key: str, values: Mapping[str, Any]) -> bool:
    other, allowed = DEPENDS.get(key, ("", frozenset()))
    return bool(other) and values.get(other) not in allowed


def known(key: str, among: Iterable[str] = SETTINGS, owner: str = "") -> str:
    """Return the key, or raise an error that suggests the nearest one or lists those in `among`, which `owner` has."""
    if key in KEYS:
        return key
    possible = [k for k in SETTINGS if k in set(among)]
    near = difflib.get_close_matches(key, possible, 1) or difflib.get_close_matches(key, KEYS, 1)
    listed = f"{owner} has {', '.join(possible)}" if owner else f"choose from {', '.join(possible)}"
    raise UserError(f"there is no setting {key!r}: " + (f"did you mean {near[0]}?" if near else listed))


def check(key: str, value: Any) -> Any:
    """Return the value in its setting's type; raise an error if it is out of bounds."""
    try:
        return _cached_check(key, value)
    except TypeError:  # a list, for instance, which cannot be looked up
        return _check(key, value)


def _check(key: str, value: Any) -> Any:
    setting = KEYS[key]
    if setting.type is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not setting.type:  # bool is a subclass of int, and not accepted as one
        raise UserError(f"{key} must be {_a(setting.type)}, not {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{key} must be a finite number, not {value}")
    if setting.choices and value not in setting.choices and not re.fullmatch(setting.pattern or "(?!)", str(value)):
        raise UserError(f"{key} has no value {value!r}: choose one of {', '.join(setting.choices)}"
                        + " or cuda:N" * bool(setting.pattern))
    low, high, above = setting.low, setting.high, setting.above
    number: Any = value
    too_low = (low is not None and number < low) or (above is not None and number <= above)
    if too_low or (high is not None and number > high):
        least = f"at least {_number(low)}" if low is not None else f"above {_number(above)}"
        raise UserError(f"{key} must be {least} and at most {_number(high)}, not {_number(value)}")
    return value


_cached_check = lru_cache(maxsize=4096, typed=True)(_check)  # thousands of runs share most of their values


def choosable(key: str) -> str:
    """Return the key, or raise an error if users cannot set it."""
    if key in ARGUMENTS:
        raise UserError(f"{key} is an argument of the command, not a setting")
    if key not in SETTINGS:
        raise UserError(f"{key} is a constant and cannot be set: leave it out")
    return key


def parse(key: str, text: str, among: Iterable[str] = SETTINGS, owner: str = "") -> Any:
    """Read the value of `--set key=text`; the error for an unknown key lists those in `among`, which `owner` has."""
    kind = KEYS[choosable(known(key, among, owner))].type
    try:
        if kind is bool:
            value: Any = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text.lower()]
        elif kind is not str and (not text.isascii() or "_" in text):  # Python reads 1_0 and digits of other scripts
            raise ValueError
        else:
            value = kind(text)
    except (ValueError, KeyError):
        raise UserError(f"{key} must be {_a(kind)}, not {text!r}") from None
    return check(key, value)


def _number(value: Any) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _a(kind: type) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}[kind]


def read_seeds(text: str) -> list[int]:
    """Read `0`, `0, 1, 5`, `0 1 5` or `0-4`."""
    found: list[int] = []
    parts = re.sub(r"\s*-\s*", "-", text.strip()).replace(";", ",")
    for part in re.split(r"\s*,\s*|\s+", parts):
        first, dash, last = (p.strip() for p in part.partition("-"))
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UserError(f"seeds are whole numbers, such as 0 or 0, 1, 2 or 0-4, not {part.strip()!r}")
        end = int(last) if dash else int(first)
        if not 0 <= end - int(first) < MOST_SEEDS:
            raise UserError(f"a range of seeds goes upwards and has at most {MOST_SEEDS} of them, not {part.strip()!r}")
        found += [check("seed", n) for n in range(int(first), end + 1)]
    if len(found) > MOST_SEEDS:
        raise UserError(f"at most {MOST_SEEDS} seeds at a time, not {len(found)}")
    return list(dict.fromkeys(found))


def check_preset(preset: object) -> str:
    if preset not in PRESETS:
        raise UserError(f"there is no preset {preset!r}: choose {' or '.join(PRESETS)}")
    return str(preset)
