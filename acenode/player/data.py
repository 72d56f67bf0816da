"""The snapshots of a run as the trajectory player reads them: one description, and one block of bytes for each epoch.

A block is the length of a header (uint32, little-endian), the header (JSON: type, shape and offset of each array,
counted from the end of the header) and the arrays, each aligned to four bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import threading
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from acenode import files
from acenode.errors import UserError
from acenode.player import attention, description, snapshots
from acenode.player.snapshots import (
    Arrays,
    Limits,
    Snapshot,
    SnapshotSummary,
    choose_frames,
    pictures,
    probe_count,
    summarise,
)
from acenode.runs.process import within_limit
from acenode.runs.store import Run

BASIS_EPOCHS = 16  # epochs from which principal components are computed
SERVED = Limits()
EMBEDDED = Limits(epochs=6, frames=25, channels=16, side=40)
EMBEDDED_BYTES = 2_400_000  # of all epochs in one page

File = tuple[Path, files.Stamp]  # the stamp changes with the content
T = TypeVar("T")


class ByteCache(Generic[T]):
    """Keep the values used last, up to a number of bytes; the newest value always stays."""

    def __init__(self, size_of: Callable[[T], int], limit: int) -> None:
        self.size_of, self.limit = size_of, limit
        self.values: dict[Any, T] = {}  # used last comes last

    def get(self, key: Any, make: Callable[[], T]) -> T:
        """Return the value of a key, made if it is not in the cache."""
        value = self.values.pop(key) if key in self.values else make()
        self.values[key] = value
        while len(self.values) > 1 and sum(map(self.size_of, self.values.values())) > self.limit:
            del self.values[next(iter(self.values))]
        return value


@dataclass(frozen=True)
class PlayerRecording:
    """The snapshots that a run has so far: their description for the player, and how their arrays are made."""

    description: dict[str, Any]
    files: dict[int, File] = field(default_factory=dict)  # by epoch
    frames: list[int] = field(default_factory=list)
    centre: np.ndarray = field(default_factory=lambda: np.zeros(0))  # (D,)
    basis: np.ndarray = field(default_factory=lambda: np.zeros((0, 2)))  # (D, 2)


def _cache_bytes() -> int:
    """Return the memory that all caches together may use: ACENODE_CACHE_MB, or 150 MB."""
    given = os.environ.get("ACENODE_CACHE_MB", "")
    return 1_000_000 * (int(given) if given.isascii() and given.isdigit() else 150)


_LOCK = threading.RLock()  # of two requests at once the second waits and finds the result of the first
_PART = _cache_bytes() // 10
_LOADED: ByteCache[Snapshot | str] = ByteCache(
    lambda s: sum(x.nbytes for x in s.arrays.values()) if isinstance(s, Snapshot) else 100, 7 * _PART)
_SUMMARIES: ByteCache[SnapshotSummary | str] = ByteCache(
    lambda s: 100 if isinstance(s, str) else s.sketch.nbytes + 1000, 2 * _PART)
_RECORDINGS: ByteCache[PlayerRecording] = ByteCache(lambda r: r.basis.nbytes + 100_000, _PART)


def describe(run: Run, limits: Limits = SERVED) -> dict[str, Any]:
    """Describe the snapshots of a run; `why` says why none can be played."""
    try:
        found = _files(run)
    except UserError as error:
        return _nothing("", [], str(error))
    with _LOCK:
        return dict(_recording(run, found, limits).description)


def epoch_block(run: Run, epoch: int, limits: Limits = SERVED) -> bytes:
    """Return the arrays of one epoch as a block of bytes; a UserError says that the run has none that can be read."""
    listed = _files(run)
    with _LOCK:
        found = _recording(run, listed, limits)
        if epoch not in found.files:
            raise UserError(f"{run.id} has no snapshot of epoch {epoch}")
        return _block(run, found, epoch, limits)


def embed(run: Run) -> dict[str, Any]:
    """Return a description and all blocks, in base64, small enough to be part of one page."""
    few = min(len(run.snapshots()), EMBEDDED.epochs or 1)
    limits = dataclasses.replace(EMBEDDED, epoch_bytes=EMBEDDED_BYTES // max(few, 1))
    about = describe(run, limits)
    return {"description": about, "blocks": {
        epoch: b64encode(epoch_block(run, epoch, limits)).decode("ascii") for epoch in about["epochs"]}}


def _load(run: Run, file: File) -> Snapshot | str:
    return _LOADED.get(file, lambda: snapshots.load(run, file[0]))


def _summary(run: Run, file: File, limits: Limits) -> SnapshotSummary | str:
    def make() -> SnapshotSummary | str:
        loaded = _load(run, file)
        return loaded if isinstance(loaded, str) else summarise(loaded, limits)

    return _SUMMARIES.get((file, limits), make)


def _files(run: Run) -> list[File]:
    """List the snapshot files. Raise a UserError if they do not answer: to wait for them would stop every player."""
    try:
        stamps = within_limit(run.path, lambda: [(path, files.stamp(path)) for path in run.snapshots()])
    except TimeoutError as error:
        raise UserError(f"The snapshots of this run cannot be read: {error.strerror}.") from None
    return [(path, stamp) for path, stamp in stamps if stamp is not None]  # None: deleted since


def _recording(run: Run, found: list[File], limits: Limits) -> PlayerRecording:
    names = repr([(path.name, stamp) for path, stamp in found])
    version = hashlib.sha256(names.encode()).hexdigest()[:12]
    return _RECORDINGS.get((str(run.path), limits, version),
                           lambda: _make_recording(run, _spread(found, limits.epochs), version, limits))


def _spread(items: list[Any], most: int | None) -> list[Any]:
    """Return at most so many items, evenly spaced, with the first and the last."""
    if most is None or len(items) <= most:
        return items
    return [items[i] for i in np.rint(np.linspace(0, len(items) - 1, most)).astype(int)]


def _make_recording(run: Run, found: list[File], version: str, limits: Limits) -> PlayerRecording:
    summaries = [_summary(run, file, limits) for file in found]
    notes = [one for one in summaries if isinstance(one, str)]
    good = {one.epoch: (one, file) for one, file in zip(summaries, found, strict=True) if not isinstance(one, str)}
    newest = good[max(good)][0] if good else None
    if newest is not None:
        other = [e for e, (s, _) in good.items() if s.shapes != newest.shapes]
        notes += [f"{good.pop(e)[1][0].name} has other shapes than the newest snapshot and is left out." for e in other]
    last = _load(run, good[max(good)][1]) if good else "nothing"
    if isinstance(last, str):
        why = ("No snapshot of this run can be drawn." if notes else
               "The snapshots of this recorded run were not kept. Another seed or fold of the same settings has some."
               if run.recorded else "No snapshot has been taken yet.")
        return PlayerRecording(_nothing(version, notes, why))
    epochs = sorted(good)
    own = [good[e][0] for e in epochs]
    frames, parts = choose_frames(last.arrays, limits)
    centre, basis, pca = _plane((str(run.path), limits), own)
    probes = probe_count(last.arrays, limits)
    about = description.describe(version, notes, snapshots.config_of(run), own, last.arrays, probes, parts, pca=pca,
                                 t=[float(f"{v:.5g}") for v in last.arrays["t"][frames].tolist()])
    return PlayerRecording(about, {e: good[e][1] for e in epochs}, frames, centre, basis)


def _nothing(version: str, notes: list[str], why: str) -> dict[str, Any]:
    """Describe a run without a snapshot that can be played."""
    return {"version": version, "notes": notes, "why": why, "epochs": [], "probes": 0}


def _plane(key: Any, own: list[SnapshotSummary]) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Compute one pair of principal components for all epochs, so that they can be compared."""
    rows = np.concatenate([s.sketch for s in _spread(own, BASIS_EPOCHS)]).astype(np.float64)
    centre = rows.mean(0)
    basis, shares = principal(rows - centre)
    for other, recording in _RECORDINGS.values.items():  # keep the sign of each axis while a run is watched
        if other[:2] == key and recording.basis.shape == basis.shape:
            basis *= np.where((recording.basis * basis).sum(0) < 0, -1.0, 1.0)
    points = np.concatenate([(s.sketch - centre) @ basis for s in own])
    low, high = points.min(0).tolist(), points.max(0).tolist()
    return centre, basis, {"shares": [float(f"{s:.5g}") for s in shares.tolist()],
                           "x": [low[0], high[0]], "y": [low[1], high[1]]}


def principal(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first two principal axes (D, 2) of centred data x (N, D), and their shares of the variance.

    They come from the smaller of XᵀX and XXᵀ. An axis that holds only rounding errors is zero.
    """
    wide = x.shape[1] > x.shape[0]
    values, vectors = np.linalg.eigh(x @ x.T if wide else x.T @ x)  # ascending
    squares, axes = values[::-1][:2], vectors[:, ::-1][:, :2]
    real = squares > 1e-10 * max(squares[0], 1e-300)
    if wide:
        axes = x.T @ axes / np.sqrt(np.where(real, squares, 1.0))
    axes = np.pad(axes * real, ((0, 0), (0, 2 - len(squares))))  # data with one coordinate has no second component
    points = x @ axes
    farthest = np.take_along_axis(points, np.abs(points).argmax(0)[None], 0)[0]
    total = np.square(x).sum()
    return axes * np.where(farthest < 0, -1.0, 1.0), np.square(points).sum(0) / (total or 1.0)  # the sign is arbitrary


def _block(run: Run, recording: PlayerRecording, epoch: int, limits: Limits) -> bytes:
    found = _load(run, recording.files[epoch])
    if isinstance(found, str):
        raise UserError(found)
    arrays, about = found.arrays, recording.description
    probes, frames = about["probes"], recording.frames
    h = arrays["h"][frames, :probes]
    flat = h.reshape(len(h) * probes, -1).astype(np.float64)
    parts: Arrays = {"pca": ((flat - recording.centre) @ recording.basis).reshape(len(h), probes, 2)}
    if "a" in arrays:
        parts["measure"] = attention.curves(arrays["a"][frames, :probes], attention.kind_of(arrays))
    for key, x in pictures(arrays, limits, frames).items():
        if about[key] is not None:
            shown = x[:, :, :about[key]["shape"][0]]
            parts[key] = shown if key == "state" else _levels(shown, about[key])
    return _packed({k: v if v.dtype == np.uint8 else v.astype("<f4") for k, v in parts.items()},
                   version=about["version"], epoch=epoch)


def _levels(x: np.ndarray, scale: dict[str, Any]) -> np.ndarray:
    low, high = scale["low"], scale["high"]
    return np.asarray(np.clip(np.rint((x - low) * (255 / (high - low))), 0, 255), dtype=np.uint8)


def _packed(arrays: Arrays, **header: Any) -> bytes:
    places, offset = {}, 0
    for name, x in arrays.items():
        places[name] = {"dtype": x.dtype.name, "shape": list(x.shape), "offset": offset}
        offset += -(-x.nbytes // 4) * 4
    head = json.dumps({**header, "arrays": places}).encode()
    head += b" " * (-len(head) % 4)
    body = b"".join(np.ascontiguousarray(x).tobytes() + bytes(-x.nbytes % 4) for x in arrays.values())
    return len(head).to_bytes(4, "little") + head + body

