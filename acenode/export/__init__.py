"""Export a run: CSV tables, a self-contained HTML report, or TensorBoard events."""

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
    """How a format is written, and its default place below <run>/export/."""

    write: Callable[[Run, Path], Path]
    place: str


FORMATS: dict[str, Format] = {
    "csv": Format(csv_tables.write, "csv"),
    "html": Format(report.write, "report.html"),
    "tensorboard": Format(tensorboard_events.write, "tensorboard"),
}


def export(run: Run, to: str, out: Path | None = None) -> Path:
    """Export a run.

    Files are written completely or not at all, and replace those of an earlier export.

    Args:
        run: the run.
        to: a key of `FORMATS`.
        out: where to write it; below the run's own folder if None.

    Returns:
        The folder (csv, tensorboard) or the file (html) that was written.

    Raises:
        UserError: if the format is unknown, the run has no metrics yet, or `out` cannot be written.
    """
    if to not in FORMATS:
        raise UserError(f"there is no export {to!r}: choose one of {', '.join(FORMATS)}")
    run.description()  # raises if the folder is not a run
    if not metric_records.read(run):
        raise UserError(f"{run.id} has no metrics yet ({run.status()['state']}): export it once training has begun")
    place = out if out is not None else run.path / "export" / FORMATS[to].place
    try:
        return FORMATS[to].write(run, place)
    except OSError as error:
        raise UserError(f"{place} cannot be written ({error.strerror or error}): choose another place with --out") \
            from None
