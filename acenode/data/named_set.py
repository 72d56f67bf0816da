"""A set of series whose variables have names: its values in their own units, its parts, and the files it is kept in.

A set is a folder with two files: `set.npz` (arrays, no pickles) and `about.json` (names, units, task). Examples come
with the project: simulated ones whose links are known, and real ones; `examples/README.md` says where those are from.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from acenode.data.folder import disk_error, read_npz, write_npz
from acenode.data.series import Record
from acenode.data.splits import record_split
from acenode.errors import UserError
from acenode.files import read_json, write_json

if TYPE_CHECKING:
    from pandas import DataFrame, Index

Task = Literal["forecast", "fill", "classify"]
PARTS = ("train", "validation", "test")
FORMAT = 1
MAX_VALUES = 500_000_000  # of a stored set, gaps included
FLOOR = 1e-9  # a variable that varies less than this is shifted, not scaled
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_TEXTS = ("name", "title", "note", "time_unit", "time_origin", "task")


# Examples
FOLDER = Path(__file__).resolve().parent / "examples"
LANDMARK = 365.0  # days: liver patients are judged by their visits until then
OSCILLATORS, LINKS = 8, 2  # and incoming links of each
COUNTS = (1000, 100, 200)  # trajectories by part
_STEP, _EVERY, _POINTS, _SEEN = 0.02, 10, 21, 5  # Euler step, steps between points, points, points that are given
SPECIES = ("voles", "hares", "grouse", "weasels", "foxes", "owls")
_EATS = {"weasels": ("voles",), "foxes": ("hares", "voles"), "owls": ("voles", "grouse")}
WEBS = (400, 80, 120)


@dataclass(frozen=True, eq=False)
class NamedSet:
    """Series of V named variables with their task. Parts that do not fit together raise a UserError."""

    name: str  # lower case letters, digits, - and _: the name of the experiment and of the folder
    title: str
    note: str
    variables: tuple[str, ...]
    units: tuple[str, ...]  # of the variables, "" where unknown
    time_unit: str  # such as "hours"
    time_origin: str  # the ISO date that t = 0 stands for, or ""
    ids: tuple[str, ...]  # one a series
    series: tuple[Record, ...]
    task: Task  # "forecast" what follows the given part, "fill" held-out points, or "classify" the series
    given: float  # how much time of every series a forecast sees, in units of time; 0 for other tasks
    parts: Mapping[str, np.ndarray]  # indices of the series in "train", "validation" and "test"
    labels: np.ndarray | None = None  # (S,) int64
    classes: tuple[str, ...] = ()  # the names of the labels
    links: np.ndarray | None = None  # (V, V), the known coupling: [i, j] > 0 if variable j drives variable i

    def __post_init__(self) -> None:
        if fault := next(self._faults(), None):
            raise UserError(f"{self.name} cannot be used: {fault}")

    def _faults(self) -> Iterator[str]:
        """Describe what does not fit together; each check relies on those before it."""
        check_name(self.name)
        V = len(self.variables)
        if V < 2:
            yield "it needs two variables or more"
        if len(set(self.variables)) != V or not all(self.variables):
            yield "every variable needs a name of its own"
        if len(self.units) != V:
            yield f"it has {V} variables and {len(self.units)} units"
        if len(self.ids) != len(self) or len(set(self.ids)) != len(self):
            yield "every series needs an id of its own"
        for id, record in zip(self.ids, self.series, strict=True):
            yield from (f"series {id} {fault}" for fault in record.faults(V))
        if set(self.parts) != set(PARTS):
            yield f"its parts must be {', '.join(PARTS)}"
        for part, index in self.parts.items():
            if len(index) == 0:
                yield f"the {part} part has no series"
            if index.dtype.kind != "i" or index.min() < 0 or index.max() >= len(self):
                yield f"the {part} part has an index that is no series"
        index = np.concatenate(list(self.parts.values()))
        if len(np.unique(index)) != len(index):
            yield "a series is in two parts"
        observed = np.any([self.series[i].m.any(0) for i in self.parts["train"]], axis=0)
        if not observed.all():
            yield f"the training part has no value of {self.variables[int(np.argmin(observed))]}"
        if self.task not in get_args(Task):
            yield f"its task must be one of {', '.join(get_args(Task))}"
        if self.links is not None and (self.links.shape != (V, V) or not np.isfinite(self.links).all()):
            yield f"links must be {V} by {V} finite numbers"
        if self.labels is not None and (self.labels.shape != (len(self),) or self.labels.dtype != np.int64
                                        or self.labels.min() < 0 or self.labels.max() >= len(self.classes)):
            yield f"every series needs a label of the {len(self.classes)} classes"
        if self.task == "classify" and (self.labels is None or len(self.classes) < 2):
            yield "classification needs a label for every series and two classes or more"
        if self.task == "classify" and self.labels is not None and np.ptp(self.labels[self.parts["train"]]) == 0:
            yield "all series of the training part have the same label"
        if self.task == "forecast" and not self.given > 0:
            yield "a forecast needs the time that is given, above 0"
        for part, index in self.parts.items():
            after = (self.series[i].m[~self.series[i].seen(self.given)] for i in index)
            if self.task == "forecast" and not any(m.any() for m in after):
                given = f"{self.given:g} {self.time_unit}".rstrip()
                yield f"no series of the {part} part has a value after the given {given}"

    def __len__(self) -> int:
        return len(self.series)

    @cached_property
    def mean(self) -> np.ndarray:
        """The mean of every variable over the training part's observations, (V,)."""
        x, m = self.observations("train")
        return np.asarray(x.sum(0) / m.sum(0))

    @cached_property
    def std(self) -> np.ndarray:
        """The standard deviation of every variable over the training part's observations, (V,); never 0."""
        x, m = self.observations("train")
        std = np.sqrt((np.where(m, x - self.mean, 0.0) ** 2).sum(0) / m.sum(0))
        return np.where(std > FLOOR, std, 1.0)

    def observations(self, part: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the values and masks, (points, V), of all series in a part, or in the set."""
        chosen = self.series if part is None else [self.series[i] for i in self.parts[part]]
        return np.concatenate([r.x for r in chosen]), np.concatenate([r.m for r in chosen])

    @cached_property
    def duration(self) -> float:
        return max(float(r.t[-1] - r.t[0]) for r in self.series)

    @cached_property
    def fingerprint(self) -> str:
        """A short text that changes with the values, the parts and what is predicted, but not with name or title."""
        found = hashlib.blake2b(digest_size=8)
        found.update(json.dumps([self.variables, self.units, self.time_unit, self.time_origin, self.ids, self.task,
                                 self.given, self.classes]).encode())
        parts = (np.asarray(self.parts[part], np.int64) for part in PARTS)
        for array in (*(x for r in self.series for x in (r.t, r.x, r.m)), *parts, self.labels, self.links):
            if array is not None:
                found.update(f"{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return found.hexdigest()

    def save(self, folder: Path) -> None:
        """Write the set into a folder, which is made if it does not exist."""
        offsets = np.concatenate([[0], np.cumsum([len(r.t) for r in self.series])]).astype(np.int64)
        x, m = self.observations()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_npz(folder / "set.npz", {
                "ids": np.array(self.ids), "offsets": offsets, "t": np.concatenate([r.t for r in self.series]),
                "values": x[m], "mask": np.packbits(m, axis=1),
                "labels": np.zeros(0, np.int64) if self.labels is None else self.labels,
                "links": np.zeros((0, 0)) if self.links is None else self.links,
                **{part: np.asarray(self.parts[part], np.int64) for part in PARTS}})
            write_json(folder / "about.json", {
                "format": FORMAT, **{key: getattr(self, key) for key in _TEXTS}, "given": self.given,
                "variables": self.variables, "units": self.units, "classes": self.classes}, indent=1)
        except OSError as error:
            raise disk_error(error, folder / "about.json") from error

    @classmethod
    def load(cls, folder: Path) -> NamedSet:
        """Read the set of a folder. A missing or damaged file raises a UserError."""
        try:
            about, stored = read_json(folder / "about.json"), read_npz(folder / "set.npz", (
                "ids", "offsets", "t", "values", "mask", "labels", "links", *PARTS))
            if about["format"] != FORMAT:
                raise ValueError("it was written by another version")
            variables = tuple(about["variables"])
            if len(stored["mask"]) * len(variables) > MAX_VALUES:
                raise ValueError(f"it claims {len(stored['mask']):,} rows of {len(variables):,} variables, more than "
                                 f"{MAX_VALUES:,} values")
            m = np.unpackbits(stored["mask"], axis=1, count=len(variables)).astype(bool)
            x = np.zeros(m.shape)
            x[m] = stored["values"]
            cuts = [slice(int(start), int(end)) for start, end in pairwise(stored["offsets"])]
            texts: dict[str, Any] = {key: str(about[key]) for key in _TEXTS}
            return cls(**texts, given=float(about["given"]), variables=variables,
                       units=tuple(about["units"]), classes=tuple(about["classes"]),
                       ids=tuple(str(i) for i in stored["ids"]),
                       series=tuple(Record(stored["t"][cut], x[cut], m[cut]) for cut in cuts),
                       parts={part: stored[part] for part in PARTS},
                       labels=stored["labels"] if len(stored["labels"]) else None,
                       links=stored["links"] if stored["links"].size else None)
        except OSError as error:
            raise UserError(f"there is no data set in {folder}: import it again") from error
        except (KeyError, TypeError, ValueError, IndexError) as error:
            reason = str(error) if type(error) is ValueError else "its parts do not fit together"
            raise UserError(f"the data set in {folder} cannot be read ({reason}): import it again") from error


def check_name(name: str) -> str:
    """Return the name of a set, or raise a UserError if it cannot name a folder and an experiment."""
    if not _NAME.fullmatch(name):
        raise UserError(f"{name!r} cannot name a data set: use lower case letters, digits, - and _, at most 64")
    return name


@lru_cache(maxsize=4)
def example(name: str) -> NamedSet:
    return BUILDERS[name]()


def _parts(counts: tuple[int, ...]) -> dict[str, np.ndarray]:
    return dict(zip(PARTS, np.split(np.arange(sum(counts)), np.cumsum(counts)[:-1]), strict=True))


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
    frequency, count = rng.uniform(1, 3, V), sum(COUNTS)
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
    V, count = len(SPECIES), sum(WEBS)
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
    import pandas as pd

    found = pd.DatetimeIndex(dates)
    return ((found - found[0]) / pd.Timedelta(hours=1)).to_numpy(), found[0].isoformat()


def la_speeds() -> NamedSet:
    """Eight road detectors of Los Angeles: an hour is given, the next hour is forecast.

    Four days train, the fifth validates, the last two test.
    """
    speeds, near = _table("la_speeds"), _table("la_adjacency")
    return _windowed(
        speeds, speeds.index.astype(float), 120.0, 5.0, 60.0, shares=(4 / 7, 1 / 7), name="la-speeds",
        title="Los Angeles speeds", unit="mph", time_unit="minutes", links=near[speeds.columns].to_numpy(),
        note="Eight detectors along one road, every five minutes for a week; how near they are along the road is "
             "known.")


def ny_speeds() -> NamedSet:
    """Taxi speeds in four boroughs of New York, with many gaps: a day is given, the next twelve hours are forecast."""
    table = _table("ny_speeds")
    t, origin = _hours(table.index)
    return _windowed(
        table, t, 36.0, 1.0, 24.0, shares=(0.62, 0.18), name="ny-speeds", title="New York speeds", unit="mph",
        note="Median taxi speed by hour and borough, March 2019; hours without a trip are gaps.", time_unit="hours",
        time_origin=origin)


def stocks() -> NamedSet:
    """Weekly prices of six companies, relative to January 2018: twelve weeks are given, four are forecast."""
    table = _table("stocks")
    return _windowed(
        table, np.arange(len(table)), 16.0, 1.0, 12.0, shares=(0.55, 0.22), name="stocks", title="Stock prices",
        unit="× first price", time_unit="weeks", time_origin=table.index[0],
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
    return NamedSet(
        name="liver", title="Liver patients", variables=names, units=tuple(units.values()), time_unit="days",
        note=f"Laboratory values of {len(patients)} patients with primary biliary cirrhosis in their first year, all "
             "seen alive after it; the label is whether a patient died later, during the study.",
        time_origin="", ids=tuple(f"patient {i}" for i, _ in patients), task="classify", given=0.0,
        series=tuple(Record.from_gaps(own.day.to_numpy(), own[list(names)].to_numpy()) for _, own in patients),
        parts=record_split(list(patients.groups), 42)._asdict(),
        labels=patients.died.first().to_numpy().astype(np.int64), classes=("lived", "died"))


def air_quality() -> NamedSet:
    """Ozone, sun, wind and temperature of a summer in New York: observations that are left out are filled in."""
    table = _table("air_quality")
    names = {"Ozone": "ozone", "Solar.R": "sun", "Wind": "wind", "Temp": "temperature"}
    hours, origin = _hours(table.index)
    return replace(_windowed(
        table[list(names)].rename(columns=names), hours / 24, 14.0, 1.0, shares=(0.55, 0.2), name="air-quality",
        title="Air quality", unit="", time_unit="days", time_origin=origin,
        note="Daily means in New York, May to September 1973; a quarter of the observations is left out and filled "
             "in."), units=("ppb", "Ly", "mph", "°F"))


def _windowed(table: DataFrame, t: Any, length: float, every: float, given: float = 0.0, *, unit: str,
              shares: tuple[float, float], time_origin: str = "", **words: Any) -> NamedSet:
    """Return the windows [start, start + length) of a long series: a forecast if some time is given, else to fill in.

    A window that begins in a gap of the times is left out, because times are counted from the first point of a window,
    and one without an observation, also before or after what is given. The first part of the time trains, the next
    validates, the last tests; a window that reaches across a boundary is in no part, so that no observation is in two.
    """
    windows, whole = [], Record.from_gaps(t, table.to_numpy())
    end = whole.t[-1] + np.median(np.diff(whole.t))  # the last point stands for as much time as the others
    for start in np.arange(whole.t[0], end - length + 1e-6 * every, every):
        here = slice(*np.searchsorted(whole.t, [start - 1e-9, start + length - 1e-9]))
        window = whole.part(here)
        if window.m.any() and window.t[0] - start <= every / 2:
            seen = window.seen(given)
            if not given or (window.m[seen].any() and window.m[~seen].any()):
                windows.append(window)
    first, last = windows[0].t[0], max(w.t[-1] for w in windows)
    edges = pairwise([first, *(first + np.cumsum(shares) * (last - first)), np.inf])
    parts = {name: np.array([i for i, w in enumerate(windows) if w.t[0] >= low and w.t[-1] < high], np.int64)
             for name, (low, high) in zip(PARTS, edges, strict=True)}
    return NamedSet(ids=tuple(f"from {w.t[0]:g}" for w in windows), series=tuple(windows), given=given, parts=parts,
                    task="forecast" if given else "fill", time_origin=time_origin, variables=tuple(table.columns),
                    units=(unit,) * table.shape[1], **words)


BUILDERS: dict[str, Callable[[], NamedSet]] = {
    build.__name__.replace("_", "-"): build
    for build in (oscillators, predator_prey, la_speeds, ny_speeds, stocks, liver, air_quality)}
