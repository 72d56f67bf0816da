"""Simulated series that need no download: like the real sets in shape, from dynamics with known coupling."""

from __future__ import annotations

import numpy as np

from acenode.data.activity import CLASSES as ACTIVITIES
from acenode.data.activity import NAMES as COORDINATES
from acenode.data.physionet import CLASSES as OUTCOMES
from acenode.data.physionet import HOURS
from acenode.data.series import SeriesArrays

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
    weight = np.zeros((len(names), len(names)))
    for (driven, driver), drive in _DRIVES.items():
        weight[names.index(driven), names.index(driver)] = drive
    grid = np.arange(0, HOURS + STEP / 2, STEP)
    states = _stays(rng, weight, names.index("WBC"), len(grid))  # (N, T, D), in standard deviations

    risk = states[:, len(grid) // 2:].mean(axis=1) @ [_RISK.get(name, 0.0) for name in names]
    risk = risk / risk.std() + CHANCE * rng.standard_normal(RECORDS)
    died = risk > np.quantile(risk, 1 - DEATHS)

    seen = _measurement_times(rng, len(grid))[:, :, None] & (rng.random(states.shape) < often)
    seen &= rng.random((RECORDS, 1, len(names))) >= lacking
    seen[:, 0, 0] = True  # every record begins at time 0, with the pulse
    measured = states + 0.3 * rng.standard_normal(states.shape)
    values = np.clip(usual + spread * measured, low, high)
    record, point = np.nonzero(seen.any(axis=2))
    m = seen[record, point]
    return SeriesArrays(
        ids=np.array([f"stay{i:03d}" for i in range(RECORDS)]), offsets=_offsets(record, RECORDS),
        t=grid[point].astype(np.float32), x=np.where(m, values[record, point], 0).astype(np.float32), m=m,
        label=died.astype(np.float32), names=names, classes=OUTCOMES, group=np.zeros(RECORDS, np.int64),
        unit="h", horizon=HOURS, coupling=np.abs(weight),
    )


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


def _measurement_times(rng: np.random.Generator, steps: int) -> np.ndarray:
    """Draw when measurements are taken: (N, T), at a rate that differs between stays."""
    pace = np.clip(rng.gamma(9, 41 / 9, RECORDS), 12, 110) / steps
    looks = rng.random((RECORDS, steps)) < pace[:, None]
    looks[:, 0] = True
    return looks


def _offsets(record: np.ndarray, count: int) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.bincount(record, minlength=count))]).astype(np.int64)


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
    return SeriesArrays(
        ids=np.array([f"M{g:02d}/{i:04d}" for i, g in enumerate(group)]), offsets=_offsets(record, WINDOWS),
        t=(when * TICK).astype(np.float32), x=np.where(m, x, 0).astype(np.float32), m=m, label=activity[record, when],
        names=COORDINATES, classes=ACTIVITIES, group=group, unit="s", horizon=round(float(when.max() * TICK), 2),
        coupling=_between_tags(),
    )


def _between_tags() -> np.ndarray:
    """Return the coupling of the coordinates (12, 12): tags drive each other along each axis, but the belt does not
    drive the height of the ankles."""
    coupling = np.zeros((4, 3, 4, 3))
    for (driven, driver), rate in _FOLLOWS.items():
        for axis in range(2 if driver == _BELT and driven != _CHEST else 3):
            coupling[driven, axis, driver, axis] = rate
    return coupling.reshape(12, 12)


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
