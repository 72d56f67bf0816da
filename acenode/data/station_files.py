"""NOAA's daily station files: fixed width, a month of one element a line, in GHCN's form (.dly) or USHCN's."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from acenode.errors import UserError

Form = Literal["ghcn", "ushcn"]  # metric and in inches and °F, so that the two do not mix
QUALITY_FLAGS = b"DGIKLMNORSTWXZ"  # of values that failed a check
MISSING = -9999
DAYS = 31

MALFORMED, NUMBERLESS = "malformed lines", "values that are no number"
NO_DAY, TWICE = "values on days that are not in the calendar", "values that come twice"
EMPTY, UNSOUND, OTHER = "empty files", "files of malformed lines alone", "files without any of the variables"
ONE = {MALFORMED: "malformed line", NUMBERLESS: "value that is no number",
       NO_DAY: "value on a day that is not in the calendar", TWICE: "value that comes twice", EMPTY: "empty file",
       UNSOUND: "file of malformed lines alone", OTHER: "file without any of the variables"}

_HEAD: dict[Form, re.Pattern[bytes]] = {
    "ghcn": re.compile(rb"([A-Z]{2}[A-Z0-9_-]{9})(\d{4})(0[1-9]|1[0-2])([A-Z0-9]{4})"),
    "ushcn": re.compile(rb"(\d{6})(\d{4})(0[1-9]|1[0-2])([A-Z0-9]{4})"),
}


@dataclass(frozen=True, eq=False)
class Station:
    """A station's sound observations in order of element and day."""

    name: str
    element: np.ndarray  # (R,) int64, its place among those asked for
    day: np.ndarray  # (R,) datetime64[D]
    value: np.ndarray  # (R,) int64, in the file's unit


def form_of(line: bytes) -> Form | None:
    """Which form a line is in, if any."""
    return next((form for form, head in _HEAD.items() if head.match(line)), None)


def read_stations(path: Path, elements: tuple[str, ...], skipped: Counter[str]) -> tuple[list[Station], Form | None]:
    """The stations of a file by name, and its form, which an empty one has not; missing values and those that failed
    NOAA's checks are no observations."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror or error})") from error
    if not any(line.strip() for line in lines):
        skipped[EMPTY] += 1
        return [], None
    form = next((found for line in lines if (found := form_of(line))), None)
    if form is None:
        raise UserError(f"{path} is not a daily station file of NOAA: take it out of the folder")
    places = {name.encode(): place for place, name in enumerate(elements)}
    width = sum((11 if form == "ghcn" else 6, 4, 2, 4)) + 8 * DAYS
    kept: dict[str, list[tuple[int, str, bytes]]] = {}  # of each station: element, month and the days' fields
    sound = False
    for line in lines:
        head = _HEAD[form].match(line)
        # Trailing blanks may be cut off, and the last day's three flags may be blank.
        if head is None or not width - 3 <= len(line.rstrip()) <= width:
            skipped[MALFORMED] += bool(line.strip())
            continue
        sound = True
        if head[4] in places:
            month = f"{head[2].decode()}-{head[3].decode()}"
            kept.setdefault(head[1].decode(), []).append(
                (places[head[4]], month, line.rstrip().ljust(width)[head.end():]))
    if not kept:
        skipped[OTHER if sound else UNSOUND] += 1
    return [_station(name, kept[name], skipped) for name in sorted(kept)], form


def _station(name: str, lines: list[tuple[int, str, bytes]], skipped: Counter[str]) -> Station:
    fields = np.frombuffer(b"".join(line[2] for line in lines), np.uint8).reshape(len(lines), DAYS, 8)
    value, sound = _numbers(fields[:, :, :5])
    skipped[NUMBERLESS] += int((~sound).sum())
    month = np.array([line[1] for line in lines], "datetime64[M]")[:, None]
    day = month.astype("datetime64[D]") + np.arange(DAYS)
    seen = sound & (value != MISSING)
    dated = day.astype("datetime64[M]") == month
    skipped[NO_DAY] += int((seen & ~dated).sum())
    seen &= dated & ~np.isin(fields[:, :, 6], np.frombuffer(QUALITY_FLAGS, np.uint8))
    element = np.broadcast_to(np.array([line[0] for line in lines])[:, None], seen.shape)[seen]
    day, value = day[seen], value[seen]
    order = np.lexsort((day, element))
    element, day, value = element[order], day[order], value[order]
    again = np.zeros(len(day), bool)
    again[1:] = (np.diff(element) == 0) & (day[1:] == day[:-1])
    skipped[TWICE] += int(again.sum())
    return Station(name, element[~again], day[~again], value[~again])


def _numbers(text: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Right-aligned whole numbers of five characters (…, 5), and which of them are: blanks, a minus or none, digits."""
    digit = (text >= ord("0")) & (text <= ord("9"))
    minus = text == ord("-")
    kind = np.where(digit, 2, np.where(minus, 1, np.where(text == ord(" "), 0, 3))).astype(np.int8)
    sound = (kind[..., -1] == 2) & (np.diff(kind, axis=-1) >= 0).all(axis=-1) & (minus.sum(axis=-1) <= 1)
    size = np.where(digit, text - np.uint8(ord("0")), 0) @ np.array([10_000, 1_000, 100, 10, 1])
    return np.where(minus.any(axis=-1), -size, size), sound
