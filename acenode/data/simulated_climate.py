"""A simulated climate that needs no download: the five variables of USHCN, with known coupling."""

import numpy as np

from acenode.data.series import SeriesArrays
from acenode.data.ushcn import CUT, DAYS, END, VARIABLES

STATIONS = 500
STEP = 0.1  # between the times at which something may be observed
YEAR = 365.25 / DAYS
BEFORE, AFTER = (32, 59), (10, 22)  # range of the number of times on each side of the cut, upper end excluded
MORE = 0.05  # probability that a further variable is observed at a time

# (driven, driver): weight of tanh(driver) in the driven variable's derivative, per unit of time. Wet air is cool and
# cold rain is snow; snow lies until it is warm, and keeps nights cold; nights follow days.
DRIVES = {
    ("TMAX", "PRCP"): -0.25, ("SNOW", "PRCP"): 0.45, ("SNOW", "TMAX"): -0.45, ("SNWD", "SNOW"): 0.55,
    ("SNWD", "TMAX"): -0.30, ("TMIN", "TMAX"): 0.60, ("TMIN", "SNWD"): -0.25,
}
_DECAY = np.array([0.9, 0.7, 0.3, 0.4, 0.5])  # per unit of time: rain passes, snow lies
_NOISE = np.array([0.9, 0.3, 0.1, 0.25, 0.2])
_SEASON = np.array([0.15, 0.0, 0.0, 0.45, 0.0])  # how strongly the season drives each variable


def climate(seed: int = 0) -> SeriesArrays:
    """Simulate 500 stations over four years with about 60 observation times each, mostly of one variable, in standard
    deviations."""
    rng = np.random.default_rng([seed, 3])
    weight = drives()
    states = _weather(rng, weight, round(END / STEP) + 1)  # (T, N, D)
    when = _times(rng, len(states))  # (N, T)
    station, point = np.nonzero(when)
    P, D = len(station), len(VARIABLES)
    m = rng.random((P, D)) < MORE
    m[np.arange(P), rng.integers(0, D, P)] = True
    x = states[point, station] + 0.1 * rng.standard_normal((P, D))
    count = m.sum(axis=0)
    mean = np.where(m, x, 0).sum(axis=0) / count
    spread = np.sqrt(np.where(m, (x - mean) ** 2, 0).sum(axis=0) / count)
    return SeriesArrays(
        ids=np.array([f"station{i:03d}" for i in range(STATIONS)]),
        offsets=np.concatenate([[0], np.cumsum(when.sum(axis=1))]).astype(np.int64),
        t=np.round(point * STEP, 1).astype(np.float32), x=np.where(m, (x - mean) / spread, 0).astype(np.float32), m=m,
        label=np.full(STATIONS, np.nan, np.float32), names=VARIABLES, classes=(), group=np.zeros(STATIONS, np.int64),
        unit="", horizon=END, coupling=np.abs(weight),
    )


def drives() -> np.ndarray:
    """Return the signed coupling (5, 5): [i, j] is the weight with which variable j drives variable i."""
    weight = np.zeros((len(VARIABLES), len(VARIABLES)))
    for (driven, driver), drive in DRIVES.items():
        weight[VARIABLES.index(driven), VARIABLES.index(driver)] = drive
    return weight


def _weather(rng: np.random.Generator, weight: np.ndarray, steps: int) -> np.ndarray:
    """Integrate ds/dt = own − decay·s + W tanh(s) + season + noise with Euler steps, after a warm-up: (T, N, D)."""
    D = len(weight)
    own = 0.15 * rng.standard_normal((STATIONS, D))  # differs between stations
    swing = rng.uniform(0.6, 1.4, (STATIONS, 1))  # amplitude of the seasons: larger inland
    warm_up = round(20 / STEP)
    s = own / _DECAY
    states = np.empty((steps, STATIONS, D), np.float32)
    noise = rng.standard_normal((steps + warm_up, STATIONS, D), np.float32)
    noise *= (_NOISE * np.sqrt(STEP)).astype(np.float32)
    for step in range(-warm_up, steps):
        if step >= 0:
            states[step] = s
        season = -np.cos(2 * np.pi * (step * STEP - 0.1 * YEAR) / YEAR) * _SEASON * swing
        s = s + STEP * (own - _DECAY * s + np.tanh(s) @ weight.T + season) + noise[step + warm_up]
    return states


def _times(rng: np.random.Generator, steps: int) -> np.ndarray:
    """Draw when each station is observed: (N, T), with times on both sides of the cut."""
    before = round(CUT / STEP) + 1
    sides = []
    for width, (low, high) in ((before, BEFORE), (steps - before, AFTER)):
        rank = rng.random((STATIONS, width)).argsort(axis=1).argsort(axis=1)
        sides.append(rank < rng.integers(low, high, (STATIONS, 1)))
    return np.concatenate(sides, axis=1)
