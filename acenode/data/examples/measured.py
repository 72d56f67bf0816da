"""Measured series that come with the project; README.md beside the files says where they are from."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import numpy as np

from acenode.data.named_set import NamedSet, Record
from acenode.data.named_windows import cut_windows, split_by_time, split_series

HERE = Path(__file__).resolve().parent
LANDMARK = 365.0  # days: liver patients are judged by their visits until then


def _rows(name: str) -> list[dict[str, str]]:
    with open(HERE / f"{name}.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _values(rows: Iterable[dict[str, str]], columns: Iterable[str]) -> np.ndarray:
    """Return numbers (rows, columns), NaN where the file has none."""
    return np.array([[float(row[c]) if row[c] else np.nan for c in columns] for row in rows])


def _hours(rows: list[dict[str, str]], column: str) -> tuple[np.ndarray, str]:
    """Return the hours since the first row's date, and that date."""
    dates = [datetime.fromisoformat(row[column]) for row in rows]
    return np.array([(d - dates[0]).total_seconds() / 3600 for d in dates]), dates[0].isoformat()


def _window_ids(windows: list[Record]) -> tuple[str, ...]:
    return tuple(f"from {w.t[0]:g}" for w in windows)


def la_speeds() -> NamedSet:
    """Eight road detectors of Los Angeles: an hour is given, the next hour is forecast.

    Four days train, the fifth validates, the last two test.
    """
    rows, near = _rows("la_speeds"), _rows("la_adjacency")
    names = tuple(c for c in rows[0] if c != "minutes")
    t = np.array([float(row["minutes"]) for row in rows])
    windows = cut_windows(Record.from_gaps(t, _values(rows, names)), 120.0, 5.0, 60.0)
    return NamedSet(
        name="la-speeds", title="Los Angeles speeds", variables=names, units=("mph",) * len(names), time_unit="minutes",
        note="Eight detectors along one road, every five minutes for a week; how near they are along the road is "
             "known.",
        time_origin="", ids=_window_ids(windows), series=tuple(windows), task="forecast", given=60.0,
        parts=split_by_time(windows, (4 / 7, 1 / 7)), links=_values(near, names))


def ny_speeds() -> NamedSet:
    """Taxi speeds in four boroughs of New York, with many gaps: a day is given, the next twelve hours are forecast."""
    rows = _rows("ny_speeds")
    names = tuple(c for c in rows[0] if c != "time")
    t, origin = _hours(rows, "time")
    windows = cut_windows(Record.from_gaps(t, _values(rows, names)), 36.0, 1.0, 24.0)
    return NamedSet(
        name="ny-speeds", title="New York speeds", variables=names, units=("mph",) * len(names), time_unit="hours",
        note="Median taxi speed by hour and borough, March 2019; hours without a trip are gaps.",
        time_origin=origin, ids=_window_ids(windows), series=tuple(windows), task="forecast", given=24.0,
        parts=split_by_time(windows, (0.62, 0.18)))


def stocks() -> NamedSet:
    """Weekly prices of six companies, relative to January 2018: twelve weeks are given, four are forecast."""
    rows = _rows("stocks")
    names = tuple(c for c in rows[0] if c != "date")
    windows = cut_windows(Record.from_gaps(np.arange(float(len(rows))), _values(rows, names)), 16.0, 1.0, 12.0)
    return NamedSet(
        name="stocks", title="Stock prices", variables=names, units=("× first price",) * len(names),
        note="Weekly prices of six companies in 2018 and 2019, each relative to its first.",
        time_unit="weeks", time_origin=rows[0]["date"], ids=_window_ids(windows), series=tuple(windows),
        task="forecast", given=12.0, parts=split_by_time(windows, (0.55, 0.22)))


def liver() -> NamedSet:
    """Liver patients with irregular visits: the first year of each, and whether the patient died later.

    Patients without a visit after that year are left out, and so are all later visits: who dies early has fewer visits,
    and how long a patient is seen says whether the patient lived.
    """
    rows = _rows("pbc")
    names = tuple(c for c in rows[0] if c not in ("id", "day", "died"))
    units = {"bili": "mg/dl", "albumin": "g/dl", "chol": "mg/dl", "protime": "s", "platelet": "1000/ml", "ast": "U/ml",
             "alk.phos": "U/l"}
    by_patient: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        by_patient.setdefault(row["id"], []).append(row)
    seen_later = {i: own for i, own in by_patient.items() if max(float(r["day"]) for r in own) > LANDMARK}
    kept = {i: [r for r in own if float(r["day"]) <= LANDMARK] for i, own in seen_later.items()}
    series = tuple(Record.from_gaps(np.array([float(r["day"]) for r in own]), _values(own, names))
                   for own in kept.values())
    return NamedSet(
        name="liver", title="Liver patients", variables=names, units=tuple(units[n] for n in names), time_unit="days",
        note=f"Laboratory values of {len(kept)} patients with primary biliary cirrhosis in their first year, all seen "
             "alive after it; the label is whether a patient died later, during the study.",
        time_origin="", ids=tuple(f"patient {i}" for i in kept), series=series, task="classify", given=0.0,
        parts=split_series(tuple(kept)),
        labels=np.array([int(own[0]["died"]) for own in kept.values()], np.int64), classes=("lived", "died"))


def air_quality() -> NamedSet:
    """Ozone, sun, wind and temperature of a summer in New York: observations that are left out are filled in."""
    rows = _rows("air_quality")
    names = {"Ozone": ("ozone", "ppb"), "Solar.R": ("sun", "Ly"), "Wind": ("wind", "mph"),
             "Temp": ("temperature", "°F")}
    hours, origin = _hours(rows, "date")
    windows = cut_windows(Record.from_gaps(hours / 24, _values(rows, names)), 14.0, 1.0)
    return NamedSet(
        name="air-quality", title="Air quality", variables=tuple(n for n, _ in names.values()),
        units=tuple(u for _, u in names.values()), time_unit="days", time_origin=origin,
        note="Daily means in New York, May to September 1973; a quarter of the observations is left out and filled in.",
        ids=_window_ids(windows), series=tuple(windows), task="fill", given=0.0,
        parts=split_by_time(windows, (0.55, 0.2)))
