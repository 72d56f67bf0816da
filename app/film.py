"""The snapshots of a run as the browser's player needs them: one description, and one block of bytes for each epoch.

The block of an epoch is the length of a header (uint32, little-endian), the header (JSON: where each array begins,
counted from the header's end, its type and shape) and the arrays, each on a multiple of four bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from acenode import files
from acenode.errors import UserError
from acenode.experiments import EXPERIMENTS
from acenode.results import attention_maps, snapshots
from acenode.results.pca import principal
from acenode.results.training_curves import listed
from acenode.runs.store import Run

CHANNELS, SIDE, PROBES = 64, 64, 10  # at most; a wider map is averaged down
BLOCK_BYTES = 5_500_000  # of one epoch
CACHE_BYTES = 192_000_000  # of each cache
SKETCH_FRAMES, BASIS_EPOCHS = 5, 16  # what the principal components are found from
ALONE = "This method has no attention: h(t) evolves alone."


def meta(run: Run) -> dict[str, Any]:
    """What there is to play; `why` says why there is nothing."""
    with _LOCK:
        return dict(_reel(run).meta)


def frames(run: Run, epoch: int) -> bytes:
    """The arrays of one epoch, see above."""
    with _LOCK:
        reel = _reel(run)
        if epoch not in reel.files:
            raise UserError(f"{run.id} has no snapshot of epoch {epoch}")
        return _BLOCKS.get((str(run.path), reel.meta["version"], epoch), lambda: _block(run, reel, epoch))


# What is kept between two calls -------------------------------------------------------------------------------

T = TypeVar("T")
File = tuple[Path, files.Stamp]  # another value, another content


class Cache(Generic[T]):
    """The values used last, as many as fit into the bytes."""

    def __init__(self, size_of: Callable[[T], int]) -> None:
        self.size_of, self.bytes = size_of, 0
        self.values: OrderedDict[Any, T] = OrderedDict()

    def get(self, key: Any, make: Callable[[], T]) -> T:
        if key not in self.values:
            return self.put(key, make())
        self.values.move_to_end(key)
        return self.values[key]

    def put(self, key: Any, value: T) -> T:
        """Keep a value in place of what was there; one that is kept does not change its size."""
        if key in self.values:
            self.bytes -= self.size_of(self.values.pop(key))
        self.values[key] = value
        self.bytes += self.size_of(value)
        while self.bytes > CACHE_BYTES and len(self.values) > 1:
            self.bytes -= self.size_of(self.values.popitem(last=False)[1])
        return value


@dataclass(frozen=True)
class Digest:
    """What the whole run's ranges and principal components need of one snapshot; `note` where it cannot be drawn."""

    note: str | None
    epoch: int = 0
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    sketch: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))  # (rows, D): h of a few frames, all probes
    ranges: dict[str, tuple[float, float, float]] = field(default_factory=dict)  # low, high, largest change since t = 0
    change: float = 0.0
    opinion: list[list[Any]] | None = None


@dataclass(frozen=True)
class Reel:
    """A run as far as it has been recorded."""

    meta: dict[str, Any]
    files: dict[int, File] = field(default_factory=dict)
    frames: list[int] = field(default_factory=list)
    centre: np.ndarray = field(default_factory=lambda: np.zeros(0))  # (D,)
    basis: np.ndarray = field(default_factory=lambda: np.zeros((0, 2)))  # (D, 2)


_LOCK = threading.RLock()  # two tabs that ask at once: the second waits and finds what the first one made
_LOADED: Cache[snapshots.Snapshot | str] = Cache(
    lambda s: sum(x.nbytes for x in s.arrays.values()) if isinstance(s, snapshots.Snapshot) else 100)
_DIGESTS: Cache[Digest] = Cache(lambda d: d.sketch.nbytes + 1000)
_REELS: Cache[Reel] = Cache(lambda r: r.basis.nbytes + 100_000)
_BLOCKS: Cache[bytes] = Cache(len)
_BASES: Cache[np.ndarray] = Cache(lambda b: b.nbytes + 1000)  # the last one of each run


def _files(run: Run) -> list[File]:
    stamps = ((path, files.stamp(path)) for path in run.snapshots())
    return [(path, stamp) for path, stamp in stamps if stamp is not None]  # None: deleted meanwhile


def _load(run: Run, file: File) -> snapshots.Snapshot | str:
    """The snapshot, or why it cannot be drawn."""

    def make() -> snapshots.Snapshot | str:
        path, notes = file[0], list[str]()
        if not re.fullmatch(r"epoch-\d{1,9}", path.stem):
            return f"{path.name} is not a snapshot of an epoch and is left out."
        found = snapshots.load(run, path, notes)
        if found is None:
            return notes[0]
        for key in found.shapes:  # half precision stays as it is, anything longer becomes single
            if found.arrays[key].dtype != np.float16:
                with np.errstate(over="ignore"):
                    found.arrays[key] = found.arrays[key].astype(np.float32)
            if not np.isfinite(found.arrays[key]).all():
                return f"{path.name} has states that are too large and is left out."
        a = found.arrays.get("a")
        if a is not None and a.shape[:2] != found.arrays["h"].shape[:2]:
            return f"{path.name} has another number of frames in a(t) than in h(t) and is left out."
        return found

    return _LOADED.get(file, make)


# One run ------------------------------------------------------------------------------------------------------

def _reel(run: Run) -> Reel:
    found = _files(run)
    words = repr([(path.name, stamp) for path, stamp in found])
    version = hashlib.sha256(words.encode()).hexdigest()[:12]
    return _REELS.get((str(run.path), version), lambda: _make_reel(run, found, version))


def _make_reel(run: Run, found: list[File], version: str) -> Reel:
    digests = [_DIGESTS.get(file, lambda file=file: _digest(run, file)) for file in found]  # type: ignore[misc]
    notes = [d.note for d in digests if d.note is not None]
    good = {d.epoch: (d, file) for d, file in zip(digests, found, strict=True) if d.note is None}
    newest = good[max(good)][0] if good else None
    if newest is not None:
        other = [e for e, (d, _) in good.items() if d.shapes != newest.shapes]
        notes += [f"{good.pop(e)[1][0].name} has other shapes than the newest snapshot and is left out." for e in other]
    last = _load(run, good[max(good)][1]) if good else "nothing"
    if newest is None or isinstance(last, str):
        why = "No snapshot of this run can be drawn." if notes else "No snapshot has been taken yet."
        return Reel(_describe(version, notes, why=why))
    epochs = sorted(good)
    own = [good[e][0] for e in epochs]
    probes = _probes(last.arrays)
    kind = _kind(last.arrays)
    shown, parts = _shown(last.arrays, kind)
    centre, basis, pca = _plane(str(run.path), own)
    opinions = [d.opinion for d in own]
    image = snapshots.images(last.arrays, probes)
    ranges = {key: _whole([d.ranges[key] for d in own]) for key in newest.ranges}
    described = _describe(
        version, notes, classes=_classes(run), epochs=epochs, t=listed(last.arrays["t"][shown]), probes=probes,
        labels=snapshots.labels(last.arrays, probes), names=snapshots.names(last.arrays, probes),
        jumps=snapshots.jumps(last.arrays, probes), image=image and image | {"shape": list(image["shape"])},
        opinions=None if None in opinions else opinions, pca=pca, change_max=max(d.change for d in own),
        no_attention=None if kind else _missing(last.arrays),
        attention=_about_attention(kind, parts, ranges, last.arrays) if kind else None,
        features=_about_features(parts, ranges, last.arrays) if "features" in parts else None,
        state={"size": parts["state"][2], **_range(ranges["state"])} if "state" in parts else None)
    return Reel(described, {e: good[e][1] for e in epochs}, shown, centre, basis)


def _classes(run: Run) -> list[str] | None:
    """The classes' names, where the registry has any."""
    try:
        entry = EXPERIMENTS.get(run.config().experiment)
    except UserError:  # of another version
        return None
    return list(entry.classes) or None if entry else None


def _describe(version: str, notes: list[str], **values: Any) -> dict[str, Any]:
    nothing: dict[str, Any] = {
        "version": version, "epochs": [], "t": [], "probes": 0, "labels": None, "names": None, "jumps": None,
        "classes": None, "image": None, "opinions": None, "attention": None, "features": None, "state": None,
        "change_max": 0.0, "why": None, "pca": {"shares": [0.0, 0.0], "x": [-1.0, 1.0], "y": [-1.0, 1.0]},
        "notes": notes, "no_attention": None}
    return nothing | values


def _missing(arrays: dict[str, np.ndarray]) -> str:
    if "a" not in arrays:
        return ALONE
    shapes = [" × ".join(map(str, arrays[k].shape[2:])) for k in ("a", "h")]
    return f"Attention of shape {shapes[0]} on states of shape {shapes[1]} cannot be drawn as a map."


def _about_attention(kind: attention_maps.MapKind, parts: dict[str, tuple[int, ...]],
                     ranges: dict[str, tuple[float, float, float]], arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    channels = parts["attention_channels"][2] if "attention_channels" in parts else 0
    about = {"kind": kind.name, "title": kind.title, "rows": kind.rows, "columns": kind.columns,
             "shape": list(parts["attention"][2:]), "full": _full(arrays["a"]), "channels": channels,
             **_range(ranges["attention"]), "swing": ranges["attention"][2]}
    if channels:
        about["each"] = {**_range(ranges["attention_channels"]), "swing": ranges["attention_channels"][2],
                         "total": arrays["a"].shape[2]}
    return about


def _about_features(parts: dict[str, tuple[int, ...]], ranges: dict[str, tuple[float, float, float]],
                    arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    h = arrays["h"]
    return {"channels": parts["features"][2], "total": h.shape[2] if h.ndim == 5 else 1,
            "shape": list(parts["features"][3:]), "full": _full(h), **_range(ranges["features"])}


def _full(x: np.ndarray) -> list[int]:
    """Rows and columns before anything is averaged."""
    return [1 if x.ndim < 4 else x.shape[-2], x.shape[-1]]


def _range(found: tuple[float, float, float]) -> dict[str, float]:
    return {"low": found[0], "high": found[1]}


def _whole(found: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    """The range of all epochs, never empty."""
    low, high = min(f[0] for f in found), max(f[1] for f in found)
    if high - low < 1e-6:
        low, high = low - 0.005, high + 0.005
    return low, high, max(f[2] for f in found) or (high - low) / 255


def _plane(path: str, own: list[Digest]) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """One pair of principal components for all epochs, so that they can be compared."""
    few = own if len(own) <= BASIS_EPOCHS else [
        own[i] for i in np.rint(np.linspace(0, len(own) - 1, BASIS_EPOCHS)).astype(int)]
    rows = np.concatenate([d.sketch for d in few]).astype(np.float64)
    found, centre = principal(rows), rows.mean(0)
    squares = np.square(found.points).sum(0)
    real = squares > 1e-10 * max(squares.max(), 1e-300)  # an axis of rounding errors is none
    basis = (rows - centre).T @ found.points * real / np.where(real, squares, 1.0)  # XᵀXV = VΛ
    before = _BASES.values.get(path)
    if before is not None and before.shape == basis.shape:  # an axis has no sign of its own: what is watched stays
        basis *= np.where((before * basis).sum(0) < 0, -1.0, 1.0)
    _BASES.put(path, basis)
    points = np.concatenate([(d.sketch - centre) @ basis for d in own])
    low, high = points.min(0).tolist(), points.max(0).tolist()
    return centre, basis, {"shares": [float(f"{s:.5g}") for s in found.shares.tolist()],
                           "x": [low[0], high[0]], "y": [low[1], high[1]]}


# One snapshot -------------------------------------------------------------------------------------------------

def _digest(run: Run, file: File) -> Digest:
    found = _load(run, file)
    if isinstance(found, str):
        return Digest(found)
    arrays = found.arrays
    probes, h = _probes(arrays), arrays["h"]
    some = np.rint(np.linspace(0, len(h) - 1, min(SKETCH_FRAMES, len(h)))).astype(int)
    ranges = {}
    for key, x in _pictures(arrays, _kind(arrays)).items():
        if key in ("features", "state"):
            most = float(np.percentile(np.abs(x), 99.5)) or float(np.abs(x).max()) or 1.0
            ranges[key] = (-most, most, 0.0)
        else:
            ranges[key] = (float(x.min()), float(x.max()), float(np.abs(x - x[0]).max()))
    change = float(attention_maps.change(arrays["a"][:, :probes]).max()) if "a" in arrays else 0.0
    return Digest(None, found.epoch, found.shapes, h[some, :probes].reshape(len(some) * probes, -1), ranges, change,
                  snapshots.opinion(arrays, probes))


def _probes(arrays: dict[str, np.ndarray]) -> int:
    return min(PROBES, int(arrays["h"].shape[1]))


def _kind(arrays: dict[str, np.ndarray]) -> attention_maps.MapKind | None:
    return attention_maps.kind_of(arrays["h"], arrays["a"]) if "a" in arrays else None


def _pictures(arrays: dict[str, np.ndarray], kind: attention_maps.MapKind | None, only: list[int] | None = None
              ) -> dict[str, np.ndarray]:
    """Weights and features of these frames (T, P, …), in numbers that mean something."""
    probes, chosen = _probes(arrays), slice(None) if only is None else only
    h = arrays["h"][chosen, :probes].astype(np.float32)
    found: dict[str, np.ndarray] = {}
    if kind is not None:
        a = arrays["a"][chosen, :probes].astype(np.float32)
        found["attention"] = attention_maps.weights(a, kind, SIDE)
        if kind is attention_maps.ELEMENTWISE:
            found["attention_channels"] = attention_maps.pooled(attention_maps.sigmoid(a[:, :, :CHANNELS]), SIDE)
    if h.ndim == 5:
        found["features"] = attention_maps.pooled(h[:, :, :CHANNELS], SIDE)
    elif h.ndim == 4:
        found["features"] = attention_maps.pooled(h[:, :, None], SIDE)
    elif h.ndim == 3:
        found["state"] = h
    return found


def _shown(arrays: dict[str, np.ndarray],
           kind: attention_maps.MapKind | None) -> tuple[list[int], dict[str, tuple[int, ...]]]:
    """Which frames, and the shape of each array, so that an epoch stays under its bytes: fewer channels before fewer
    than a dozen frames."""
    count = len(arrays["t"])
    parts = {key: x.shape[1:] for key, x in _pictures(arrays, kind, [0]).items()}
    most = max((s[1] for key, s in parts.items() if len(s) == 4), default=1)

    def bytes_each(limit: int) -> int:
        cells = {key: (s[0], min(s[1], limit), *s[2:]) if len(s) == 4 else s for key, s in parts.items()}
        return sum(int(np.prod(s)) * (4 if key == "state" else 1) for key, s in cells.items()) + 12 * _probes(arrays)

    limit = most
    while limit > 1 and BLOCK_BYTES // bytes_each(limit) < min(count, 12):
        limit = -(-limit // 2)
    room = max(2, BLOCK_BYTES // bytes_each(limit))
    stride = max(1, -(-(count - 1) // (room - 1)))
    chosen = sorted({*range(0, count, stride), count - 1})
    return chosen, {key: (len(chosen), s[0], min(s[1], limit), *s[2:]) if len(s) == 4 else (len(chosen), *s)
                    for key, s in parts.items()}


def _block(run: Run, reel: Reel, epoch: int) -> bytes:
    found = _load(run, reel.files[epoch])
    if isinstance(found, str):
        raise UserError(found)
    arrays, about = found.arrays, reel.meta
    kind, probes = _kind(arrays), about["probes"]
    h = arrays["h"][reel.frames, :probes]
    flat = h.reshape(len(h) * probes, -1).astype(np.float64)
    parts: dict[str, np.ndarray] = {"pca": ((flat - reel.centre) @ reel.basis).reshape(len(h), probes, 2)}
    if "a" in arrays:
        parts["change"] = attention_maps.change(arrays["a"][reel.frames, :probes])
    for key, x in _pictures(arrays, kind, reel.frames).items():
        if key == "state":
            parts[key] = x
        elif key == "features":
            parts[key] = _levels(x[:, :, :about["features"]["channels"]], about["features"])
        elif key == "attention":
            parts[key] = _levels(x, about["attention"])
        else:
            parts[key] = _levels(x[:, :, :about["attention"]["channels"]], about["attention"]["each"])
    return _packed({k: v if v.dtype == np.uint8 else v.astype("<f4") for k, v in parts.items()},
                   version=about["version"], epoch=epoch)


def _levels(x: np.ndarray, scale: dict[str, Any]) -> np.ndarray:
    """256 levels between the run's low and high."""
    low, high = scale["low"], scale["high"]
    return np.asarray(np.clip(np.rint((x - low) * (255 / (high - low))), 0, 255), dtype=np.uint8)


def _packed(arrays: dict[str, np.ndarray], **header: Any) -> bytes:
    places, offset = {}, 0
    for name, x in arrays.items():
        places[name] = {"dtype": x.dtype.name, "shape": list(x.shape), "offset": offset}
        offset += -(-x.nbytes // 4) * 4
    head = json.dumps({**header, "arrays": places}).encode()
    head += b" " * (-len(head) % 4)
    body = b"".join(np.ascontiguousarray(x).tobytes() + bytes(-x.nbytes % 4) for x in arrays.values())
    return len(head).to_bytes(4, "little") + head + body
