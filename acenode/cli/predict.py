"""The command `predict`: apply a trained model to new rows."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from acenode.cli.common import run_store
from acenode.errors import UserError


def predict(options: Namespace) -> int:
    """Predict the rows of a file and write them as CSV."""
    from acenode.data.folder import data_dir
    from acenode.data.importing.table import TableFile
    from acenode.execution.predict import Predictor
    from acenode.execution.prediction_csv import csv_text, write_csv

    out: Path | None = options.out
    if out is not None and not out.parent.is_dir():
        raise UserError(f"there is no folder {out.parent}: choose another file with --out")
    table = TableFile(Path(options.file))
    found = Predictor(run_store(options, to_read=True).open(options.run_id), data_dir()).file(table)
    if out is None:
        print(csv_text(found), end="")
        for note in found.notes:
            print(note, file=sys.stderr)
        return 0
    write_csv(found, out)
    ahead = {"forecast": "forecast", "fill": "filled in", "classify": "classified"}[found.source.task]
    print(f"{out}: {len(found.series):,} series {ahead}")
    for note in found.notes:
        print(note)
    return 0
