"""The snapshots of a run as a trajectory player needs them: a few epochs and frames, small enough for one page."""

from __future__ import annotations

import re
import zipfile
from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from acenode.errors import UserError
from acenode.export import maps
from acenode.export.curves import listed
from acenode.export.pca import principal
from acenode.runs import Run

EPOCHS, FRAMES, PROBES = 6, 25, 10  # at most
MAP_BYTES = 1_500_000  # of all attention maps together


@dataclass
class Player:
    """What the page plays, and why parts of it are missing."""

    data: dict[str, Any] | None
    empty: str | None = None  # why there is nothing at all
    no_attention: str | None = None  # why there are no maps
    no_image: str | None = None  # why there is no input to show
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Snapshot:
    epoch: int
    arrays: dict[str, np.ndarray]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {k: self.arrays[k].shape for k in ("t", "h", "a") if k in self.arrays}


def gather(run: Run) -> Player:
    notes: list[str] = []
    chosen = [s for path in _spread(run.snapshots(), EPOCHS) if (s := _load(run, path, notes)) is not None]
    chosen = [s for s in chosen if s.shapes == chosen[-1].shapes]
    if not chosen:
        why = "No snapshot of this run can be drawn." if notes else "No snapshot has been taken yet."
        return Player(None, empty=why, notes=notes)
    last, probes = chosen[-1].arrays, min(PROBES, chosen[-1].arrays["h"].shape[1])
    kind = maps.kind_of(last["h"], last["a"]) if "a" in last else None
    frames = _frames(len(last["t"]), len(chosen) * probes * _cells(last, kind))
    h, a = (np.stack([s.arrays[k][frames, :probes] for s in chosen]) if k in last else None for k in ("h", "a"))
    assert h is not None  # (E, T, P, …)
    data: dict[str, Any] = {
        "epochs": [s.epoch for s in chosen], "t": listed(last["t"][frames]), "probes": probes,
        "labels": _labels(last, probes), "image": _images(last, probes), "opinions": _opinions(chosen, probes),
        "pca": _plane(h), "attention": _attention(a, kind) if a is not None and kind is not None else None,
    }
    missing = None
    if a is None:
        missing = "This method has no attention a(t): h(t) evolves alone."
    elif kind is None:
        missing = f"Attention of shape {a.shape[3:]} on states of shape {h.shape[3:]} cannot be drawn as a map."
    return Player(data, no_attention=missing, notes=notes,
                  no_image=None if data["image"] else "The probes of this experiment are not images.")


def _spread(items: list[Any], most: int) -> list[Any]:
    """At most so many of the items, evenly, with the first and the last."""
    if len(items) <= most:
        return items
    return [items[i] for i in np.rint(np.linspace(0, len(items) - 1, most)).astype(int)]


def _frames(count: int, bytes_each: int) -> list[int]:
    """Which frames: every one, every second …, so that the times stay evenly spaced, and the last one."""
    most = int(np.clip(MAP_BYTES // max(bytes_each, 1), 2, FRAMES))
    stride = max(1, -(-(count - 1) // (most - 1)))
    return sorted({*range(0, count, stride), count - 1})


def _load(run: Run, path: Path, notes: list[str]) -> Snapshot | None:
    """The snapshot, unless it is torn, foreign or not finite: then a note says so."""
    try:
        arrays = run.snapshot(path)
    except (UserError, zipfile.BadZipFile):
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


def _cells(arrays: dict[str, np.ndarray], kind: maps.Kind | None) -> int:
    """Bytes of one map."""
    return int(np.prod(maps.weights(arrays["a"][:1, :1], kind).shape)) if kind else 0


def _plane(h: np.ndarray) -> dict[str, Any]:
    """h of all epochs, frames and probes in one pair of principal components, so that epochs can be compared."""
    found = principal(h.reshape(int(np.prod(h.shape[:3])), -1))
    return {"x": listed(found.points[:, 0]), "y": listed(found.points[:, 1]), "shares": listed(found.shares)}


def _attention(a: np.ndarray, kind: maps.Kind) -> dict[str, Any]:
    """Quantised maps, bytes in the order epoch, frame, probe, row, column; and how far a(t) is from a(0)."""
    levels, low, high = maps.quantised(np.stack([maps.weights(x, kind) for x in a]))
    return {"title": kind.title, "rows": kind.rows, "columns": kind.columns, "low": low, "high": high,
            "shape": levels.shape[3:], "maps": _text(levels),
            "change": listed(np.stack([maps.change(x) for x in a]).ravel())}


def _labels(arrays: dict[str, np.ndarray], probes: int) -> list[int] | None:
    label = arrays.get("label")
    if label is None or label.ndim != 1 or len(label) < probes or label.dtype.kind not in "iu":
        return None
    return [int(x) for x in label[:probes]]


def _images(arrays: dict[str, np.ndarray], probes: int) -> dict[str, Any] | None:
    """The probes' pixels, channels last."""
    image = arrays.get("image")
    if image is None or image.dtype != np.uint8 or image.ndim != 4:
        return None
    if image.shape[1] not in (1, 3) or len(image) < probes:
        return None
    return {"shape": image.shape[1:], "pixels": _text(image[:probes].transpose(0, 2, 3, 1))}


def _opinions(chosen: list[Snapshot], probes: int) -> list[Any] | None:
    """What the model takes each probe for after each epoch, and how surely: epoch, probe, [class, probability]."""
    found = []
    for s in chosen:
        logits = s.arrays.get("logits")
        if logits is None or logits.ndim != 2 or len(logits) < probes or not np.isfinite(logits).all():
            return None
        e = np.exp(logits[:probes].astype(np.float64) - logits[:probes].max(1, keepdims=True))
        p = e / e.sum(1, keepdims=True)
        found.append([[int(row.argmax()), round(float(row.max()), 4)] for row in p])
    return found


def _text(values: np.ndarray) -> str:
    return b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")
