"""Records of time series in result.json: observed and held-out values, and the model's predictions.

A time that occurs twice in a row on a grid is a jump of the state, with the predictions before and after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from acenode.results.checked_values import (
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

VARIABLES = 6  # most variables of a record that are drawn
TITLES = {"PRCP": "rain", "SNOW": "snowfall", "SNWD": "snow depth", "TMAX": "highest temperature",
          "TMIN": "lowest temperature"}


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


@dataclass(frozen=True)
class SeriesRecord:
    id: str
    unit: str
    cut: float | None  # where the forecast begins
    variables: list[SeriesVariable]
    jumps: Numbers = field(default_factory=list)  # times at which the state jumped
    band: str = ""  # what the band shows; if empty, the spread over samples
    unit_note: str = ""  # the length of a unit of time
    value_unit: str = ""


def title(name: str) -> str:
    """Return a variable's name, with its meaning if that is known."""
    return f"{name} · {TITLES[name]}" if name in TITLES else name


def read(value: dict[str, Any], cut: float | None) -> SeriesRecord | None:
    """Read a record; `cut` is used if the record has no cut of its own."""
    variables = [v for v in map(_variable, items(value.get("variables"))) if v][:VARIABLES]
    if not variables:
        return None
    jumps = sorted(t for t in optional_numbers(value.get("jumps")) or [] if t is not None)[:POINTS]
    own_cut = finite(value["cut"]) if "cut" in value else cut
    return SeriesRecord(text(value.get("id")), text(value.get("unit"), 12), own_cut, variables, jumps,
                        text(value.get("band")), text(value.get("unit_note")),
                        text(value.get("value_unit")).removeprefix("in "))


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
    return SeriesVariable(name, t, x, target_t, target_x, [grid[i] for i in kept], [mean[i] for i in kept],
                    [low[i] for i in kept if low], [high[i] for i in kept if high], title(name))


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

    band, note, unit = first("band"), first("unit_note"), first("value_unit")
    lines = f"Lines: the model's mean, with a band of {band}" if band else \
        "Lines: the mean over the latent samples, with their spread as a band"
    cut = "; the forecast begins at the dotted line." if any(r.cut is not None for r in records) else "."
    parts = ["Filled points were observed, open points were held out.", lines + cut]
    if any(r.jumps for r in records):
        parts.append("Ticks along the bottom: times of observations, at which the state jumped.")
    parts += [f"Values are in {unit}."] * bool(unit) + [time_note(note)] * bool(note)
    return " ".join(parts)


def time_note(note: str) -> str:
    """Write the length of a unit of time as a sentence; empty if it is unknown."""
    return f"Time: {note.rstrip('.')}." if note else ""
