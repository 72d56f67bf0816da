"""Export a run: CSV tables, a self-contained HTML report, TensorBoard events, or a table of its attention."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from acenode.compare.metrics import read_records
from acenode.errors import UserError
from acenode.export import report, tables, tensorboard_events
from acenode.export.tables import Epoch
from acenode.runs.store import Run

__all__ = ["FORMATS", "Format", "export"]


class Format(NamedTuple):
    """How a format is written, and its default place below <run>/export/. One `by_epoch` is of chosen snapshots."""

    write: Callable[..., Path]
    place: str
    by_epoch: bool = False


FORMATS = {"csv": Format(tables.write_run, "csv"), "html": Format(report.write, "report.html"),
           "tensorboard": Format(tensorboard_events.write, "tensorboard"),
           "attention": Format(tables.write_attention, "attention.csv", by_epoch=True)}


def export(run: Run, to: str, out: Path | None = None, *, epoch: Epoch = None) -> Path:
    """Export a run; files are written completely or not at all, and replace those of an earlier export.

    Args:
        to: a key of `FORMATS`.
        out: where to write it; below the run's own folder if None.
        epoch: of the snapshot whose attention is written; "all" for all, None for the last one.

    Returns:
        The folder (csv, tensorboard) or the file (html, attention) that was written.

    Raises:
        UserError: if the format is unknown or does not fit the run, it has no metrics, or `out` cannot be written.
    """
    if to not in FORMATS:
        raise UserError(f"there is no export {to!r}: choose one of {', '.join(FORMATS)}")
    if epoch is not None and not FORMATS[to].by_epoch:
        raise UserError(f"--epoch applies only to --to {' and '.join(n for n, f in FORMATS.items() if f.by_epoch)}")
    run.description()  # raises if the folder is not a run
    if not read_records(run):
        raise UserError(f"{run.id} has no metrics yet ({run.status()['state']}): export it once training has begun")
    place = out if out is not None else run.path / "export" / FORMATS[to].place
    with report.writing(place):
        return FORMATS[to].write(run, place, **({"epoch": epoch} if FORMATS[to].by_epoch else {}))
