"""The parts of a run's description for the trajectory player: what its snapshots hold, in words and ranges."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from acenode.config import Config
from acenode.data.images import IMAGE_SOURCES
from acenode.data.variables import SUBJECTS, subject_name
from acenode.experiments import find
from acenode.player import attention_maps, attention_measure, collapse, snapshots
from acenode.player import snapshot as player_snapshot
from acenode.player.snapshot import Arrays, Range, SnapshotSummary
from acenode.player.time_axis import TimeAxis

INFLUENCE = ("Influence (|∂ḣ_i/∂h_j|), row i: how strongly the state of each other variable j changes the derivative "
             "of variable i. A variable's influence on itself is left out")
HARDLY = 0.02  # of the largest weight: changes below it cannot be seen in the maps
NO_ATTENTION = "This method has no attention: the state h(t) evolves alone."


def classes(config: Config | None) -> list[str] | None:
    """Return the names of the classes, if they have other names than their numbers: those of the data used."""
    if config is None:
        return None
    if config.data == "full" and config.experiment in IMAGE_SOURCES:
        return list(IMAGE_SOURCES[config.experiment].classes)
    entry = find(config.experiment)
    return list(entry.classes) or None if entry else None


def subject(config: Config | None) -> str:
    """Return what the probes are: patient, station or window of a recording; sample if that is not known."""
    return SUBJECTS.get(config.experiment, "sample") if config else "sample"


def names(config: Config | None, arrays: Arrays, probes: int) -> list[str] | None:
    """Return what the probes are called, such as `patient 132539`."""
    found, kind = snapshots.names(arrays, probes), subject(config)
    return None if found is None else [name if kind == "sample" else subject_name(kind, name) for name in found]


def row_name(arrays: Arrays) -> str:
    """Return what a row of pairwise attention stands for."""
    return "variable" if player_snapshot.is_named(arrays) else "coordinate"


def equal_rows(own: list[SnapshotSummary], arrays: Arrays, axis: TimeAxis | None) -> list[str]:
    """Return a note for each snapshot in which the rows of softmax(a) are equal at the end, else an empty text."""
    what = row_name(arrays)
    end = float(arrays["t"][-1])
    time = f"{end:.3g}" if axis is None else f"{end * axis.scale:.4g} {axis.unit}"
    return [collapse.note(s.row_distance, what, f"at the end (t = {time})") for s in own]


def steady(own: list[SnapshotSummary], kind: str) -> list[str]:
    """Say of each snapshot whether its attention hardly changes with t or between probes; else an empty text.

    Args:
        own: the summaries of all snapshots, in order.
        kind: what a probe is, such as `patient`.
    """
    found = [_steady(s, kind) for s in own]
    if len(set(found)) == 1:
        return [f"In this run {text}." if text else "" for text in found]
    return [text and f"{'Before training' if s.epoch == 0 else f'After epoch {s.epoch}'} {text}."
            for s, text in zip(own, found, strict=True)]


def _steady(summary: SnapshotSummary, kind: str) -> str:
    _, largest, over_time = summary.ranges.get("attention", (0.0, 0.0, 1.0))
    if over_time > HARDLY * largest:
        return ""
    between = summary.between_probes
    alike = between is not None and between <= HARDLY * largest
    return "the attention hardly changes with t" + f", and hardly differs between {kind}s" * alike


def whole(version: str, notes: list[str], **values: Any) -> dict[str, Any]:
    """Return a description with these values, and defaults for what a run does not have."""
    empty: dict[str, Any] = {
        "version": version, "epochs": [], "t": [], "probes": 0, "labels": None, "subject": "sample", "names": None,
        "jumps": None, "classes": None, "image": None, "predictions": None, "attention": None, "features": None,
        "named": False, "influence": None, "state": None, "measure": None, "time": None, "equal_rows": [], "steady": [],
        "why": None, "notes": notes, "no_attention": None,
        "pca": {"shares": [0.0, 0.0], "x": [-1.0, 1.0], "y": [-1.0, 1.0]}}
    return empty | values


def no_attention(arrays: Arrays) -> str:
    """Say why there are no maps of the attention."""
    if "a" not in arrays:
        return NO_ATTENTION
    shapes = [" × ".join(map(str, arrays[k].shape[2:])) for k in ("a", "h")]
    return f"Attention of shape {shapes[0]} on states of shape {shapes[1]} cannot be drawn as a map."


def attention(kind: attention_maps.MapKind, parts: dict[str, tuple[int, ...]], ranges: dict[str, Range],
              arrays: Arrays) -> dict[str, Any]:
    """Describe the maps of the attention."""
    channels = parts["attention_channels"][2] if "attention_channels" in parts else 0
    about: dict[str, Any] = {
        "kind": kind.name, "title": kind.title, "rows": kind.rows, "columns": kind.columns,
        "shape": list(parts["attention"][2:]), "full": full_size(arrays["a"]), "channels": channels, "names": None,
        **ends(ranges["attention"]), "largest_change": ranges["attention"][2]}
    if kind is attention_maps.PAIRWISE and about["shape"] == about["full"]:
        about["names"] = snapshots.coordinate_names(arrays, about["shape"][0])
    if channels:
        about["each"] = {**ends(ranges["attention_channels"]), "largest_change": ranges["attention_channels"][2],
                         "total": arrays["a"].shape[2]}
    return about


def influence(ranges: dict[str, Range], arrays: Arrays) -> dict[str, Any]:
    """Describe the maps of the influence between named variables."""
    size = full_size(arrays["influence"])
    return {"kind": "influence", "title": INFLUENCE, "rows": "i", "columns": "j", "shape": size, "full": size,
            "names": snapshots.coordinate_names(arrays, size[0]), **ends(ranges["influence"]),
            "largest_change": ranges["influence"][2]}


def measure(arrays: Arrays, own: list[SnapshotSummary]) -> dict[str, Any] | None:
    """Describe the curve of attention over time: its words, and a range that has the reference in it."""
    values = [end for s in own if s.measure is not None for end in s.measure]
    if not values:
        return None
    kind = player_snapshot.map_kind(arrays)
    reference = attention_measure.reference(arrays["a"], kind)
    values += [] if reference is None else [reference]
    low, high = (0.0 if kind is None else min(values)), max(values)
    measure = attention_measure.measure_of(kind, row_name(arrays))
    words = dataclasses.asdict(measure) | {"hint": measure.chart_hint}
    return {**words, "reference": reference, "low": low, "high": high if high > low else low + 1.0}


def features(parts: dict[str, tuple[int, ...]], ranges: dict[str, Range], arrays: Arrays) -> dict[str, Any]:
    """Describe the feature maps of the state."""
    h = arrays["h"]
    return {"channels": parts["features"][2], "total": h.shape[2] if h.ndim == 5 else 1,
            "shape": list(parts["features"][3:]), "full": full_size(h), **ends(ranges["features"])}


def full_size(x: np.ndarray) -> list[int]:
    """Return the rows and columns of maps before they are averaged down."""
    return [1 if x.ndim < 4 else x.shape[-2], x.shape[-1]]


def ends(found: Range) -> dict[str, float]:
    """Return the ends of a range by name."""
    return {"low": found[0], "high": found[1]}
