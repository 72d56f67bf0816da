"""Simulated series that need no download: like the real sets in shape, from dynamics with known coupling.

Intensive care (`icu`), movement, climate, and the two stochastic processes of the paper of GRU-ODE-Bayes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from acenode.data.activity import CLASSES as ACTIVITIES
from acenode.data.activity import NAMES as COORDINATES
from acenode.data.physionet import CLASSES as OUTCOMES
from acenode.data.physionet import HOURS
from acenode.data.series import SeriesArrays
from acenode.data.ushcn import CUT, DAYS, END
from acenode.data.ushcn import VARIABLES as WEATHER


def coupling(names: tuple[str, ...], drives: Mapping[tuple[str, str], float]) -> np.ndarray:
    """Return signed weights as a matrix: [i, j] is the weight with which variable j drives variable i."""
    weight = np.zeros((len(names), len(names)))
    for (driven, driver), drive in drives.items():
        weight[names.index(driven), names.index(driver)] = drive
    return weight


# Intensive care -----------------------------------------------------------------------------------------------------

RECORDS = 480
DEATHS = 0.225
CHANCE = 0.45  # standard deviation of the risk's random part, relative to the part that the dynamics determine
STEP = 0.25  # hours between the times at which something may be measured

# For each variable: usual value, standard deviation, lowest and highest value, probability of being measured at a time
# point, and share of records without it.
_VITALS: dict[str, tuple[float, float, float, float, float, float]] = {
    "HR": (86, 16, 30, 220, 0.80, 0.0),
    "MAP": (80, 12, 25, 150, 0.70, 0.02),
    "RespRate": (19, 5, 4, 60, 0.55, 0.1),
    "SaO2": (96.5, 1.5, 60, 100, 0.35, 0.2),
    "Temp": (37.1, 0.7, 32, 42, 0.35, 0.02),
    "Urine": (110, 60, 0, 600, 0.40, 0.05),
    "GCS": (12, 2.5, 3, 15, 0.20, 0.05),
    "Glucose": (140, 35, 30, 500, 0.12, 0.1),
    "Lactate": (2.2, 1.1, 0.3, 20, 0.12, 0.3),
    "Creatinine": (1.3, 0.6, 0.2, 12, 0.10, 0.05),
    "WBC": (11.5, 4, 0.5, 60, 0.10, 0.1),
    "Bilirubin": (1.1, 0.7, 0.1, 25, 0.06, 0.45),
}
# (driven, driver): weight of tanh(driver) in the driven variable's derivative, in standard deviations per hour. An
# infection raises temperature and pulse; low blood pressure and lactate drive each other; kidneys, liver, consciousness
# and breathing follow.
_DRIVES = {
    ("Temp", "WBC"): 0.30, ("HR", "Temp"): 0.22, ("HR", "MAP"): -0.28, ("MAP", "WBC"): -0.18, ("MAP", "Lactate"): -0.22,
    ("Lactate", "MAP"): -0.30, ("RespRate", "Lactate"): 0.28, ("RespRate", "Temp"): 0.15, ("SaO2", "RespRate"): -0.25,
    ("Urine", "MAP"): 0.32, ("Creatinine", "Urine"): -0.18, ("GCS", "SaO2"): 0.18, ("GCS", "Lactate"): -0.20,
    ("Glucose", "WBC"): 0.22, ("Bilirubin", "Lactate"): 0.16,
}
_DECAY = 0.25  # per hour
_RISK = {"MAP": -0.5, "Lactate": 0.7, "GCS": -1.0, "Creatinine": 0.7, "Temp": 0.4}


def icu(seed: int = 0) -> SeriesArrays:
    """Simulate 480 stays of two days with 12 irregularly measured variables; who dies depends on the dynamics."""
    rng = np.random.default_rng([seed, 1])
    names = tuple(_VITALS)
    usual, spread, low, high, often, lacking = np.array(list(_VITALS.values())).T  # (D,) each
    weight = coupling(names, _DRIVES)
    grid = np.arange(0, HOURS + STEP / 2, STEP)
    states = _stays(rng, weight, names.index("WBC"), len(grid))  # (N, T, D), in standard deviations

    risk = states[:, len(grid) // 2:].mean(axis=1) @ [_RISK.get(name, 0.0) for name in names]
    risk = risk / risk.std() + CHANCE * rng.standard_normal(RECORDS)
    died = risk > np.quantile(risk, 1 - DEATHS)

    pace = np.clip(rng.gamma(9, 41 / 9, RECORDS), 12, 110) / len(grid)  # how often anything is measured
    looks = rng.random((RECORDS, len(grid))) < pace[:, None]
    looks[:, 0] = True
    seen = looks[:, :, None] & (rng.random(states.shape) < often)
    seen &= rng.random((RECORDS, 1, len(names))) >= lacking
    seen[:, 0, 0] = True  # every record begins at time 0, with the pulse
    measured = states + 0.3 * rng.standard_normal(states.shape)
    values = np.clip(usual + spread * measured, low, high)
    record, point = np.nonzero(seen.any(axis=2))
    m = seen[record, point]
    return SeriesArrays.from_points(
        [f"stay{i:03d}" for i in range(RECORDS)], record, grid[point], values[record, point], m, names, unit="h",
        horizon=HOURS, label=died.astype(np.float32), classes=OUTCOMES, coupling=np.abs(weight))


def _stays(rng: np.random.Generator, weight: np.ndarray, infected: int, steps: int) -> np.ndarray:
    """Integrate ds/dt = own − decay·s + W tanh(s) + infection + noise with Euler steps: (N, T, D)."""
    D = len(weight)
    severity = rng.gamma(1.2, 0.5, RECORDS)
    onset, recovery = rng.uniform(-12, 24, RECORDS), rng.uniform(8, 40, RECORDS)
    own = 0.18 * rng.standard_normal((RECORDS, D))  # differs between patients
    s = own / _DECAY
    states = []
    for step in range(steps):
        states.append(s)
        hours = step * STEP - onset
        ds = own - _DECAY * s + np.tanh(s) @ weight.T
        ds[:, infected] += severity * np.clip(hours, 0, 4) / 4 * np.exp(-np.clip(hours, 0, None) / recovery)
        s = s + STEP * ds + 0.22 * np.sqrt(STEP) * rng.standard_normal((RECORDS, D))
    return np.stack(states, axis=1)


# Movement -----------------------------------------------------------------------------------------------------------

WINDOWS = 400
TICK = 0.05  # seconds between the times at which a tag may be read
LONGEST = 50  # points a window, at most three ticks apart
TRIALS = 5

# For each activity: height of the belt, of the chest above the belt, how far the chest leans forward (metres), the rate
# at which the body reaches the posture (per second), and the mean duration (seconds).
_POSTURES = np.array([
    (0.95, 0.36, 0.00, 4.0, 4.0),  # walking
    (0.25, 0.06, 0.35, 3.5, 0.8),  # falling
    (0.22, 0.04, 0.42, 4.0, 4.5),  # lying
    (0.56, 0.40, 0.06, 4.0, 4.0),  # sitting
    (0.95, 0.36, 0.10, 1.8, 1.2),  # standing up
    (0.52, 0.02, 0.45, 4.0, 3.2),  # on all fours
    (0.20, 0.38, 0.05, 4.0, 3.6),  # sitting on the ground
])
_NEXT = np.array([  # weights of the transitions from each activity (row) to the next (column)
    (0, 3, 1, 3, 0, 2, 1),
    (0, 0, 8, 0, 0, 1, 1),
    (0, 0, 0, 0, 6, 2, 2),
    (0, 1, 1, 0, 6, 0, 1),
    (9, 1, 0, 0, 0, 0, 0),
    (0, 0, 3, 0, 3, 0, 3),
    (0, 0, 3, 0, 5, 2, 0),
])
_LEFT, _RIGHT, _CHEST, _BELT = range(4)  # the tags, in the order of the real set
_FOLLOWS = {(_CHEST, _BELT): 8.0, (_LEFT, _BELT): 7.0, (_RIGHT, _BELT): 4.0, (_RIGHT, _LEFT): 5.0}  # per second


def movement(seed: int = 0) -> SeriesArrays:
    """Simulate 400 windows of 30 to 50 time points, each with a reading of one of four body tags and the activity."""
    rng = np.random.default_rng([seed, 2])
    length = rng.integers(30, LONGEST + 1, WINDOWS)
    tick = np.cumsum(rng.integers(1, 4, (WINDOWS, LONGEST)), axis=1)
    tick -= tick[:, :1]  # (N, L)
    activity = _activities(rng, 3 * LONGEST)  # (N, T)
    body = _body(rng, activity)  # (N, T, 4, 3)
    tag = np.cumsum(rng.integers(1, 4, (WINDOWS, LONGEST)), axis=1) % 4  # never the same tag twice in a row

    record, point = np.nonzero(np.arange(LONGEST) < length[:, None])
    when, tag = tick[record, point], tag[record, point]
    m = np.repeat(np.arange(4) == tag[:, None], 3, axis=1)  # (P, 12)
    x = body[record, when].reshape(-1, 12) + 0.03 * rng.standard_normal((len(record), 12))
    group = np.arange(WINDOWS, dtype=np.int64) % TRIALS + 1
    links = np.zeros((4, 3, 4, 3))  # along each axis, but the belt does not drive the height of the ankles
    for (driven, driver), rate in _FOLLOWS.items():
        for axis in range(2 if driver == _BELT and driven != _CHEST else 3):
            links[driven, axis, driver, axis] = rate
    return SeriesArrays.from_points(
        [f"M{g:02d}/{i:04d}" for i, g in enumerate(group)], record, when * TICK, x, m, COORDINATES, unit="s",
        horizon=round(float(when.max() * TICK), 2), label=activity[record, when], classes=ACTIVITIES, group=group,
        coupling=links.reshape(12, 12))


def _activities(rng: np.random.Generator, steps: int) -> np.ndarray:
    """Draw the activity of each body at every tick (N, T) from a Markov chain with the given mean durations."""
    chain = _NEXT / _NEXT.sum(axis=1, keepdims=True)
    stop = TICK / _POSTURES[:, 4]
    now = rng.choice(7, WINDOWS, p=(0.24, 0.04, 0.18, 0.2, 0.06, 0.14, 0.14))
    found = []
    for _ in range(steps):
        found.append(now)
        following = (rng.random((WINDOWS, 1)) > np.cumsum(chain[now], axis=1)).sum(axis=1)
        now = np.where(rng.random(WINDOWS) < stop[now], np.minimum(following, 6), now)
    return np.stack(found, axis=1).astype(np.int64)


def _body(rng: np.random.Generator, activity: np.ndarray) -> np.ndarray:
    """Simulate the positions of the tags (N, T, 4, 3) in metres: the belt moves by activity, the others follow."""
    size = rng.uniform(0.9, 1.1, WINDOWS)
    heading, phase = rng.uniform(0, 2 * np.pi, (2, WINDOWS))
    turn, stride = rng.normal(0, 0.3, WINDOWS), rng.uniform(5.5, 7.5, WINDOWS)
    hip = np.stack([rng.uniform(1, 5, WINDOWS), rng.uniform(0.5, 3, WINDOWS), np.zeros(WINDOWS)], axis=1)
    body = np.repeat(hip[:, None], 4, axis=1)  # (N, 4, 3)
    # A window begins in the posture of its first activity; falling and standing up begin in the posture before them.
    start = np.where(activity[:, 0] == 1, 0, np.where(activity[:, 0] == 4, 2, activity[:, 0]))
    body[:, _BELT, 2], body[:, _CHEST, 2] = size * _POSTURES[start, 0], size * _POSTURES[start, :2].sum(axis=1)
    body[:, (_LEFT, _RIGHT), 2] = 0.1
    found = []
    for now in activity.T:
        found.append(body)
        belt, above, lean, rate, _ = _POSTURES[now].T
        walks = (now == 0)[:, None]
        ahead = np.stack([np.cos(heading), np.sin(heading), np.zeros(WINDOWS)], axis=1)
        up = np.array([0.0, 0.0, 1.0])
        hip = body[:, _BELT]
        floor = hip * (1 - up)  # the point on the floor below the belt
        swing = np.sin(phase)[:, None]
        target = {
            (_CHEST, _BELT): hip + (size * lean)[:, None] * ahead + (size * above)[:, None] * up,
            (_LEFT, _BELT): floor + walks * 0.3 * swing * ahead + (0.1 + walks * 0.12 * np.maximum(swing, 0)) * up,
            (_RIGHT, _BELT): floor + (0.1 + walks * 0.12 * np.maximum(-swing, 0)) * up,
        }
        target[_RIGHT, _LEFT] = floor - (body[:, _LEFT] - hip) * (1 - up) + body[:, _LEFT] * up  # mirrors the left
        speed = np.zeros_like(body)
        speed[:, _BELT] = walks * 1.0 * ahead + (rate * (size * belt - hip[:, 2]))[:, None] * up
        for (driven, driver), follow in _FOLLOWS.items():
            speed[:, driven] += follow * (target[driven, driver] - body[:, driven])
        body = body + TICK * speed + 0.01 * rng.standard_normal(body.shape)
        heading, phase = heading + TICK * turn * walks[:, 0], phase + TICK * stride
    return np.stack(found, axis=1)


# Climate -------------------------------------------------------------------------------------------------------------

STATIONS = 500
CLIMATE_STEP = 0.1  # between the times at which something may be observed
YEAR = 365.25 / DAYS
BEFORE, AFTER = (32, 59), (10, 22)  # range of the number of times on each side of the cut, upper end excluded
MORE = 0.05  # probability that a further variable is observed at a time

# (driven, driver): weight of tanh(driver) in the driven variable's derivative, per unit of time. Wet air is cool and
# cold rain is snow; snow lies until it is warm, and keeps nights cold; nights follow days.
CLIMATE_DRIVES = {
    ("TMAX", "PRCP"): -0.25, ("SNOW", "PRCP"): 0.45, ("SNOW", "TMAX"): -0.45, ("SNWD", "SNOW"): 0.55,
    ("SNWD", "TMAX"): -0.30, ("TMIN", "TMAX"): 0.60, ("TMIN", "SNWD"): -0.25,
}
_FADE = np.array([0.9, 0.7, 0.3, 0.4, 0.5])  # per unit of time: rain passes, snow lies
_GUSTS = np.array([0.9, 0.3, 0.1, 0.25, 0.2])
_SEASON = np.array([0.15, 0.0, 0.0, 0.45, 0.0])  # how strongly the season drives each variable


def climate(seed: int = 0) -> SeriesArrays:
    """Simulate 500 stations over four years with about 60 observation times each, mostly of one variable, in standard
    deviations."""
    rng = np.random.default_rng([seed, 3])
    weight = coupling(WEATHER, CLIMATE_DRIVES)
    states = _weather(rng, weight, round(END / CLIMATE_STEP) + 1)  # (T, N, D)
    before, sides = round(CUT / CLIMATE_STEP) + 1, []
    for width, (low, high) in ((before, BEFORE), (len(states) - before, AFTER)):
        rank = rng.random((STATIONS, width)).argsort(axis=1).argsort(axis=1)
        sides.append(rank < rng.integers(low, high, (STATIONS, 1)))
    station, point = np.nonzero(np.concatenate(sides, axis=1))  # when each station is observed, on both sides
    P, D = len(station), len(WEATHER)
    m = rng.random((P, D)) < MORE
    m[np.arange(P), rng.integers(0, D, P)] = True
    x = states[point, station] + 0.1 * rng.standard_normal((P, D))
    count = m.sum(axis=0)
    mean = np.where(m, x, 0).sum(axis=0) / count
    spread = np.sqrt(np.where(m, (x - mean) ** 2, 0).sum(axis=0) / count)
    return SeriesArrays.from_points(
        [f"station{i:03d}" for i in range(STATIONS)], station, np.round(point * CLIMATE_STEP, 1), (x - mean) / spread,
        m, WEATHER, horizon=END, coupling=np.abs(weight))


def _weather(rng: np.random.Generator, weight: np.ndarray, steps: int) -> np.ndarray:
    """Integrate ds/dt = own − decay·s + W tanh(s) + season + noise with Euler steps, after a warm-up: (T, N, D)."""
    D = len(weight)
    own = 0.15 * rng.standard_normal((STATIONS, D))  # differs between stations
    swing = rng.uniform(0.6, 1.4, (STATIONS, 1))  # amplitude of the seasons: larger inland
    warm_up = round(20 / CLIMATE_STEP)
    s = own / _FADE
    states = np.empty((steps, STATIONS, D), np.float32)
    noise = rng.standard_normal((steps + warm_up, STATIONS, D), np.float32)
    noise *= (_GUSTS * np.sqrt(CLIMATE_STEP)).astype(np.float32)
    for step in range(-warm_up, steps):
        if step >= 0:
            states[step] = s
        season = -np.cos(2 * np.pi * (step * CLIMATE_STEP - 0.1 * YEAR) / YEAR) * _SEASON * swing
        s = s + CLIMATE_STEP * (own - _FADE * s + np.tanh(s) @ weight.T + season) + noise[step + warm_up]
    return states


# Stochastic processes ------------------------------------------------------------------------------------------------

PUBLISHED = 432  # the seed of the published sets
OU_SERIES, OU_END, OU_STEP, OU_CUT = 10_000, 10.0, 0.05, 4.0
BRUSSELATOR_SERIES, BRUSSELATOR_END, BRUSSELATOR_STEP, BRUSSELATOR_CUT = 1_000, 50.0, 0.1, 35.0


def double_ou(seed: int = 0, count: int = OU_SERIES) -> SeriesArrays:
    """Simulate pairs of Ornstein–Uhlenbeck processes with correlated noise: x += θ(μ − x)dt + dW, θ = 1.

    Each series has 16 to 23 times on a grid of 0.05 up to 10; at four in five of them, one of the two is observed.
    """
    rng = np.random.RandomState(PUBLISHED + seed)
    steps = int(OU_END // OU_STEP)  # 199
    mu = np.array([1.0, -1.0]) + rng.uniform(-0.5, 0.5, (count, 2))
    dW = _noise(rng, (count, steps), OU_STEP, rho=0.99)
    x = np.zeros((steps, count, 2))
    for i in range(1, steps):
        x[i] = x[i - 1] - (x[i - 1] - mu) * OU_STEP + dW[:, i]
    return _observed(rng, x, OU_STEP, OU_END, (16, 24), both=0.2, names=("x1", "x2"), links=None)


def brusselator(seed: int = 0, count: int = BRUSSELATOR_SERIES) -> SeriesArrays:
    """Simulate Brusselators: dx = 1 + a x²y − (b + 1)x, dy = b x − a x²y, with a = 0.3, b = 1.4 and a little noise.

    Each series has 20 to 29 times on a grid of 0.1 up to 50; at four in five of them, both variables are observed. As
    in the published code, the noise is scaled by σ twice and its correlation is −0.99.
    """
    a, b, sigma = 0.3, 1.4, 0.1
    rng = np.random.RandomState(PUBLISHED + seed)
    steps = int(BRUSSELATOR_END // BRUSSELATOR_STEP)  # 499
    x = np.empty((steps, count, 2))
    x[0] = [1.0, b / a] + 0.3 * rng.randn(count, 2)
    dW = _noise(rng, (count, steps), BRUSSELATOR_STEP, rho=-0.99)
    for i in range(1, steps):
        u, v = x[i - 1].T
        speed = np.stack([1 + a * u * u * v - (b + 1) * u, b * u - a * u * u * v], axis=1)
        x[i] = x[i - 1] + speed * BRUSSELATOR_STEP + sigma * dW[:, i]
    return _observed(rng, x, BRUSSELATOR_STEP, BRUSSELATOR_END, (20, 30), both=0.8, names=("x", "y"),
                     links=np.array([[0.0, a], [b, 0.0]]))


def _noise(rng: np.random.RandomState, shape: tuple[int, int], dt: float, rho: float, sigma: float = 0.1) -> np.ndarray:
    """Draw dW ~ N(0, dt σ² [[1, ρ], [ρ, 1]]): (N, T, 2)."""
    return rng.multivariate_normal([0, 0], dt * sigma**2 * np.array([[1, rho], [rho, 1]]), size=shape)


def _observed(rng: np.random.RandomState, x: np.ndarray, dt: float, end: float, times: tuple[int, int], both: float,
              names: tuple[str, str], links: np.ndarray | None) -> SeriesArrays:
    """Observe the first, the second or both variables of each path of x (T, N, 2) at some times of the grid."""
    steps, count = x.shape[:2]
    point, kind = [], []
    for _ in range(count):
        number = rng.randint(*times)
        drawn = rng.choice(steps, number, replace=False)
        order = drawn.argsort()
        point.append(drawn[order])
        kind.append(rng.choice(3, number, p=[(1 - both) / 2, (1 - both) / 2, both])[order])
    at, shows = np.concatenate(point), np.concatenate(kind)
    record = np.repeat(np.arange(count), [len(one) for one in point])
    return SeriesArrays.from_points(np.arange(count).astype(str), record, at * dt, x[at, record],
                                    np.stack([shows != 1, shows != 0], axis=1), names, horizon=end, coupling=links)
