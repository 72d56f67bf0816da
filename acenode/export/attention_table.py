"""Pairwise attention of a run as one CSV table: a row for each epoch, series, time and pair."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Literal

from acenode.compare.metrics import name_as_text
from acenode.errors import UserError
from acenode.files import replacing
from acenode.player import attention, snapshots
from acenode.player.snapshots import Snapshot, TimeAxis
from acenode.runs.store import Run

Epoch = int | Literal["all"] | None
Row = tuple[int, str, str, str, str, str, str]
COLUMNS = ("epoch", "series", "time", "time unit", "variable", "attends to", "weight")


def write(run: Run, out: Path, epoch: Epoch = None) -> Path:
    """Write the table to `out`, or into it under the run's name if it is a folder.

    Args:
        run: the run.
        out: the file, or a folder.
        epoch: of the snapshot; "all" for all snapshots, None for the last one.

    Raises:
        UserError: there is no such snapshot, or the attention is not between pairs.
    """
    paths = _chosen(run, epoch)
    first = _weights(run, paths[0])  # raises before anything is written
    if out.is_dir() or out.suffix.lower() != ".csv":
        out = out / f"{run.id}-attention.csv"
    with replacing(out) as file:
        writer = csv.writer(codecs.getwriter("utf-8")(file, "replace"), lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(chain(first, chain.from_iterable(_weights(run, path) for path in paths[1:])))
    return out


def _chosen(run: Run, epoch: Epoch) -> list[Path]:
    """Return the files of the snapshots that are wanted."""
    files = {int(number): path for path in run.snapshots() if (number := path.stem.removeprefix("epoch-")).isdecimal()}
    if not files and run.recorded:
        raise UserError(f"{run.id} was recorded without snapshots: another seed or fold of this method may have them")
    if not files:
        raise UserError(f"{run.id} has no snapshot yet: export its attention once training has begun")
    if epoch == "all":
        return list(files.values())
    if epoch is not None and epoch not in files:
        raise UserError(f"{run.id} has no snapshot of epoch {epoch}: choose one of {', '.join(map(str, files))}, or "
                        "all (--epoch)")
    return [files[max(files) if epoch is None else epoch]]


def _weights(run: Run, path: Path) -> Iterator[Row]:
    """Return an iterator over the rows of a snapshot; raise a UserError if its attention is not between pairs."""
    found = snapshots.load(run, path)
    if isinstance(found, str):
        raise UserError(found)
    if "a" not in found.arrays:
        raise UserError("the run has no attention to export")
    if attention.kind_of(found.arrays) is not attention.PAIRWISE:
        raise UserError("the run's attention weighs each entry of h by itself: there are no pairs to export")
    return _rows(found, snapshots.time_axis(snapshots.config_of(run), found.arrays))


def _rows(found: Snapshot, axis: TimeAxis | None) -> Iterator[Row]:
    arrays = found.arrays
    scale, unit = (axis.scale, name_as_text(axis.unit)) if axis else (1.0, "")
    _, count, size, _ = arrays["a"].shape  # (F, B, V, V)
    series = snapshots.names(arrays, count, longest=None) or [str(i + 1) for i in range(count)]
    variables = snapshots.coordinate_names(arrays, size, longest=None) or [str(i + 1) for i in range(size)]
    titles = [name_as_text(name) for name in variables]
    for b, name in enumerate(map(name_as_text, series)):
        for t, a in zip(arrays["t"].tolist(), arrays["a"][:, b], strict=True):
            weights = attention.weights(a, attention.PAIRWISE, widest=size)
            for i, row in enumerate(weights.tolist()):
                for j, weight in enumerate(row):
                    yield found.epoch, name, f"{scale * t:.7g}", unit, titles[i], titles[j], f"{weight:.6g}"
