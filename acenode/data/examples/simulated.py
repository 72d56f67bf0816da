"""Simulated series whose links are known: coupled oscillators, and predators with their prey."""

from __future__ import annotations

import numpy as np

from acenode.data.named_set import NamedSet, Record

OSCILLATORS, LINKS = 8, 2  # and incoming links of each
COUNTS = {"train": 1000, "validation": 100, "test": 200}  # trajectories
_STEP, _EVERY, _POINTS, _SEEN = 0.02, 10, 21, 5  # Euler step, steps between points, points, points that are given
SPECIES = ("voles", "hares", "grouse", "weasels", "foxes", "owls")
_EATS = {"weasels": ("voles",), "foxes": ("hares", "voles"), "owls": ("voles", "grouse")}
WEBS = {"train": 400, "validation": 80, "test": 120}


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
