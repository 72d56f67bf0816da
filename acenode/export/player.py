"""The snapshots of a run as a trajectory player needs them: a few epochs and frames, small enough for one page."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from acenode.results import attention_maps
from acenode.results.pca import principal
from acenode.results.snapshots import Snapshot, images, jumps, labels, load, names, opinion, text
from acenode.results.training_curves import listed
from acenode.runs.store import Run

EPOCHS, FRAMES, PROBES = 6, 25, 10  # at most
MAP_BYTES = 1_500_000  # of all attention maps together


@dataclass
class Player:
    """What the page plays, and why parts of it are missing."""

    data: dict[str, Any] | None
    empty: str | None = None  # why there is nothing at all
    no_attention: str | None = None  # why there are no maps
    notes: list[str] = field(default_factory=list)


def gather(run: Run) -> Player:
    notes: list[str] = []
    chosen = [s for path in _spread(run.snapshots(), EPOCHS) if (s := load(run, path, notes)) is not None]
    chosen = [s for s in chosen if s.shapes == chosen[-1].shapes]
    if not chosen:
        why = "No snapshot of this run can be drawn." if notes else "No snapshot has been taken yet."
        return Player(None, empty=why, notes=notes)
    last, probes = chosen[-1].arrays, min(PROBES, chosen[-1].arrays["h"].shape[1])
    kind = attention_maps.kind_of(last["h"], last["a"]) if "a" in last else None
    frames = _frames(len(last["t"]), len(chosen) * probes * _cells(last, kind))
    h, a = (np.stack([s.arrays[k][frames, :probes] for s in chosen]) if k in last else None for k in ("h", "a"))
    assert h is not None  # (E, T, P, …)
    data: dict[str, Any] = {
        "epochs": [s.epoch for s in chosen], "t": listed(last["t"][frames]), "probes": probes,
        "labels": labels(last, probes), "names": names(last, probes), "jumps": jumps(last, probes),
        "image": images(last, probes), "opinions": _opinions(chosen, probes), "pca": _plane(h), "state": _state(h),
        "attention": _attention(a, kind) if a is not None and kind is not None else None,
    }
    missing = None
    if a is None:
        missing = "This method has no attention a(t): h(t) evolves alone."
    elif kind is None:
        missing = f"Attention of shape {a.shape[3:]} on states of shape {h.shape[3:]} cannot be drawn as a map."
    return Player(data, no_attention=missing, notes=notes)


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


def _cells(arrays: dict[str, np.ndarray], kind: attention_maps.MapKind | None) -> int:
    """Bytes of one map."""
    return int(np.prod(attention_maps.weights(arrays["a"][:1, :1], kind).shape)) if kind else 0


def _plane(h: np.ndarray) -> dict[str, Any]:
    """h of all epochs, frames and probes in one pair of principal components, so that epochs can be compared."""
    found = principal(h.reshape(int(np.prod(h.shape[:3])), -1))
    return {"x": listed(found.points[:, 0]), "y": listed(found.points[:, 1]), "shares": listed(found.shares)}


def _state(h: np.ndarray) -> dict[str, Any] | None:
    """h itself where it is a vector: 255 levels around nothing, bytes in the order epoch, frame, probe, coordinate."""
    if h.ndim != 4 or h.size > MAP_BYTES:
        return None
    size = np.abs(h.astype(np.float32))
    most = float(np.percentile(size, 99.5)) or float(size.max()) or 1.0
    return {"size": h.shape[-1], "most": most,
            "levels": text(np.rint(127 + 127 * np.clip(h.astype(np.float32) / most, -1, 1)).astype(np.uint8))}


def _attention(a: np.ndarray, kind: attention_maps.MapKind) -> dict[str, Any]:
    """Quantised maps, bytes in the order epoch, frame, probe, row, column; and how far a(t) is from a(0)."""
    levels, low, high = attention_maps.quantised(np.stack([attention_maps.weights(x, kind) for x in a]))
    return {"title": kind.title, "rows": kind.rows, "columns": kind.columns, "low": low, "high": high,
            "shape": levels.shape[3:], "maps": text(levels),
            "change": listed(np.stack([attention_maps.change(x) for x in a]).ravel())}


def _opinions(chosen: list[Snapshot], probes: int) -> list[Any] | None:
    """What the model takes each probe for after each epoch; None unless every epoch says."""
    found = [opinion(s.arrays, probes) for s in chosen]
    return None if None in found else found
