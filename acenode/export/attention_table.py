"""Pairwise attention of a run as one CSV table: a row for each epoch, series, time and pair."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Literal

from acenode.compare.spreadsheet import name_as_text
from acenode.config import Config
from acenode.errors import UserError
from acenode.files import replacing
from acenode.player import snapshot as player_snapshot
from acenode.player.attention_pairs import PairWeight, weights_of
from acenode.runs.store import Run

Epoch = int | Literal["all"] | None
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
        rest = (pair for path in paths[1:] for pair in _weights(run, path))
        writer.writerows(_cells(pair) for pair in chain(first, rest))
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


def _weights(run: Run, path: Path) -> Iterator[PairWeight]:
    found = player_snapshot.load(run, path)
    if isinstance(found, str):
        raise UserError(found)
    return weights_of(found, _config(run))


def _config(run: Run) -> Config | None:
    try:
        return run.config()
    except UserError:  # written by another version
        return None


def _cells(pair: PairWeight) -> tuple[object, ...]:
    return (pair.epoch, name_as_text(pair.series), f"{pair.time:.7g}", name_as_text(pair.time_unit),
            name_as_text(pair.variable), name_as_text(pair.attends_to), f"{pair.weight:.6g}")
