"""The ranges of a search: which values of which settings are tried, read from text.

    KEY=LOW..HIGH       every value between, both ends included
    KEY=log:LOW..HIGH   the same on a logarithmic scale
    KEY=VALUE,VALUE     one of these values
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from acenode.config.vocabulary import SETTINGS, choosable, known, parse
from acenode.errors import UserError

LOG = "log:"
BETWEEN = ".."
MAX_VALUES = 100  # of one setting
MAX_RANGES = 20  # of one search
NOT_SEARCHED = frozenset({"fold"})  # selects the data; a search would choose the easiest


@dataclass(frozen=True)
class SearchRange:
    """The values of one setting that a search tries: an interval, or a list."""

    key: str
    low: float | None = None
    high: float | None = None
    log: bool = False
    values: tuple[Any, ...] = ()

    @property
    def whole(self) -> bool:
        return SETTINGS[self.key].type is int

    @property
    def text(self) -> str:
        if self.values:
            return ",".join(_written(value) for value in self.values)
        return f"{LOG if self.log else ''}{_written(self.low)}{BETWEEN}{_written(self.high)}"

    def contains(self, value: Any) -> bool:
        if self.values:
            return value in self.values
        return self.low is not None and self.high is not None and value is not None and self.low <= value <= self.high


def read_ranges(texts: Iterable[str], among: Iterable[str] = SETTINGS, owner: str = "") -> tuple[SearchRange, ...]:
    """Read the ranges of a search, such as `learning_rate=log:1e-5..1e-2, penalty_weight=0,1e-4`, in one or more texts.

    The error for an unknown setting lists those in `among`, which `owner` has: a method and experiment, in words.
    """
    found: dict[str, list[str]] = {}
    for text in texts:
        key = ""
        for part in (part.strip() for part in text.split(",")):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if equals:
                key = name
                if key in found:
                    raise UserError(f"{key} is given twice: leave one out")
                found[key] = [value]
            elif not key:
                raise UserError(f"ranges are written as learning_rate=log:1e-5..1e-2, penalty_weight=0,1e-4, not "
                                f"{text.strip()!r}")
            else:
                found[key].append(part)
    if not found:
        raise UserError("name the settings to search, such as learning_rate=log:1e-5..1e-2")
    if len(found) > MAX_RANGES:
        raise UserError(f"a search has at most {MAX_RANGES} settings, not {len(found)}")
    for key in found:
        searchable(known(key, among, owner))
    return tuple(_range(key, found[key]) for key in SETTINGS if key in found)  # each follows those that it depends on


def read_range(key: str, text: str) -> SearchRange:
    """Read the range of one setting: `log:1e-5..1e-2`, `1..4`, `0,1e-4,1e-3`."""
    return _range(searchable(known(key)), [part.strip() for part in text.split(",")])


def ranges_text(ranges: Sequence[SearchRange]) -> str:
    return ", ".join(f"{one.key}={one.text}" for one in ranges)


def searchable(key: str) -> str:
    """Return the key, or raise an error if a search cannot vary it."""
    choosable(key)
    if key in NOT_SEARCHED or SETTINGS[key].group == "record":
        reason = "selects the data" if key in NOT_SEARCHED else "does not change how good a model is"
        raise UserError(f"{key} {reason}, so it cannot be searched: give it with --set")
    return key


def _range(key: str, parts: Sequence[str]) -> SearchRange:
    if len(parts) == 1 and BETWEEN in parts[0]:
        return _interval(key, parts[0])
    if any(BETWEEN in part or part.startswith(LOG) for part in parts):
        raise UserError(f"{key} takes one range, such as {LOG}1e-5{BETWEEN}1e-2, or a list of values, not "
                        f"{', '.join(parts)!r}")
    values = tuple(dict.fromkeys(parse(key, part) for part in parts))
    if len(values) < 2:
        raise UserError(f"{key} has one value to try: give at least two, a range such as 1e-5{BETWEEN}1e-2, or use "
                        f"--set {key}={parts[0]}")
    if len(values) > MAX_VALUES:
        raise UserError(f"{key} has {len(values)} values to try: give at most {MAX_VALUES}, or a range")
    return SearchRange(key, values=values)


def _interval(key: str, text: str) -> SearchRange:
    setting, log = SETTINGS[key], text.startswith(LOG)
    if setting.type not in (int, float):
        choices = ",".join(setting.choices) if setting.choices else "true,false"
        raise UserError(f"{key} is not a number: list the values to try, such as {key}={choices}")
    first, _, last = text.removeprefix(LOG).partition(BETWEEN)
    low, high = _number(key, first, text), _number(key, last, text)
    if log and low <= 0:
        raise UserError(f"{key}={text}: a logarithmic range must start above 0")
    if not low < high:
        raise UserError(f"{key}={text}: a range goes from a smaller to a larger number")
    parse(key, first.strip())
    parse(key, last.strip())
    return SearchRange(key, low, high, log)


def _number(key: str, text: str, whole: str) -> float:
    try:
        if not text.strip() or not text.isascii() or "_" in text:
            raise ValueError
        value = SETTINGS[key].type(text.strip())
    except ValueError:
        raise UserError(f"{key}={whole}: {text.strip()!r} is not {'a whole' if SETTINGS[key].type is int else 'a'} "
                        f"number; a range is written as 1e-5{BETWEEN}1e-2") from None
    return value


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value) if isinstance(value, float) else str(value)
