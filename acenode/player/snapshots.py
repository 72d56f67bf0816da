"""Snapshots for drawing: read with checks, their maps, what they say of their probes, and what their time means."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from acenode.config import Config
from acenode.data.physionet import HOURS
from acenode.data.ushcn import DAYS
from acenode.errors import UserError
from acenode.player import attention
from acenode.runs.store import Run

JUMPS, NAME = 2000, 40  # most jumps of a probe, and characters of its name, that are shown
SKETCH_FRAMES = 5  # frames of each snapshot from which principal components are computed
WORDS = {"h": "hours", "s": "seconds", "min": "minutes", "d": "days"}
HORIZONS = {"physionet": (HOURS, "h"), "physionet-vitals": (HOURS, "h"), "ushcn": (DAYS, "d")}
DRAWN = ("attention", "attention_channels", "influence", "features", "state")  # arrays that `pictures` may return
PROCESSES = ("ou", "brusselator")  # samples whose time has no unit

Arrays = dict[str, np.ndarray]
Range = tuple[float, float, float]  # low, high, largest change since t = 0


@dataclass(frozen=True)
class Snapshot:
    """The arrays of one snapshot."""

    epoch: int
    arrays: Arrays


def load(run: Run, path: Path) -> Snapshot | str:
    """Read a snapshot; returns a sentence that says why if it is damaged or cannot be drawn."""
    epoch = re.fullmatch(r"epoch-(\d{1,9})", path.stem)
    if epoch is None:
        return f"{path.name} is not a snapshot of an epoch and is left out."
    try:
        arrays = run.snapshot(path)
    except Exception:  # a damaged archive fails in many ways: zlib, struct, memory for an absurd shape …
        return f"{path.name} cannot be read."
    t, h, a = (arrays.get(k) for k in ("t", "h", "a"))
    drawable = t is not None and h is not None and t.ndim == 1 and h.ndim >= 3 and h.size > 0 and len(t) == len(h)
    if not drawable or any(x is not None and x.dtype.kind not in "fiu" for x in (t, h, a)):
        return f"{path.name} holds no states over time."
    for key in [key for key in ("t", "h", "a") if key in arrays]:
        if not np.isfinite(arrays[key]).all():
            return f"{path.name} has states that are not finite and is left out."
        if key != "t" and arrays[key].dtype != np.float16:  # float16 is kept; other types become float32
            with np.errstate(over="ignore"):
                arrays[key] = arrays[key].astype(np.float32)
        if not np.isfinite(arrays[key]).all():
            return f"{path.name} has states that are too large and is left out."
    if a is not None and a.shape[:2] != arrays["h"].shape[:2]:
        return f"{path.name} has another number of frames in a(t) than in h(t) and is left out."
    return Snapshot(int(epoch[1]), arrays)


def labels(arrays: Arrays, probes: int) -> list[int] | None:
    """Return the class of each probe, or None."""
    found = _of_probes(arrays, "label", 1, "iu", probes)
    return None if found is None else found.tolist()


def names(arrays: Arrays, probes: int, longest: int | None = NAME) -> list[str] | None:
    """Return the names of the probes, such as stations, cut to `longest`; a probe without a name gets a number."""
    found = _of_probes(arrays, "name", 1, "U", probes)
    if found is None:
        return None
    try:
        shown = ["".join(c for c in str(x)[:longest] if c.isprintable()).strip() for x in found]
    except (ValueError, SystemError):  # not valid characters
        return None
    return [x or f"sample {i + 1}" for i, x in enumerate(shown)] if any(shown) else None


def coordinate_names(arrays: Arrays, size: int, longest: int | None = NAME) -> list[str] | None:
    """Return the names of the state's coordinates, cut to `longest`, if each stands for a variable."""
    found = arrays.get("coordinate")
    return None if found is None or found.shape != (size,) else names({"name": found}, size, longest)


def jumps(arrays: Arrays, probes: int) -> list[list[float]] | None:
    """Return the times at which each probe's state jumped, within the range of t. Rows are padded with NaN."""
    found, t = _of_probes(arrays, "jumps", 2, "f", probes), arrays["t"]
    shown = [] if found is None else [np.unique(row[(row >= t.min()) & (row <= t.max())])[:JUMPS] for row in found]
    return [[float(f"{x:.6g}") for x in row] for row in shown] if any(len(row) for row in shown) else None


def images(arrays: Arrays, probes: int) -> dict[str, Any] | None:
    """Return the probes' images in base64, channels last."""
    found = _of_probes(arrays, "image", 4, "u", probes)
    if found is None or found.dtype != np.uint8 or found.shape[1] not in (1, 3):
        return None
    return {"shape": list(found.shape[1:]), "pixels": to_base64(found.transpose(0, 2, 3, 1))}


def predictions(arrays: Arrays, probes: int) -> list[list[Any]] | None:
    """Return the predicted class of each probe and its probability."""
    logits = _of_probes(arrays, "logits", 2, "f", probes)
    if logits is None or logits.shape[1] == 0 or not np.isfinite(logits).all():
        return None
    e = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    p = e / e.sum(1, keepdims=True)
    return [[int(row.argmax()), round(float(row.max()), 4)] for row in p]


def _of_probes(arrays: Arrays, key: str, dimensions: int, kinds: str, probes: int) -> np.ndarray | None:
    """Return the rows of the probes of an array, or None if it has another shape or type than expected."""
    found = arrays.get(key)
    if found is None or found.ndim != dimensions or len(found) < probes or found.dtype.kind not in kinds:
        return None
    return found[:probes]


def to_base64(values: np.ndarray) -> str:
    """Write the bytes of an array in base64."""
    return b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")


@dataclass(frozen=True)
class TimeAxis:
    """Real time is `scale` times t, in `unit`: hours of a stay, days at a station, seconds of a recording."""

    scale: float
    unit: str  # in words


def config_of(run: Run) -> Config | None:
    """Return the configuration of a run, or None if another version has written it."""
    try:
        return run.config()
    except UserError:
        return None


def time_axis(config: Config | None, arrays: Arrays) -> TimeAxis | None:
    """Return the time axis of a snapshot, from its own arrays or, of older runs, from the experiment."""
    scale, unit = arrays.get("time_scale"), arrays.get("time_unit")
    if scale is not None and unit is not None and scale.shape == unit.shape == (1,) and scale.dtype.kind == "f" \
            and unit.dtype.kind == "U" and 0 < scale[0] < np.inf:
        word = str(unit[0])[:12]
        return TimeAxis(float(scale[0]), WORDS.get(word, word)) if word.isprintable() and word else None
    if config is None or config.experiment not in HORIZONS or config.get("sample") in PROCESSES:
        return None
    known, word = HORIZONS[config.experiment]
    return TimeAxis(known, WORDS[word])


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
    """What the whole run's ranges and principal components need of one snapshot."""

    epoch: int
    shapes: dict[str, tuple[int, ...]]
    sketch: np.ndarray  # (rows, D): h of a few frames, all probes
    ranges: dict[str, Range]
    measure: tuple[float, float] | None  # smallest and largest value of the curves of attention
    row_distance: float | None  # of softmax(a) at the last frame, mean over the probes
    predictions: list[list[Any]] | None
    between_probes: float | None  # largest difference of a weight between probes at any time


def summarise(found: Snapshot, limits: Limits) -> SnapshotSummary:
    """Compute the ranges of a snapshot's maps and a sketch of its states."""
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
    measure = distance = None
    if "a" in arrays:
        a, kind = arrays["a"][:, :probes], attention.kind_of(arrays)
        curves = attention.curves(a, kind)
        measure = float(curves.min()), float(curves.max())
        if kind is attention.PAIRWISE and a.shape[-1] > 1:
            distance = float(attention.row_distance(attention.weights(a[-1:], kind, widest=a.shape[-1])).mean())
    return SnapshotSummary(found.epoch, {key: arrays[key].shape for key in ("t", "h", "a") if key in arrays},
                           h[some, :probes].reshape(len(some) * probes, -1), ranges, measure, distance,
                           predictions(arrays, probes), between_probes)


def probe_count(arrays: Arrays, limits: Limits) -> int:
    """Return how many probes are drawn."""
    return min(limits.probes, int(arrays["h"].shape[1]))


def is_named(arrays: Arrays) -> bool:
    """Return True if every coordinate of the state stands for a named variable."""
    return coordinate_names(arrays, arrays["h"].shape[-1]) is not None


def pictures(arrays: Arrays, limits: Limits, frames: list[int] | None = None) -> Arrays:
    """Return attention weights, influence and features of these frames (all if None) as float maps (T, P, …)."""
    probes, kind = probe_count(arrays, limits), attention.kind_of(arrays)
    chosen = slice(None) if frames is None else frames
    h = arrays["h"][chosen, :probes].astype(np.float32)
    found: Arrays = {}
    if kind is not None:
        a = arrays["a"][chosen, :probes].astype(np.float32)
        found["attention"] = attention.weights(a, kind, limits.side)
        if kind is attention.ELEMENTWISE:
            channels = attention.sigmoid(a[:, :, :limits.channels])
            found["attention_channels"] = attention.pooled(channels, limits.side)
    acts = arrays.get("influence")  # of named variables: |∂ḣ_i/∂h_j|, (T, P, V, V)
    if acts is not None and h.ndim == 3 and is_named(arrays) and acts.dtype.kind == "f" and np.isfinite(acts).all() \
            and acts.shape == (*arrays["h"].shape, h.shape[-1]) and 1 < h.shape[-1] <= limits.side:
        found["influence"] = acts[chosen, :probes].astype(np.float32)
    if h.ndim == 5:
        found["features"] = attention.pooled(h[:, :, :limits.channels], limits.side)
    elif h.ndim == 4:
        found["features"] = attention.pooled(h[:, :, None], limits.side)
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
