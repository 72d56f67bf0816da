"""A run in the formats of other tools: tables for spreadsheets, one page to pass on, curves for TensorBoard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from acenode.errors import UserError
from acenode.export import csv_tables, report, tensorboard_events
from acenode.results import metric_records
from acenode.runs.store import Run

__all__ = ["FORMATS", "Format", "export"]


@dataclass(frozen=True)
class Format:
    """How a format is written, and where below <run>/export/ it goes by default."""

    write: Callable[[Run, Path], Path]
    place: str


FORMATS: dict[str, Format] = {
    "csv": Format(csv_tables.write, "csv"),
    "html": Format(report.write, "report.html"),
    "tensorboard": Format(tensorboard_events.write, "tensorboard"),
}


def export(run: Run, to: str, out: Path | None = None) -> Path:
    """Write the run as `to`; the folder (csv, tensorboard) or the file (html) that it became.

    Whole files appear at once or not at all, and an export made before is replaced.
    """
    if to not in FORMATS:
        raise UserError(f"there is no export {to!r}: choose one of {', '.join(FORMATS)}")
    run.description()  # refuses what is no run
    if not metric_records.read(run):
        raise UserError(f"{run.id} has no metrics yet ({run.status()['state']}): export it once training has begun")
    place = out if out is not None else run.path / "export" / FORMATS[to].place
    try:
        return FORMATS[to].write(run, place)
    except OSError as error:
        raise UserError(f"{place} cannot be written ({error.strerror or error}): choose another place with --out") \
            from None
