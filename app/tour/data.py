"""What the pictures of the tour draw: small trained flows from a file, and h, softmax(a) and h′ of a recorded run."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from acenode.compare.colours import class_colour
from acenode.data.variables import SUBJECTS
from acenode.errors import UserError
from acenode.experiments import EXPERIMENTS
from acenode.player import attention, snapshots
from acenode.runs.entry import Entry

from ..home import recorded_choice
from .texts import SWAPS

FLOWS = Path(__file__).parents[1] / "assets" / "tour_flows.json"  # made by docs/make_tour.py
MIXING = 0.8  # largest weight of a row that mixes several coordinates
PREFERRED = ("physionet", "ushcn")  # experiments with pairwise attention; others follow


@cache
def flows() -> dict[str, Any]:
    """Return the trajectories of the trained flows, by name; `t` has their times."""
    found: dict[str, Any] = json.loads(FLOWS.read_text(encoding="utf-8"))
    return found


def flow() -> dict[str, Any]:
    """Return what the picture of step 1 draws."""
    return {"flow": {k: v for k, v in flows()["moons"].items() if k != "parameters"}}


def swaps() -> dict[str, Any]:
    """Return what the picture of step 2 draws: on a line, and with one more coordinate."""
    return {"swaps": [{"name": title, "h": flows()[name]["h"], "error": flows()[name]["error"]}
                      for name, title in SWAPS.items()]}


def pairwise_run(entries: list[Entry]) -> Entry | None:
    """Return a recorded run of ACE with evolving pairwise attention and snapshots, the preferred experiment first,
    and in it the run that `recorded_choice` puts first."""
    found = [e for e in entries if e.recorded and e.method == "ace" and e.config.get("attention") == "evolving"]
    found.sort(key=lambda e: (PREFERRED.index(e.experiment) if e.experiment in PREFERRED else len(PREFERRED),
                              recorded_choice.rank(e)))
    return next((e for e in found if _last(e) is not None), None)


def _last(entry: Entry) -> dict[str, np.ndarray] | None:
    """Return the arrays of a run's last snapshot, or None if it has no pairwise attention."""
    paths = entry.run.snapshots()
    found = snapshots.load(entry.run, paths[-1]) if paths else None
    if not isinstance(found, snapshots.Snapshot):
        return None
    return found.arrays if attention.kind_of(found.arrays) is attention.PAIRWISE else None


def attended(entry: Entry, start_at: float) -> dict[str, Any] | None:
    """Return what the picture of step 3 draws of a run: h, softmax(a) and h′ of all samples over time.

    Args:
        start_at: the share of the time at which the picture starts. The row that is marked then is one of the first
            sample that mixes several coordinates, and of these the one that attention changes most.
    """
    arrays = _last(entry)
    if arrays is None:
        return None
    h = arrays["h"].astype(np.float32)  # (T, B, d)
    weights = softmax(arrays["a"])  # (T, B, d, d)
    mixed = mix(weights, h)
    top = float(weights.max())
    frames, samples, size = h.shape
    start = round(start_at * (frames - 1))
    mixes = weights[start, 0].max(-1) < MIXING
    changes = np.abs(mixed - h)[start, 0] * (mixes if mixes.any() else 1)
    return {"row": int(changes.argmax()), "attend": {
        "frames": frames, "samples": samples, "size": size, "top": top, "subject": subject(entry).capitalize(),
        "time": _time(entry, arrays),
        "reach": float(max(np.abs(h).max(), np.abs(mixed).max())),
        "h": snapshots.to_base64(h.astype("<f4")), "attended": snapshots.to_base64(mixed.astype("<f4")),
        "weights": snapshots.to_base64(np.rint(weights * (255 / top)).astype(np.uint8)),
        **_samples(entry, arrays, samples)}}


def _time(entry: Entry, arrays: dict[str, np.ndarray]) -> dict[str, Any] | None:
    """Return the first and last time of a snapshot in real time, with its unit, as the player shows it; or None."""
    try:
        axis = snapshots.time_axis(entry.run.config(), arrays)
    except UserError:  # written by another version
        return None
    return None if axis is None else {"ends": [float(arrays["t"][i]) * axis.scale for i in (0, -1)], "unit": axis.unit}


def subject(entry: Entry | None) -> str:
    """Return what the samples of a run are, as in the player: patient, station, or sample if that is not known."""
    return SUBJECTS.get(entry.experiment, "sample") if entry else "sample"


def softmax(a: np.ndarray) -> np.ndarray:
    """Return the weights of the attention logits; each row sums to one."""
    return attention.weights(a, attention.PAIRWISE, widest=a.shape[-1])


def mix(weights: np.ndarray, h: np.ndarray) -> np.ndarray:
    """Return h′ (T, B, d): coordinate i is the average of h with the weights of row i (Eq. 4)."""
    return np.asarray((weights @ h[..., None])[..., 0])


def _samples(entry: Entry, arrays: dict[str, np.ndarray], count: int) -> dict[str, Any]:
    """Return a name for each sample, and a colour where they have classes."""
    names, labels = snapshots.names(arrays, count), snapshots.labels(arrays, count)
    classes = EXPERIMENTS[entry.experiment].classes
    if names is None and labels is not None and classes:
        return {"names": [f"{i + 1}: {classes[k]}" for i, k in enumerate(labels)],
                "colours": [class_colour(k) for k in labels]}
    return {"names": names or [str(i + 1) for i in range(count)], "colours": None}
