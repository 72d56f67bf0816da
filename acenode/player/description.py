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

HARDLY = 0.02  # of the largest weight: changes below it cannot be seen in the maps


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
    predictions, no_attention = [s.predictions for s in own], None
    if "a" not in arrays:
        no_attention = "This method has no attention: the state h(t) evolves alone."
    elif kind is None:
        shapes = [" × ".join(map(str, arrays[key].shape[2:])) for key in ("a", "h")]
        no_attention = f"Attention of shape {shapes[0]} on states of shape {shapes[1]} cannot be drawn as a map."
    drawn = {key: _drawn(key, shape[2:], arrays, _range_of_all([s.ranges[key] for s in own]))
             for key, shape in parts.items() if all(key in s.ranges for s in own)}  # older ones may lack the influence
    return {
        "version": version, "notes": notes, "why": None, "epochs": [s.epoch for s in own], "probes": probes,
        "classes": classes(config), "time": dataclasses.asdict(axis) if axis else None,
        "labels": snapshots.labels(arrays, probes), "subject": what, "names": names(config, arrays, probes),
        "equal_rows": equal_rows(own, arrays, axis), "steady": steady(own, what),
        "jumps": snapshots.jumps(arrays, probes), "image": snapshots.images(arrays, probes),
        "predictions": None if None in predictions else predictions, "measure": _measure(arrays, own),
        "no_attention": no_attention, "named": snapshots.is_named(arrays),
        **{key: drawn.get(key) for key in snapshots.DRAWN}, **values}


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


def _drawn(key: str, shape: tuple[int, ...], arrays: Arrays, scale: Range) -> dict[str, Any]:
    """Describe an array that is drawn: its shape and that of what it shows, its range, and of a map its words and the
    names of variables if they are whole."""
    x = arrays[{"attention": "a", "attention_channels": "a", "influence": "influence"}.get(key, "h")]
    full = [1 if x.ndim < 4 else x.shape[-2], x.shape[-1]]
    found = {"shape": list(shape), "full": full, "total": x.shape[2] if x.ndim == 5 else 1,
             **dict(zip(("low", "high", "largest_change"), scale, strict=True))}
    kind = attention.INFLUENCE if key == "influence" else attention.kind_of(arrays)
    if key not in ("attention", "influence") or kind is None:
        return found
    named = kind in (attention.PAIRWISE, attention.INFLUENCE) and found["shape"] == full
    return {**found, "kind": kind.name, "title": kind.title, "rows": kind.rows, "columns": kind.columns,
            "names": snapshots.coordinate_names(arrays, shape[0]) if named else None}


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
