"""One snapshot for the trajectory player: its maps, and what the ranges and axes of the whole run need of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from acenode.player import attention_maps, attention_measure, collapse, snapshots
from acenode.player.attention_maps import MapKind
from acenode.player.snapshots import Snapshot
from acenode.runs.store import Run

SKETCH_FRAMES = 5  # frames of each snapshot from which principal components are computed

Arrays = dict[str, np.ndarray]
Range = tuple[float, float, float]  # low, high, largest change since t = 0


@dataclass(frozen=True)
class Limits:
    """How much the player is sent; larger maps are averaged down."""

    epochs: int | None = None  # all of them
    frames: int | None = None
    channels: int = 64
    side: int = 64  # of a map
    probes: int = 10
    epoch_bytes: int = 5_500_000


@dataclass(frozen=True)
class SnapshotSummary:
    """What the whole run's ranges and principal components need of one snapshot, or why it cannot be drawn."""

    note: str | None
    epoch: int = 0
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    sketch: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))  # (rows, D): h of a few frames, all probes
    ranges: dict[str, Range] = field(default_factory=dict)
    measure: tuple[float, float] | None = None  # smallest and largest value of the curves of attention
    row_distance: float | None = None  # of softmax(a) at the last frame, mean over the probes
    predictions: list[list[Any]] | None = None
    between_probes: float | None = None  # largest difference of a weight between probes at any time


def load(run: Run, path: Path) -> Snapshot | str:
    """Read a snapshot; returns a sentence that says why if it cannot be drawn."""
    notes: list[str] = []
    if not re.fullmatch(r"epoch-\d{1,9}", path.stem):
        return f"{path.name} is not a snapshot of an epoch and is left out."
    found = snapshots.load(run, path, notes)
    if found is None:
        return notes[0]
    for key in found.shapes:  # float16 is kept; other types become float32
        if found.arrays[key].dtype != np.float16:
            with np.errstate(over="ignore"):
                found.arrays[key] = found.arrays[key].astype(np.float32)
        if not np.isfinite(found.arrays[key]).all():
            return f"{path.name} has states that are too large and is left out."
    a = found.arrays.get("a")
    if a is not None and a.shape[:2] != found.arrays["h"].shape[:2]:
        return f"{path.name} has another number of frames in a(t) than in h(t) and is left out."
    return found


def summarise(found: Snapshot | str, limits: Limits) -> SnapshotSummary:
    """Compute the ranges of a snapshot's maps and a sketch of its states."""
    if isinstance(found, str):
        return SnapshotSummary(found)
    arrays = found.arrays
    probes, h = probe_count(arrays, limits), arrays["h"]
    some = np.rint(np.linspace(0, len(h) - 1, min(SKETCH_FRAMES, len(h)))).astype(int)
    ranges: dict[str, Range] = {}
    between_probes = None
    for key, x in pictures(arrays, limits).items():
        if key == "attention" and probes > 1:
            between_probes = float(np.ptp(x, axis=1).max())
        if key == "influence":  # of others: a variable's influence on itself is often far larger
            others = x[..., ~np.eye(x.shape[-1], dtype=bool)]
            ranges[key] = (0.0, float(others.max()), float(np.abs(others - others[0]).max()))
        elif key in ("features", "state"):
            most = float(np.percentile(np.abs(x), 99.5)) or float(np.abs(x).max()) or 1.0
            ranges[key] = (-most, most, 0.0)
        else:
            ranges[key] = (float(x.min()), float(x.max()), float(np.abs(x - x[0]).max()))
    return SnapshotSummary(None, found.epoch, found.shapes, h[some, :probes].reshape(len(some) * probes, -1), ranges,
                           *_attention_summary(arrays, probes), snapshots.predictions(arrays, probes), between_probes)


def _attention_summary(arrays: Arrays, probes: int) -> tuple[tuple[float, float] | None, float | None]:
    """Return the range of the curves of attention, and the distance between rows of softmax(a) at the end."""
    if "a" not in arrays:
        return None, None
    a, kind = arrays["a"][:, :probes], map_kind(arrays)
    curves = attention_measure.curves(a, kind)
    distance = None
    if kind is attention_maps.PAIRWISE and a.shape[-1] > 1:
        distance = float(collapse.row_distance(attention_maps.weights(a[-1:], kind, widest=a.shape[-1])).mean())
    return (float(curves.min()), float(curves.max())), distance


def probe_count(arrays: Arrays, limits: Limits) -> int:
    return min(limits.probes, int(arrays["h"].shape[1]))


def map_kind(arrays: Arrays) -> MapKind | None:
    return attention_maps.kind_of(arrays["h"], arrays["a"]) if "a" in arrays else None


def is_named(arrays: Arrays) -> bool:
    """Return True if every coordinate of the state stands for a named variable."""
    return snapshots.coordinate_names(arrays, arrays["h"].shape[-1]) is not None


def has_influence(arrays: Arrays, limits: Limits) -> bool:
    """Return True if a snapshot of named variables holds their influence |∂ḣ_i/∂h_j|, (T, P, V, V), to be drawn."""
    h, found = arrays["h"], arrays.get("influence")
    return found is not None and h.ndim == 3 and is_named(arrays) and found.shape == (*h.shape, h.shape[-1]) \
        and found.dtype.kind == "f" and 1 < h.shape[-1] <= limits.side and bool(np.isfinite(found).all())


def pictures(arrays: Arrays, limits: Limits, frames: list[int] | None = None) -> Arrays:
    """Return attention weights, influence and features of these frames (all if None) as float maps (T, P, …)."""
    probes, chosen, kind = probe_count(arrays, limits), slice(None) if frames is None else frames, map_kind(arrays)
    h = arrays["h"][chosen, :probes].astype(np.float32)
    found: Arrays = {}
    if kind is not None:
        a = arrays["a"][chosen, :probes].astype(np.float32)
        found["attention"] = attention_maps.weights(a, kind, limits.side)
        if kind is attention_maps.ELEMENTWISE:
            channels = attention_maps.sigmoid(a[:, :, :limits.channels])
            found["attention_channels"] = attention_maps.pooled(channels, limits.side)
    if has_influence(arrays, limits):
        found["influence"] = arrays["influence"][chosen, :probes].astype(np.float32)
    if h.ndim == 5:
        found["features"] = attention_maps.pooled(h[:, :, :limits.channels], limits.side)
    elif h.ndim == 4:
        found["features"] = attention_maps.pooled(h[:, :, None], limits.side)
    elif h.ndim == 3:
        found["state"] = h
    return found


def choose_frames(arrays: Arrays, limits: Limits) -> tuple[list[int], dict[str, tuple[int, ...]]]:
    """Choose frames, and the shape of each array, so that an epoch fits into its bytes.

    Channels are dropped before fewer than a dozen frames are left. The frames are evenly spaced and end with the last.
    """
    count = len(arrays["t"])
    parts = {key: x.shape[1:] for key, x in pictures(arrays, limits, [0]).items()}
    most = max((s[1] for key, s in parts.items() if len(s) == 4), default=1)

    def frame_bytes(channels: int) -> int:
        cells = {key: (s[0], min(s[1], channels), *s[2:]) if len(s) == 4 else s for key, s in parts.items()}
        return sum(int(np.prod(s)) * (4 if key == "state" else 1) for key, s in cells.items()) \
            + 20 * probe_count(arrays, limits)  # the path and the curve of each probe

    channels = most
    while channels > 1 and limits.epoch_bytes // frame_bytes(channels) < min(count, 12):
        channels = -(-channels // 2)
    room = max(2, limits.epoch_bytes // frame_bytes(channels))
    room = min(room, limits.frames or room)
    stride = max(1, -(-(count - 1) // (room - 1)))
    chosen = sorted({*range(0, count, stride), count - 1})
    return chosen, {key: (len(chosen), s[0], min(s[1], channels), *s[2:]) if len(s) == 4 else (len(chosen), *s)
                    for key, s in parts.items()}
