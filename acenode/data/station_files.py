"""Read NOAA's daily station files: lines of fixed width, each a month of one element, in the format of GHCN (.dly) or
USHCN."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from acenode.errors import UserError

FileFormat = Literal["ghcn", "ushcn"]  # metric units; inches and °F
QUALITY_FLAGS = b"DGIKLMNORSTWXZ"  # of values that failed a check
MISSING = -9999
DAYS = 31

MALFORMED, NOT_A_NUMBER = "malformed lines", "values that are not numbers"
NO_DAY, DUPLICATE = "values on days that do not exist", "duplicate values"
EMPTY, ALL_MALFORMED, OTHER = "empty files", "files with only malformed lines", "files without any of the variables"
SINGULAR = {MALFORMED: "malformed line", NOT_A_NUMBER: "value that is not a number",
            NO_DAY: "value on a day that does not exist", DUPLICATE: "duplicate value", EMPTY: "empty file",
            ALL_MALFORMED: "file with only malformed lines", OTHER: "file without any of the variables"}

_HEAD: dict[FileFormat, re.Pattern[bytes]] = {
    "ghcn": re.compile(rb"([A-Z]{2}[A-Z0-9_-]{9})(\d{4})(0[1-9]|1[0-2])([A-Z0-9]{4})"),
    "ushcn": re.compile(rb"(\d{6})(\d{4})(0[1-9]|1[0-2])([A-Z0-9]{4})"),
}


@dataclass(frozen=True, eq=False)
class Station:
    """The valid observations of a station in order of element and day."""

    name: str
    element: np.ndarray  # (R,) int64, index among the elements asked for
    day: np.ndarray  # (R,) datetime64[D]
    value: np.ndarray  # (R,) int64, in the file's unit


def format_of(line: bytes) -> FileFormat | None:
    """Return the format of a line, or None if it has neither."""
    return next((name for name, head in _HEAD.items() if head.match(line)), None)


def read_stations(
    path: Path, elements: tuple[str, ...], skipped: Counter[str]
) -> tuple[list[Station], FileFormat | None]:
    """Return the stations of a file by name, and its format (None for an empty file). Missing values and those that
    failed NOAA's quality checks are left out."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror or error})") from error
    if not any(line.strip() for line in lines):
        skipped[EMPTY] += 1
        return [], None
    file_format = next((found for line in lines if (found := format_of(line))), None)
    if file_format is None:
        raise UserError(f"{path} is not a daily station file of NOAA: remove it from the folder")
    places = {name.encode(): place for place, name in enumerate(elements)}
    width = sum((11 if file_format == "ghcn" else 6, 4, 2, 4)) + 8 * DAYS
    kept: dict[str, list[tuple[int, str, bytes]]] = {}  # by station: element, month and the fields of the days
    any_valid = False
    for line in lines:
        head = _HEAD[file_format].match(line)
        # Trailing blanks may be missing, and the three flags of the last day may be blank.
        if head is None or not width - 3 <= len(line.rstrip()) <= width:
            skipped[MALFORMED] += bool(line.strip())
            continue
        any_valid = True
        if head[4] in places:
            month = f"{head[2].decode()}-{head[3].decode()}"
            kept.setdefault(head[1].decode(), []).append(
                (places[head[4]], month, line.rstrip().ljust(width)[head.end():]))
    if not kept:
        skipped[OTHER if any_valid else ALL_MALFORMED] += 1
    return [_station(name, kept[name], skipped) for name in sorted(kept)], file_format


def _station(name: str, lines: list[tuple[int, str, bytes]], skipped: Counter[str]) -> Station:
    """Parse the fields of a station's lines."""
    fields = np.frombuffer(b"".join(line[2] for line in lines), np.uint8).reshape(len(lines), DAYS, 8)
    value, valid = _numbers(fields[:, :, :5])
    skipped[NOT_A_NUMBER] += int((~valid).sum())
    month = np.array([line[1] for line in lines], "datetime64[M]")[:, None]
    day = month.astype("datetime64[D]") + np.arange(DAYS)
    observed = valid & (value != MISSING)
    dated = day.astype("datetime64[M]") == month
    skipped[NO_DAY] += int((observed & ~dated).sum())
    observed &= dated & ~np.isin(fields[:, :, 6], np.frombuffer(QUALITY_FLAGS, np.uint8))
    element = np.broadcast_to(np.array([line[0] for line in lines])[:, None], observed.shape)[observed]
    day, value = day[observed], value[observed]
    order = np.lexsort((day, element))
    element, day, value = element[order], day[order], value[order]
    repeated = np.zeros(len(day), bool)
    repeated[1:] = (np.diff(element) == 0) & (day[1:] == day[:-1])
    skipped[DUPLICATE] += int(repeated.sum())
    return Station(name, element[~repeated], day[~repeated], value[~repeated])


def _numbers(text: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Parse right-aligned whole numbers of five characters (…, 5): blanks, perhaps a minus, digits. Return the numbers
    and a mask of the valid ones."""
    digit = (text >= ord("0")) & (text <= ord("9"))
    minus = text == ord("-")
    kind = np.where(digit, 2, np.where(minus, 1, np.where(text == ord(" "), 0, 3))).astype(np.int8)
    valid = (kind[..., -1] == 2) & (np.diff(kind, axis=-1) >= 0).all(axis=-1) & (minus.sum(axis=-1) <= 1)
    size = np.where(digit, text - np.uint8(ord("0")), 0) @ np.array([10_000, 1_000, 100, 10, 1])
    return np.where(minus.any(axis=-1), -size, size), valid
