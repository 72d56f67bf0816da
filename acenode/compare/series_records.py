"""Records of time series in result.json: observed and held-out values, and the model's predictions.

A time that occurs twice in a row on a grid is a jump of the state, with the predictions before and after it. Values are
in the variable's own unit if the result says how they were normalised, times in days if it says how long a unit is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from acenode.compare.checked_values import (
    POINTS,
    Numbers,
    OptionalNumbers,
    columns,
    finite,
    items,
    optional_numbers,
    pairs,
    text,
)
from acenode.data import variables

VARIABLES = 6  # most variables of a record that are drawn
NORMALISED = "scaled values"  # of a variable whose shift and scale the result does not have
_DAYS = re.compile(r"one unit is (\d+(?:\.\d+)?) days\.?")


@dataclass(frozen=True)
class SeriesVariable:
    """One variable of a record: observed values, held-out values, and predictions on a grid."""

    name: str
    t: Numbers
    x: Numbers
    target_t: Numbers
    target_x: Numbers
    grid: Numbers
    mean: OptionalNumbers
    low: OptionalNumbers  # empty if the predictions have no band
    high: OptionalNumbers
    title: str = ""  # the name with its meaning
    unit: str = ""  # of the values; empty if it is not known


@dataclass(frozen=True)
class SeriesRecord:
    id: str
    unit: str
    cut: float | None  # where the forecast begins
    variables: list[SeriesVariable]
    jumps: Numbers = field(default_factory=list)  # times at which the state jumped
    band: str = ""  # what the band shows; if empty, the spread over samples
    unit_note: str = ""  # the length of a unit of time, if the times are not in days
    value_unit: str = ""  # of all variables, if the result has one for the whole record
    total: int = 0  # variables that the result has; `variables` are the first of them


def days_of(note: str) -> float | None:
    """Return the days of a unit of time, from a note such as `one unit is 7.45 days.`; None if it has none."""
    found = _DAYS.fullmatch(note.strip())
    return float(found[1]) if found and float(found[1]) > 0 else None


def read(value: dict[str, Any], cut: float | None) -> SeriesRecord | None:
    """Read a record; `cut` is used if the record has no cut of its own."""
    all_variables = [v for v in map(_variable, items(value.get("variables"))) if v]
    found_variables = all_variables[:VARIABLES]
    if not found_variables:
        return None
    jumps = sorted(t for t in optional_numbers(value.get("jumps")) or [] if t is not None)[:POINTS]
    own_cut = finite(value["cut"]) if "cut" in value else cut
    whole = text(value.get("value_unit")).removeprefix("in ")
    found = SeriesRecord(text(value.get("id")), text(value.get("unit"), 12), own_cut,
                         [replace(v, unit=whole) if whole else v for v in found_variables], jumps,
                         text(value.get("band")), text(value.get("unit_note")), whole, len(all_variables))
    days = days_of(found.unit_note)
    return _in_days(found, days) if days else found


def _in_days(record: SeriesRecord, days: float) -> SeriesRecord:
    """Convert the times of a record to days."""
    def of(t: Numbers) -> Numbers:
        return [round(days * v, 3) for v in t]

    own = [replace(v, t=of(v.t), target_t=of(v.target_t), grid=of(v.grid)) for v in record.variables]
    return replace(record, unit="d", unit_note="", cut=None if record.cut is None else of([record.cut])[0],
                   jumps=of(record.jumps), variables=own)


def _variable(value: Any) -> SeriesVariable | None:
    if not isinstance(value, dict):
        return None
    t, x = pairs(value, "t", "x")
    target_t, target_x = pairs(value, "target_t", "target_x")
    found = columns(value, "grid", "mean")
    grid, mean, low, high = Numbers(), OptionalNumbers(), OptionalNumbers(), OptionalNumbers()
    if found and None not in found[0]:
        grid, mean = [float(v or 0) for v in found[0]], found[1]
        edges = columns(value, "low", "high")
        low, high = edges if edges and len(edges[0]) == len(grid) else ([], [])
    if not (t or target_t or any(v is not None for v in mean)):
        return None
    name, kept = text(value.get("name")), _kept(grid)
    shift, scale = finite(value.get("shift")), finite(value.get("scale"))
    if shift is None or scale is None:
        shift, scale = 0.0, 1.0

    def raw(v: float) -> float:
        return v if (shift, scale) == (0.0, 1.0) else float(f"{v * scale + shift:.6g}")

    def own(values: OptionalNumbers) -> OptionalNumbers:
        return [None if v is None else raw(v) for v in values]

    return SeriesVariable(
        name, t, [raw(v) for v in x], target_t, [raw(v) for v in target_x],
        [grid[i] for i in kept], own([mean[i] for i in kept]), own([low[i] for i in kept if low]),
        own([high[i] for i in kept if high]), variables.title(name), _unit(value, name))


def _unit(value: dict[str, Any], name: str) -> str:
    """Return the unit of a variable's values. Older results of PhysioNet do not say how values were normalised."""
    if "unit" in value:
        return text(value.get("unit"), 24)
    return NORMALISED if name in variables.PHYSIONET else variables.unit(name)


def _kept(grid: Numbers) -> list[int]:
    """Choose the indices of at most about POINTS points, with the last; both sides of a jump are kept or neither."""
    every = -(-len(grid) // POINTS) or 1
    chosen = {*range(0, len(grid), every), *range(len(grid))[-1:]}
    if every > 1:
        chosen |= {j for i in chosen for j in (i - 1, i + 1) if 0 <= j < len(grid) and grid[j] == grid[i]}
    return sorted(chosen)


def caption(records: Sequence[SeriesRecord]) -> str:
    """Explain what the charts of these records show."""
    def first(name: str) -> str:
        return next((value for r in records if (value := getattr(r, name))), "")

    band, note = first("band"), first("unit_note")
    units = {v.unit for r in records for v in r.variables}
    lines = f"Lines: the model's mean, with a band of {band}" if band else \
        "Lines: the mean over the latent samples, with their spread as a band"
    if not any(v.low for r in records for v in r.variables):
        lines = "Lines: the model's predictions"
    cut = "; the forecast begins at the dotted line." if any(r.cut is not None for r in records) else "."
    parts = ["Filled points were observed, open points were held out.", lines + cut]
    if fewer := max((r for r in records if r.total > len(r.variables)), key=lambda r: r.total, default=None):
        parts.append(f"{len(fewer.variables)} of {fewer.total} variables are drawn.")
    if any(r.jumps for r in records):
        parts.append("Ticks along the bottom: times of observations, at which the state jumped.")
    parts += ["Values are standardised: in standard deviations from the mean."] * (variables.STANDARDISED in units)
    parts += ["Values are scaled as for the model; this result does not say by how much."] * (NORMALISED in units)
    parts += [time_note(note)] * bool(note)
    return " ".join(parts)


def time_note(note: str) -> str:
    """Write the length of a unit of time as a sentence; empty if it is unknown."""
    return f"Time: {note.rstrip('.')}." if note else ""
