"""Choose and compress the snapshots of a recorded run so that the trajectory player shows the same."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from acenode.player import snapshots
from acenode.player.snapshots import Limits, Snapshot
from acenode.runs import compact_arrays
from acenode.runs.compact_arrays import Arrays
from acenode.runs.store import Run

MOST = 12  # snapshots of a run
LEVELS = 255  # the player's grey levels of a map
TOLERANCE = 1.0  # levels by which 99.9% of a map's cells may differ
WIDEST = 64  # of an axis that is written in its principal components
COARSEST, FINER, TRIES = 4.0, 0.7, 12  # the first step that is tried, in units of range / 255, and how it is reduced

Transform = tuple[bool, tuple[int, ...]]  # polynomials in time, axes in principal components


@dataclass(frozen=True)
class Form:
    """How the arrays of a run are stored: a transform of each, and its step in units of its range / 255."""

    transforms: dict[str, Transform]
    steps: dict[str, float]


def choose(run: Run, bytes_left: int) -> dict[str, bytes]:
    """Return the files of as many snapshots as fit, evenly spaced, with the last one; at least that one.

    Args:
        run: the run.
        bytes_left: the size that they may have together.

    Returns:
        Contents by file name; empty if the run has no snapshot that can be drawn.
    """
    found = [(path, s) for path in run.snapshots() if isinstance(s := snapshots.load(run, path), Snapshot)]
    if not found:
        return {}
    form = choose_form(found[-1][1].arrays)
    last = encode(found[-1][1].arrays, form)
    count = max(1, min(MOST, len(found), bytes_left // max(len(last), 1)))
    while True:
        chosen = [found[i] for i in _spread(len(found), count)]
        files = {path.name: last if path is found[-1][0] else encode(s.arrays, form) for path, s in chosen}
        if count == 1 or sum(map(len, files.values())) <= bytes_left:
            return files
        count -= 1


def _spread(total: int, count: int) -> list[int]:
    """Return `count` indices of `total`, evenly spaced, with the first and the last; the last alone for one."""
    return sorted({round(i) for i in np.linspace(0, total - 1, count)}) if count > 1 else [total - 1]


def choose_form(arrays: Arrays) -> Form:
    """Choose for each array the transform with the smallest result, and a step at which the player shows the same."""
    names: list[str] = [name for name in ("h", "a") if name in arrays]
    steps: dict[str, float] = dict.fromkeys(names, COARSEST)
    transforms: dict[str, Transform] = {}
    for name in names:
        transforms[name] = min(_transforms(arrays[name]), key=lambda t: _size(
            compact_arrays.encode(name, arrays[name], _step(arrays[name], 1.0), *t)))
    for _ in range(TRIES):
        form = Form(transforms, dict(steps))
        error = difference(arrays, decoded(arrays, form))
        too_coarse = [name for name in names if error[name] > TOLERANCE]
        if not too_coarse:
            break
        for name in too_coarse:
            steps[name] *= FINER
    return form


def encode(arrays: Arrays, form: Form) -> bytes:
    """Return the file of a snapshot; arrays other than h and a are stored as they are."""
    return compact_arrays.pack(_members(arrays, form))


def decoded(arrays: Arrays, form: Form) -> Arrays:
    """Return the arrays as they will be read from the file."""
    return compact_arrays.decode(_members(arrays, form))


def _members(arrays: Arrays, form: Form) -> Arrays:
    members = {name: x for name, x in arrays.items() if name not in form.steps}
    for name, step in form.steps.items():
        members |= compact_arrays.encode(name, arrays[name], _step(arrays[name], step), *form.transforms[name])
    return members


def difference(original: Arrays, copy: Arrays) -> dict[str, float]:
    """Return for h and a by how many of the player's levels their maps differ, at the 99.9th percentile."""
    found = {"h": 0.0, "a": 0.0}
    maps = snapshots.pictures(copy, Limits())
    for key, x in snapshots.pictures(original, Limits()).items():
        name = "h" if key in ("features", "state") else "a"
        low, high = (np.percentile(x, 0.25), np.percentile(x, 99.75)) if name == "h" else (x.min(), x.max())
        level = max(float(high - low), 1e-6) / LEVELS
        found[name] = max(found[name], float(np.percentile(np.abs(maps[key] - x), 99.9)) / level)
    return found


def _transforms(x: np.ndarray) -> list[Transform]:
    """Return the transforms to try: smooth in time, of few layers, matrices of correlated rows and columns, none."""
    matrices = [(False, (x.ndim - 2, x.ndim - 1))] if x.ndim == 4 and max(x.shape[-2:]) <= WIDEST else []
    return [(True, ()), (False, (0,)), *matrices, (False, ())]


def _step(x: np.ndarray, step: float) -> float:
    low, high = np.percentile(x.astype(np.float32), [0.25, 99.75])
    return max(float(high - low), 1e-6) / LEVELS * step


def _size(members: Arrays) -> int:
    return sum(len(zlib.compress(np.ascontiguousarray(x).tobytes(), 6)) for x in members.values())
