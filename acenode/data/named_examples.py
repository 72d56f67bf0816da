"""Sets of series with named variables that come with the project: simulated ones whose links are known, and real ones.

`examples/README.md` says where the measured series are from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from acenode.data.named_set import PARTS, NamedSet, Record
from acenode.data.splits import record_split
from acenode.errors import UserError

if TYPE_CHECKING:
    from pandas import DataFrame, Index

FOLDER = Path(__file__).resolve().parent / "examples"
LANDMARK = 365.0  # days: liver patients are judged by their visits until then
OSCILLATORS, LINKS = 8, 2  # and incoming links of each
COUNTS = {"train": 1000, "validation": 100, "test": 200}  # trajectories
_STEP, _EVERY, _POINTS, _SEEN = 0.02, 10, 21, 5  # Euler step, steps between points, points, points that are given
SPECIES = ("voles", "hares", "grouse", "weasels", "foxes", "owls")
_EATS = {"weasels": ("voles",), "foxes": ("hares", "voles"), "owls": ("voles", "grouse")}
WEBS = {"train": 400, "validation": 80, "test": 120}


@lru_cache(maxsize=4)
def example(name: str) -> NamedSet:
    """Return the example of that name; the error lists the names there are."""
    if name not in BUILDERS:
        raise UserError(f"there is no example {name!r}: choose one of {', '.join(BUILDERS)}")
    return BUILDERS[name]()


def _parts(counts: dict[str, int]) -> dict[str, np.ndarray]:
    edges = np.cumsum([0, *counts.values()])
    return {name: np.arange(a, b) for name, a, b in zip(counts, edges[:-1], edges[1:], strict=True)}


def oscillators(seed: int = 0) -> NamedSet:
    """Simulate 1,300 trajectories of eight damped oscillators, each driven by two others.

        dx_i/dt = −0.6 x_i + ω_i y_i + Σ_j w_ij tanh(x_j)        dy_i/dt = −ω_i x_i − 0.6 y_i

    Only x is observed: 5 points are given, 16 are forecast.
    """
    rng = np.random.default_rng([seed, 21])
    V = OSCILLATORS
    links = np.zeros((V, V))
    for i in range(V):
        for j in rng.choice([j for j in range(V) if j != i], LINKS, replace=False):
            links[i, j] = rng.uniform(1.0, 2.0)
    frequency, count = rng.uniform(1, 3, V), sum(COUNTS.values())
    x, y, kept = rng.normal(size=(count, V)), rng.normal(size=(count, V)), []
    for step in range((_POINTS - 1) * _EVERY + 1):
        if step % _EVERY == 0:
            kept.append(x)
        dx = -0.6 * x + frequency * y + np.tanh(x) @ links.T
        dy = -frequency * x - 0.6 * y
        x, y = x + _STEP * dx, y + _STEP * dy
    t = np.arange(_POINTS) * _STEP * _EVERY
    return NamedSet(
        name="oscillators", title="Coupled oscillators", variables=tuple(f"x{i + 1}" for i in range(V)),
        note="Simulated: eight damped oscillators, each driven by two others; the links are known.",
        units=("",) * V, time_unit="s", time_origin="", ids=tuple(f"trajectory {i}" for i in range(count)),
        series=tuple(Record.from_gaps(t, values) for values in np.stack(kept, 1)), task="forecast",
        given=_SEEN * _STEP * _EVERY, parts=_parts(COUNTS), links=links)


def predator_prey(seed: int = 0) -> NamedSet:
    """Simulate 600 food webs of three prey and three predators, counted irregularly and not all at once.

        dn_i/dt = n_i (r_i + Σ_j A_ij n_j)

    Counts of the first six years are given, those of the next four are forecast.
    """
    rng = np.random.default_rng([seed, 22])
    V, count = len(SPECIES), sum(WEBS.values())
    A, r = np.zeros((V, V)), np.array([1.0, 0.8, 0.9, -0.7, -0.6, -0.5])
    A[np.arange(3), np.arange(3)] = -0.15  # prey limit themselves
    for predator, prey in _EATS.items():
        i = SPECIES.index(predator)
        for j in (SPECIES.index(p) for p in prey):
            A[i, j], A[j, i] = 0.6 / len(prey), -0.8
    n, kept, dt, every = rng.uniform(0.4, 2.0, (count, V)), [], 0.01, 25
    for step in range(1001):
        if step % every == 0:
            kept.append(n)
        k1 = n * (r + n @ A.T)
        middle = n + dt / 2 * k1
        n = n + dt * middle * (r + middle @ A.T)
    t, x = np.arange(41) * dt * every, np.stack(kept, 1)  # every quarter of a year
    x = x * np.exp(0.05 * rng.standard_normal(x.shape))
    x[rng.random(x.shape) < 0.3] = np.nan
    series = []
    for values in x:
        held = rng.random(len(t)) < 0.7
        held[0] = True
        series.append(Record.from_gaps(t[held], values[held]))
    links = np.abs(A)
    np.fill_diagonal(links, 0.0)
    return NamedSet(
        name="predator-prey", title="Predators and prey", variables=SPECIES, units=("thousand",) * V,
        note="Simulated: three prey and three predators, counted irregularly; who eats whom is known.",
        time_unit="years", time_origin="", ids=tuple(f"web {i}" for i in range(count)), series=tuple(series),
        task="forecast", given=6.0, parts=_parts(WEBS), links=links)


def _table(name: str) -> DataFrame:
    """Return the numbers of a file, by the texts in its first column."""
    import pandas as pd

    return pd.read_csv(FOLDER / f"{name}.csv", index_col=0, dtype=str).astype(float)  # exact, unlike pandas' own parser


def _hours(dates: Index) -> tuple[np.ndarray, str]:
    """Return the hours since the first date, and that date."""
    import pandas as pd

    found = pd.DatetimeIndex(dates)
    return ((found - found[0]) / pd.Timedelta(hours=1)).to_numpy(), found[0].isoformat()


def la_speeds() -> NamedSet:
    """Eight road detectors of Los Angeles: an hour is given, the next hour is forecast.

    Four days train, the fifth validates, the last two test.
    """
    speeds, near = _table("la_speeds"), _table("la_adjacency")
    return _windowed(
        Record.from_gaps(speeds.index.astype(float), speeds.to_numpy()), 120.0, 5.0, 60.0, shares=(4 / 7, 1 / 7),
        name="la-speeds", title="Los Angeles speeds", variables=tuple(speeds.columns),
        units=("mph",) * speeds.shape[1], time_unit="minutes", links=near[speeds.columns].to_numpy(),
        note="Eight detectors along one road, every five minutes for a week; how near they are along the road is "
             "known.")


def ny_speeds() -> NamedSet:
    """Taxi speeds in four boroughs of New York, with many gaps: a day is given, the next twelve hours are forecast."""
    table = _table("ny_speeds")
    t, origin = _hours(table.index)
    return _windowed(
        Record.from_gaps(t, table.to_numpy()), 36.0, 1.0, 24.0, shares=(0.62, 0.18), name="ny-speeds",
        title="New York speeds", variables=tuple(table.columns), units=("mph",) * table.shape[1], time_unit="hours",
        note="Median taxi speed by hour and borough, March 2019; hours without a trip are gaps.", time_origin=origin)


def stocks() -> NamedSet:
    """Weekly prices of six companies, relative to January 2018: twelve weeks are given, four are forecast."""
    table = _table("stocks")
    return _windowed(
        Record.from_gaps(np.arange(len(table)), table.to_numpy()), 16.0, 1.0, 12.0, shares=(0.55, 0.22),
        name="stocks", title="Stock prices", variables=tuple(table.columns),
        units=("× first price",) * table.shape[1], time_unit="weeks", time_origin=table.index[0],
        note="Weekly prices of six companies in 2018 and 2019, each relative to its first.")


def liver() -> NamedSet:
    """Liver patients with irregular visits: the first year of each, and whether the patient died later.

    Patients without a visit after that year are left out, and so are all later visits: who dies early has fewer visits,
    and how long a patient is seen says whether the patient lived.
    """
    table = _table("pbc")
    table = table[table.groupby("id").day.transform("max") > LANDMARK]
    patients = table[table.day <= LANDMARK].groupby("id", sort=False)
    units = {"bili": "mg/dl", "albumin": "g/dl", "chol": "mg/dl", "protime": "s", "platelet": "1000/ml", "ast": "U/ml",
             "alk.phos": "U/l"}
    names = tuple(units)
    parts = record_split(list(patients.groups), 42)
    return NamedSet(
        name="liver", title="Liver patients", variables=names, units=tuple(units.values()), time_unit="days",
        note=f"Laboratory values of {len(patients)} patients with primary biliary cirrhosis in their first year, all "
             "seen alive after it; the label is whether a patient died later, during the study.",
        time_origin="", ids=tuple(f"patient {i}" for i, _ in patients), task="classify", given=0.0,
        series=tuple(Record.from_gaps(own.day.to_numpy(), own[list(names)].to_numpy()) for _, own in patients),
        parts={name: getattr(parts, name) for name in PARTS},
        labels=patients.died.first().to_numpy().astype(np.int64), classes=("lived", "died"))


def air_quality() -> NamedSet:
    """Ozone, sun, wind and temperature of a summer in New York: observations that are left out are filled in."""
    table = _table("air_quality")
    names = {"Ozone": ("ozone", "ppb"), "Solar.R": ("sun", "Ly"), "Wind": ("wind", "mph"),
             "Temp": ("temperature", "°F")}
    hours, origin = _hours(table.index)
    return _windowed(
        Record.from_gaps(hours / 24, table[list(names)].to_numpy()), 14.0, 1.0, shares=(0.55, 0.2),
        name="air-quality", title="Air quality", variables=tuple(n for n, _ in names.values()),
        units=tuple(u for _, u in names.values()), time_unit="days", time_origin=origin,
        note="Daily means in New York, May to September 1973; a quarter of the observations is left out and filled in.")


def _windowed(whole: Record, length: float, every: float, given: float = 0.0, *, shares: tuple[float, float],
              time_origin: str = "", **words: Any) -> NamedSet:
    """Return the set of a long series' windows: a forecast if some time is given, else one to fill in."""
    windows = cut_windows(whole, length, every, given)
    return NamedSet(ids=tuple(f"from {w.t[0]:g}" for w in windows), series=tuple(windows), given=given,
                    task="forecast" if given else "fill", parts=split_by_time(windows, shares),
                    time_origin=time_origin, **words)


def cut_windows(whole: Record, length: float, every: float, given: float = 0.0) -> list[Record]:
    """Return windows of a long series: [start, start + length) for starts `every` apart.

    A window that begins in a gap of the times is left out, because times are counted from the first point of a window,
    and one without an observation; with `given`, also one without an observation before or after it.

    Args:
        whole: the series.
        length: of a window, in units of time.
        every: the time between the starts of two windows.
        given: the part of a window that a forecast sees; 0 if there is no forecast.
    """
    found = []
    end = whole.t[-1] + np.median(np.diff(whole.t))  # the last point stands for as much time as the others
    for start in np.arange(whole.t[0], end - length + 1e-6 * every, every):
        low, high = np.searchsorted(whole.t, [start - 1e-9, start + length - 1e-9])
        window = Record(whole.t[low:high], whole.x[low:high], whole.m[low:high])
        if not window.m.any() or window.t[0] - start > every / 2:
            continue
        seen = window.seen(given)
        if not given or (window.m[seen].any() and window.m[~seen].any()):
            found.append(window)
    return found


def split_by_time(windows: Sequence[Record], shares: tuple[float, float] = (0.6, 0.2)) -> dict[str, np.ndarray]:
    """Split windows by time: the first part trains, the next validates, the last tests.

    A window that reaches across a boundary is in no part, so that no observation is in two parts.

    Args:
        windows: in any order.
        shares: of the time that training and validation take.

    Raises:
        UserError: a part is left without a window.
    """
    start, end = min(w.t[0] for w in windows), max(w.t[-1] for w in windows)
    edges = [start, *(start + np.cumsum(shares) * (end - start)), np.inf]
    parts = {name: np.array([i for i, w in enumerate(windows) if w.t[0] >= low and w.t[-1] < high], np.int64)
             for name, low, high in zip(PARTS, edges[:-1], edges[1:], strict=True)}
    for name, found in parts.items():
        if not len(found):
            raise UserError(f"no window fits into the {name} part: use shorter windows or a longer series")
    return parts


BUILDERS: dict[str, Callable[[], NamedSet]] = {
    "oscillators": oscillators, "predator-prey": predator_prey, "la-speeds": la_speeds, "ny-speeds": ny_speeds,
    "stocks": stocks, "liver": liver, "air-quality": air_quality,
}
