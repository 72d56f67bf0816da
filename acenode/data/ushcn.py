"""Read USHCN daily: five weather variables of 1,114 stations in the United States, observed sporadically over four
years; or build the set from NOAA's daily station files by the published recipe, with a given seed."""

from __future__ import annotations

import csv
import io
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from acenode.data.folder import locked, replacing
from acenode.data.series import ReadResult, SeriesArrays, SeriesSource
from acenode.data.source import Progress, RemoteFile, lines_of
from acenode.data.splits import two_sided
from acenode.errors import UserError

FILE = "small_chunked_sporadic.csv"
VARIABLES = ("PRCP", "SNOW", "SNWD", "TMAX", "TMIN")  # Value_0 to Value_4, as the recipe orders them
_COLUMNS = ["ID", "Time", *(f"{kind}_{k}" for kind in ("Value", "Mask") for k in range(len(VARIABLES)))]
HEADER = ",".join(_COLUMNS)
SERIES = 1_114
REBUILT_SERIES = 1_100  # at least so many in a set that was built again from all station files, see `rebuilt_note`
END = 200.0  # last time of every series, in units of DAYS days
CUT = 150.0  # models read up to this time and forecast what follows
DAYS = 18_627 / 2_500

MALFORMED, NOT_A_NUMBER = "malformed rows", "rows with a value that is not a number"
OUTSIDE, EMPTY = f"rows outside time 0 to {END:g}", "rows with nothing observed"
DUPLICATE = "rows at the same time as an earlier one"

# Building the set from station files
START_YEAR, END_YEAR = 1950, 2000
SHARE = 0.05  # of a station's observations of an element that are kept
TARGETS = 3  # a series needs more times than this after the cut
EARLIEST = 20  # a station must begin within these years of the first and last into the second year after the last

QUALITY_FLAGS = b"DGIKLMNORSTWXZ"  # of values that failed a check
MISSING = -9999
MONTH = 31  # days that a line has room for

MALFORMED_LINES, BAD_VALUES = "malformed lines", "values that are not numbers"
NO_DAY, DUPLICATE_VALUES = "values on days that do not exist", "duplicate values"
EMPTY_FILES, OTHER = "empty files", "files without any of the variables"
ALL_MALFORMED = "files with only malformed lines"
OUT_OF_YEARS, TOO_FEW = "stations that do not span the years", "stations with too few times after the cut"
_ONE = {BAD_VALUES: "value that is not a number", NO_DAY: "value on a day that does not exist",
        OUT_OF_YEARS: "station that does not span the years"}  # the others lose their first s

_HEADS = (re.compile(rb"([A-Z]{2}[A-Z0-9_-]{9})(\d{4})(0[1-9]|1[0-2])([A-Z0-9]{4})"),  # GHCN: metric units
          re.compile(rb"(\d{6})(\d{4})(0[1-9]|1[0-2])([A-Z0-9]{4})"))  # USHCN: inches and °F


def read(files: Mapping[str, Path], progress: Progress | None = None) -> ReadResult:
    """Read the series of the published file, or of one built from other years or stations.

    Rows are sorted by series and time; of two rows of a series at one time, the first is kept.
    """
    import pandas as pd

    path, skipped = files[FILE], Counter[str]()
    lines = lines_of(path, progress)
    if next(lines, "") != HEADER:
        raise UserError(f"{path} does not begin with {HEADER}: delete it and get it again")
    rows = list(lines)
    complete = "\n".join(row for row in rows if row.count(",") == len(_COLUMNS) - 1)
    table = pd.read_csv(io.StringIO(complete), header=None, names=_COLUMNS, dtype=object, na_filter=False,
                        quoting=csv.QUOTE_NONE, lineterminator="\n")  # fields as text, so that every fault is seen
    skipped[MALFORMED] += len(rows) - len(table)
    number, t = (pd.to_numeric(table[name], errors="coerce").to_numpy(float) for name in ("ID", "Time"))
    as_number = {"0": 0.0, "1": 1.0, "0.0": 0.0, "1.0": 1.0}
    masks, numbers = ([table[f"{kind}_{k}"] for k in range(len(VARIABLES))] for kind in ("Mask", "Value"))
    mask = np.stack([column.str.strip().map(as_number).astype(float) for column in masks], axis=1)
    values = np.stack([pd.to_numeric(column, errors="coerce") for column in numbers], axis=1)
    m = mask == 1
    x = np.where(m, values, 0.0)
    reasons = {  # the first that applies counts; comparisons with NaN are False
        MALFORMED: (~((number >= 0) & (number < 2**53) & (number == np.floor(number)))
                    | np.isnan(t) | np.isnan(mask).any(axis=1)),
        NOT_A_NUMBER: ~(np.abs(x) < np.finfo(np.float32).max).all(axis=1),
        OUTSIDE: ~((t >= 0) & (t <= END)),
        EMPTY: ~m.any(axis=1),
    }
    usable = np.ones(len(table), bool)
    for reason, found in reasons.items():
        skipped[reason] += int((usable & found).sum())
        usable &= ~found
    if not usable.any():
        raise UserError(f"{path} has no rows that can be used: delete it and get it again")
    number, t, x, m = number[usable].astype(np.int64), t[usable].astype(np.float32), x[usable], m[usable]
    order = np.lexsort((t, number))  # stable
    repeated = np.concatenate([[False], (np.diff(number[order]) == 0) & (np.diff(t[order]) == 0)])
    skipped[DUPLICATE] += int(repeated.sum())
    order = order[~repeated]
    ids, record = np.unique(number[order], return_inverse=True)
    arrays = SeriesArrays.from_points(ids.astype(str), record, t[order], x[order], m[order], VARIABLES, horizon=END)
    if not two_sided(arrays, CUT).any():
        raise UserError(f"{path} has no series with rows on both sides of time {CUT:g}: there is nothing to forecast")
    return ReadResult(arrays, +skipped, len(rows))


def describe(arrays: SeriesArrays) -> str:
    words = f"{len(arrays):,} series, {arrays.m.sum():,} observations at {len(arrays.t):,} times"
    if one_sided := int((~two_sided(arrays, CUT)).sum()):
        words += f"; {one_sided:,} used for training only, without rows before or after time {CUT:g}"
    if note := rebuilt_note(arrays):
        words += f"; {note}"
    return words


def is_complete(arrays: SeriesArrays) -> bool:
    """Return True for the published file, or one that was built again from all station files."""
    return len(arrays) >= REBUILT_SERIES


def rebuilt_note(arrays: SeriesArrays) -> str:
    """Describe a complete set that is not the published file: another draw keeps a few stations more or less."""
    if len(arrays) == SERIES or not is_complete(arrays):
        return ""
    return f"rebuilt from the station files: {len(arrays):,} stations, the published file has {SERIES:,}"


USHCN = SeriesSource(
    name="ushcn",
    title="USHCN daily climate",
    files=(RemoteFile(
        FILE,
        (f"https://raw.githubusercontent.com/edebrouwer/gru_ode_bayes/master/gru_ode_bayes/datasets/Climate/{FILE}",),
        ("sha256", "671eb8d121522e98891c84197742a6c9e9bb5015e42b328a93ebdf2cfd393ecf")),),
    read=read, describe=describe)


# Station files have lines of fixed width, each a month of one element, in the format of GHCN (.dly) or USHCN.


@dataclass(frozen=True)
class BuildResult:
    """The file that was built, and how much was skipped for which reason."""

    path: Path
    stations: int  # read
    series: int
    rows: int
    skipped: Counter[str]


@dataclass(frozen=True, eq=False)
class Station:
    """The valid observations of a station in order of element and day, or those of them that are kept."""

    name: str
    element: np.ndarray  # (R,) int64, index among the elements asked for
    day: np.ndarray  # (R,) datetime64[D]; of those that are kept, days since the first day of the first year
    value: np.ndarray  # (R,) int64, in the file's unit; of those that are kept, float64


def build(folder: Path, root: Path, start: int = START_YEAR, end: int = END_YEAR, seed: int = 0,
          progress: Progress | None = None) -> BuildResult:
    """Write `root/ushcn/small_chunked_sporadic.csv` from the station files in a folder.

    The last 200 units of time (four years) of the years `start` to `end` are kept. Existing files are not replaced.
    """
    last = last_day(start, end)
    if seed < 0:
        raise UserError(f"the seed is {seed}: choose 0 or more")
    target = root / USHCN.name / FILE
    for path in (target, USHCN.path(root)):
        if path.exists():
            raise UserError(f"{path} exists already: move it away, or set ACENODE_DATA to another folder")
    skipped: Counter[str] = Counter()
    samples, names = [], set[str]()
    for station in _stations(folder, skipped, progress):
        if station.name in names:
            raise UserError(f"station {station.name} is in two files of {folder}: remove one of them")
        names.add(station.name)
        years = station.day.astype("datetime64[Y]").astype(int) + 1970
        if not len(years) or not (years.max() > end + 1 and years.min() < start + EARLIEST):
            skipped[OUT_OF_YEARS] += 1
            continue
        sample = sample_station(station, (years >= start) & (years <= end), start, seed)
        if len(sample.day):
            samples.append(sample)
        else:
            skipped[TOO_FEW] += 1
    samples.sort(key=lambda sample: sample.name)
    standardise(samples)
    rows = series = 0
    with locked(root / f".{USHCN.name}.lock"), replacing(target) as handle:
        handle.write(f"{HEADER}\n".encode())
        for number, sample in enumerate(samples):
            t, x, m = series_of(sample, last)
            if (t > CUT).sum() <= TARGETS:
                skipped[TOO_FEW] += 1
                continue
            for time, values, seen in zip(t, x, m.astype(int), strict=True):
                handle.write(",".join(f"{v:g}" for v in (number, time, *values, *seen)).encode() + b"\n")
            rows, series = rows + len(t), series + 1
        if not series:
            needs = [f"begin by {start + EARLIEST - 1} and last into {end + 2}"] * (skipped[OUT_OF_YEARS] > 0)
            if skipped[TOO_FEW]:
                needs.append(f"keep more than {TARGETS} times in about the last year of those to {end}")
            advice = (f"a station must {' and '.join(needs)}: use other stations, or other years with --start and "
                      "--end" if needs else "use complete station files")
            raise UserError(f"no station in {folder} can be used: {counts(skipped)}; {advice}")
    return BuildResult(target, len(names), series, rows, +skipped)


def counts(skipped: Counter[str]) -> str:
    """List how many lines, values or stations were skipped for which reason."""
    return ", ".join(f"{count:,} {what if count > 1 else _ONE.get(what) or f'{what} '.replace('s ', ' ', 1).rstrip()}"
                     for what, count in (+skipped).items())


def last_day(start: int, end: int) -> int:
    """Return the last day of the year `end`, counted from the first day of the year `start`."""
    if not 1700 <= start <= end <= 2200:
        raise UserError(f"{start} to {end} is not a range of years: choose a first and a later last year")
    last = int((np.datetime64(f"{end + 1}-01-01") - np.datetime64(f"{start}-01-01")).astype(int)) - 1
    if last < END * DAYS:
        raise UserError(f"{start} to {end} is too short: choose five years or more")
    return last


def _stations(folder: Path, skipped: Counter[str], progress: Progress | None) -> Iterator[Station]:
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder: give the folder with the station files")
    paths = sorted([*folder.glob("*.dly"), *folder.glob("state*.txt")])
    if not paths:
        raise UserError(f"{folder} contains no station files (*.dly or state*.txt)")
    heads = set[re.Pattern[bytes]]()
    size, done = sum(path.stat().st_size for path in paths), 0
    progress = progress or (lambda done, total, label: None)
    for path in paths:
        progress(done, size, "reading station files")
        done += path.stat().st_size
        stations, head = read_stations(path, skipped)
        heads |= {head} if head else set()
        if len(heads) > 1:
            raise UserError(f"{folder} mixes station files in metric and in US units: keep those of one kind")
        yield from stations
    progress(done, size, "reading station files")


def sample_station(station: Station, within: np.ndarray, start: int, seed: int) -> Station:
    """Draw a random 5% of the observations of each element. It depends only on the seed and the station's name."""
    rng = np.random.default_rng([seed, zlib.crc32(station.name.encode())])
    kept = []
    for element in range(len(VARIABLES)):
        places = np.flatnonzero(within & (station.element == element))
        kept.append(np.sort(rng.choice(places, round(SHARE * len(places)), replace=False)))
    chosen = np.concatenate(kept)
    day = (station.day[chosen] - np.datetime64(f"{start}-01-01")).astype(np.int64)
    return Station(station.name, station.element[chosen], day, station.value[chosen].astype(np.float64))


def standardise(samples: list[Station]) -> None:
    """Scale each element in place to mean 0 and standard deviation 1 over all stations and years, as published."""
    for element in range(len(VARIABLES)):
        value = np.concatenate([np.zeros(0), *(s.value[s.element == element] for s in samples)])
        mean = value.mean() if len(value) else 0.0
        spread = value.std(ddof=1) if len(value) > 1 else 0.0
        for s in samples:
            s.value[s.element == element] = (s.value[s.element == element] - mean) / (spread or 1.0)


def series_of(sample: Station, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the times (R,), multiples of 0.1 from 0 to 200, and values and mask (R, 5) of the last 200 units of time
    before day `last`."""
    tenth = np.rint(10 * sample.day / DAYS).astype(np.int64) - round(10 * last / DAYS) + round(10 * END)
    here = tenth >= 0
    times, row = np.unique(tenth[here], return_inverse=True)
    x, m = np.zeros((len(times), len(VARIABLES))), np.zeros((len(times), len(VARIABLES)), bool)
    x[row, sample.element[here]] = sample.value[here]
    m[row, sample.element[here]] = True
    return times / 10, x, m


def read_stations(path: Path, skipped: Counter[str]) -> tuple[list[Station], re.Pattern[bytes] | None]:
    """Return the stations of a file by name, and how its lines begin (None for an empty file). Missing values and those
    that failed NOAA's quality checks are left out."""
    try:
        lines = [line.rstrip() for line in path.read_bytes().splitlines() if line.strip()]
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror or error})") from error
    if not lines:
        skipped[EMPTY_FILES] += 1
        return [], None
    head = next((head for line in lines for head in _HEADS if head.match(line)), None)
    if head is None:
        raise UserError(f"{path} is not a daily station file of NOAA: remove it from the folder")
    kept: dict[str, list[tuple[int, str, bytes]]] = {}  # by station: element, month and the fields of the days
    any_valid = False
    for line in lines:
        found = head.match(line)
        # Trailing blanks may be missing, and the three flags of the last day may be blank.
        if found is None or not -3 <= len(line) - (width := found.end() + 8 * MONTH) <= 0:
            skipped[MALFORMED_LINES] += 1
            continue
        any_valid = True
        name, year, month, element = (part.decode() for part in found.groups())
        if element in VARIABLES:
            fields = line.ljust(width)[found.end():]
            kept.setdefault(name, []).append((VARIABLES.index(element), f"{year}-{month}", fields))
    if not kept:
        skipped[OTHER if any_valid else ALL_MALFORMED] += 1
    return [_station(name, kept[name], skipped) for name in sorted(kept)], head


def _station(name: str, lines: list[tuple[int, str, bytes]], skipped: Counter[str]) -> Station:
    fields = np.frombuffer(b"".join(line[2] for line in lines), np.uint8).reshape(len(lines), MONTH, 8)
    value, valid = _numbers(fields[:, :, :5])
    skipped[BAD_VALUES] += int((~valid).sum())
    month = np.array([line[1] for line in lines], "datetime64[M]")[:, None]
    day = month.astype("datetime64[D]") + np.arange(MONTH)
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
    skipped[DUPLICATE_VALUES] += int(repeated.sum())
    return Station(name, element[~repeated], day[~repeated], value[~repeated])


def _numbers(text: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Parse right-aligned whole numbers of five characters (…, 5): blanks, perhaps a minus, digits. Return the numbers
    and a mask of the valid ones."""
    digit = (text >= ord("0")) & (text <= ord("9"))
    minus = text == ord("-")
    kind = np.select([text == ord(" "), minus, digit], [0, 1, 2], 3)
    valid = (kind[..., -1] == 2) & (np.diff(kind, axis=-1) >= 0).all(axis=-1) & (minus.sum(axis=-1) <= 1)
    size = np.where(digit, text - np.uint8(ord("0")), 0) @ np.array([10_000, 1_000, 100, 10, 1])
    return np.where(minus.any(axis=-1), -size, size), valid
