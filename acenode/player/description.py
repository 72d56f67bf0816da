"""A run's description for the trajectory player: what its snapshots hold, in words and ranges."""

from __future__ import annotations

import dataclasses
from typing import Any

from acenode.config import Config
from acenode.data.images import IMAGE_SOURCES
from acenode.data.variables import SUBJECTS, subject_name
from acenode.experiments import find
from acenode.player import attention, snapshots
from acenode.player.snapshots import Arrays, Range, SnapshotSummary, TimeAxis

INFLUENCE = ("Influence (|∂ḣ_i/∂h_j|), row i: how strongly the state of each other variable j changes the derivative "
             "of variable i. A variable's influence on itself is left out")
HARDLY = 0.02  # of the largest weight: changes below it cannot be seen in the maps

EMPTY: dict[str, Any] = {
    "epochs": [], "t": [], "probes": 0, "labels": None, "subject": "sample", "names": None, "jumps": None,
    "classes": None, "image": None, "predictions": None, "attention": None, "features": None, "named": False,
    "influence": None, "state": None, "measure": None, "time": None, "equal_rows": [], "steady": [], "why": None,
    "no_attention": None, "pca": {"shares": [0.0, 0.0], "x": [-1.0, 1.0], "y": [-1.0, 1.0]}}


def nothing(version: str, notes: list[str], why: str) -> dict[str, Any]:
    """Describe a run without a snapshot that can be played."""
    return {"version": version, "notes": notes, **EMPTY, "why": why}


def describe(version: str, notes: list[str], config: Config | None, own: list[SnapshotSummary], arrays: Arrays,
             probes: int, parts: dict[str, tuple[int, ...]], **values: Any) -> dict[str, Any]:
    """Describe the snapshots of a run.

    Args:
        notes: on snapshots that are left out.
        own: the summaries of all snapshots, in order.
        arrays: the newest snapshot.
        parts: the shape of each array that the player gets of an epoch.
        values: more entries: `t` and `pca`.
    """
    kind, axis, what = attention.kind_of(arrays), snapshots.time_axis(config, arrays), subject(config)
    ranges = {key: _range_of_all([s.ranges[key] for s in own]) for key in own[-1].ranges
              if all(key in s.ranges for s in own)}  # older snapshots may lack the influence
    predictions = [s.predictions for s in own]
    features = state = no_attention = None
    if "a" not in arrays:
        no_attention = "This method has no attention: the state h(t) evolves alone."
    elif kind is None:
        shapes = [" × ".join(map(str, arrays[key].shape[2:])) for key in ("a", "h")]
        no_attention = f"Attention of shape {shapes[0]} on states of shape {shapes[1]} cannot be drawn as a map."
    if "features" in parts:
        h = arrays["h"]
        features = {"channels": parts["features"][2], "total": h.shape[2] if h.ndim == 5 else 1,
                    "shape": list(parts["features"][3:]), "full": _full_size(arrays, "h"), **_ends(ranges["features"])}
    if "state" in parts:
        state = {"size": parts["state"][2], **_ends(ranges["state"])}
    return {
        "version": version, "notes": notes, **EMPTY, "epochs": [s.epoch for s in own], "probes": probes,
        "classes": classes(config), "time": dataclasses.asdict(axis) if axis else None,
        "labels": snapshots.labels(arrays, probes), "subject": what, "names": names(config, arrays, probes),
        "equal_rows": equal_rows(own, arrays, axis), "steady": steady(own, what),
        "jumps": snapshots.jumps(arrays, probes), "image": snapshots.images(arrays, probes),
        "predictions": None if None in predictions else predictions, "measure": _measure(arrays, own),
        "no_attention": no_attention, "named": snapshots.is_named(arrays),
        "influence": _map(attention.MapKind("influence", INFLUENCE, "i", "j"), "influence", parts, ranges, arrays)
        if "influence" in ranges else None,
        "attention": _attention(kind, parts, ranges, arrays) if kind else None, "features": features, "state": state,
        **values}


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


def _row_name(arrays: Arrays) -> str:
    return "variable" if snapshots.is_named(arrays) else "coordinate"


def equal_rows(own: list[SnapshotSummary], arrays: Arrays, axis: TimeAxis | None) -> list[str]:
    """Return a note for each snapshot in which the rows of softmax(a) are equal at the end, else an empty text."""
    end = float(arrays["t"][-1])
    time = f"{end:.3g}" if axis is None else f"{end * axis.scale:.4g} {axis.unit}"
    return [attention.equal_rows_note(s.row_distance, _row_name(arrays), f"at the end (t = {time})") for s in own]


def steady(own: list[SnapshotSummary], kind: str) -> list[str]:
    """Say of each snapshot whether its attention hardly changes with t or between probes (a `kind`); else nothing."""
    found = [_steady(s, kind) for s in own]
    if len(set(found)) == 1:
        return [f"In this run {text}." if text else "" for text in found]
    return [text and f"{'Before training' if s.epoch == 0 else f'After epoch {s.epoch}'} {text}."
            for s, text in zip(own, found, strict=True)]


def _steady(summary: SnapshotSummary, kind: str) -> str:
    _, largest, over_time = summary.ranges.get("attention", (0.0, 0.0, 1.0))
    if over_time > HARDLY * largest:
        return ""
    alike = summary.between_probes is not None and summary.between_probes <= HARDLY * largest
    return "the attention hardly changes with t" + f", and hardly differs between {kind}s" * alike


def _range_of_all(found: list[Range]) -> Range:
    """Return the range of all epochs, never empty, and below 0 only where values are."""
    low, high = min(f[0] for f in found), max(f[1] for f in found)
    if high - low < 1e-6:
        low, high = low - 0.005 if low < 0 else max(0.0, low - 0.005), high + 0.005
    return low, high, max(f[2] for f in found) or (high - low) / 255


def _attention(kind: attention.MapKind, parts: dict[str, tuple[int, ...]], ranges: dict[str, Range],
               arrays: Arrays) -> dict[str, Any]:
    about = _map(kind, "attention", parts, ranges, arrays)
    about["channels"] = parts["attention_channels"][2] if "attention_channels" in parts else 0
    if about["channels"]:
        about["each"] = {**_ends(ranges["attention_channels"]), "largest_change": ranges["attention_channels"][2],
                         "total": arrays["a"].shape[2]}
    return about


def _map(kind: attention.MapKind, key: str, parts: dict[str, tuple[int, ...]], ranges: dict[str, Range],
         arrays: Arrays) -> dict[str, Any]:
    """Describe the map of this kind: its axes, with the names of variables if they are whole, and its range."""
    shape, full = list(parts[key][2:]), _full_size(arrays, "a" if key == "attention" else key)
    named = kind.name in ("pairwise", "influence") and shape == full
    return {"kind": kind.name, "title": kind.title, "rows": kind.rows, "columns": kind.columns, "shape": shape,
            "full": full, "names": snapshots.coordinate_names(arrays, shape[0]) if named else None,
            **_ends(ranges[key]), "largest_change": ranges[key][2]}


def _measure(arrays: Arrays, own: list[SnapshotSummary]) -> dict[str, Any] | None:
    """Describe the curve of attention over time: its words, and a range that has the reference in it."""
    values = [end for s in own if s.measure is not None for end in s.measure]
    if not values:
        return None
    kind = attention.kind_of(arrays)
    reference = attention.reference(arrays["a"], kind)
    values += [] if reference is None else [reference]
    low, high = (0.0 if kind is None else min(values)), max(values)
    measure = attention.measure_of(kind, _row_name(arrays))
    return {**dataclasses.asdict(measure), "hint": f"{measure.hint} {measure.line}".rstrip(), "reference": reference,
            "low": low, "high": high if high > low else low + 1.0}


def _full_size(arrays: Arrays, key: str) -> list[int]:
    x = arrays[key]
    return [1 if x.ndim < 4 else x.shape[-2], x.shape[-1]]


def _ends(found: Range) -> dict[str, float]:
    return {"low": found[0], "high": found[1]}
