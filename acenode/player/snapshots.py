"""Snapshots for drawing: read with checks, and what they say of their probes."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from acenode.runs.store import Run

JUMPS, NAME = 2000, 40  # most jumps of a probe, and characters of its name, that are shown


@dataclass(frozen=True)
class Snapshot:
    """The arrays of one snapshot."""

    epoch: int
    arrays: dict[str, np.ndarray]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {k: self.arrays[k].shape for k in ("t", "h", "a") if k in self.arrays}


def load(run: Run, path: Path, notes: list[str]) -> Snapshot | None:
    """Read a snapshot; if it is damaged, malformed or not finite, add a note and return None."""
    try:
        arrays = run.snapshot(path)
    except Exception:  # a damaged archive fails in many ways: zlib, struct, memory for an absurd shape …
        notes.append(f"{path.name} cannot be read.")
        return None
    t, h, a = (arrays.get(k) for k in ("t", "h", "a"))
    drawable = t is not None and h is not None and t.ndim == 1 and h.ndim >= 3 and h.size > 0 and len(t) == len(h)
    if not drawable or any(x is not None and x.dtype.kind not in "fiu" for x in (t, h, a)):
        notes.append(f"{path.name} holds no states over time.")
        return None
    if not all(np.isfinite(x).all() for x in (t, h, a) if x is not None):
        notes.append(f"{path.name} has states that are not finite and is left out.")
        return None
    epoch = re.fullmatch(r"epoch-(\d{1,9})", path.stem)
    return Snapshot(int(epoch[1]) if epoch else 0, arrays)


def labels(arrays: dict[str, np.ndarray], probes: int) -> list[int] | None:
    """Return the class of each probe, or None."""
    label = arrays.get("label")
    if label is None or label.ndim != 1 or len(label) < probes or label.dtype.kind not in "iu":
        return None
    return [int(x) for x in label[:probes]]


def names(arrays: dict[str, np.ndarray], probes: int, longest: int | None = NAME) -> list[str] | None:
    """Return the names of the probes, such as stations, cut to `longest`; a probe without a name gets a number."""
    name = arrays.get("name")
    if name is None or name.ndim != 1 or len(name) < probes or name.dtype.kind != "U":
        return None
    try:
        found = ["".join(c for c in str(x)[:longest] if c.isprintable()).strip() for x in name[:probes]]
    except (ValueError, SystemError):  # not valid characters
        return None
    return [x or f"sample {i + 1}" for i, x in enumerate(found)] if any(found) else None


def coordinate_names(arrays: dict[str, np.ndarray], size: int, longest: int | None = NAME) -> list[str] | None:
    """Return the names of the state's coordinates, cut to `longest`, if each stands for a variable."""
    found = arrays.get("coordinate")
    if found is None or found.shape != (size,) or found.dtype.kind != "U":
        return None
    return names({"name": found}, size, longest)


def jumps(arrays: dict[str, np.ndarray], probes: int) -> list[list[float]] | None:
    """Return the times at which each probe's state jumped, within the range of t. Rows are padded with NaN."""
    found, t = arrays.get("jumps"), arrays["t"]
    if found is None or found.ndim != 2 or len(found) < probes or found.dtype.kind != "f":
        return None
    shown = [np.unique(row[(row >= t.min()) & (row <= t.max())])[:JUMPS] for row in found[:probes]]
    return [[float(f"{x:.6g}") for x in row] for row in shown] if any(len(row) for row in shown) else None


def images(arrays: dict[str, np.ndarray], probes: int) -> dict[str, Any] | None:
    """Return the probes' images in base64, channels last."""
    image = arrays.get("image")
    if image is None or image.dtype != np.uint8 or image.ndim != 4:
        return None
    if image.shape[1] not in (1, 3) or len(image) < probes:
        return None
    return {"shape": image.shape[1:], "pixels": to_base64(image[:probes].transpose(0, 2, 3, 1))}


def predictions(arrays: dict[str, np.ndarray], probes: int) -> list[list[Any]] | None:
    """Return the predicted class of each probe and its probability."""
    logits = arrays.get("logits")
    if logits is None or logits.ndim != 2 or len(logits) < probes or logits.dtype.kind != "f":
        return None
    if logits.shape[1] == 0 or not np.isfinite(logits).all():
        return None
    e = np.exp(logits[:probes].astype(np.float64) - logits[:probes].max(1, keepdims=True))
    p = e / e.sum(1, keepdims=True)
    return [[int(row.argmax()), round(float(row.max()), 4)] for row in p]


def to_base64(values: np.ndarray) -> str:
    return b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")
