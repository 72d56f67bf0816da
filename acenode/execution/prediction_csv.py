"""Write predictions for new rows as CSV."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from acenode.compare.metrics import name_as_text
from acenode.data.importing.preview import plain_times
from acenode.data.named_set import Record
from acenode.execution.predict import Prediction
from acenode.files import write_atomic


def csv_text(found: Prediction) -> str:
    """Write predictions as CSV: a row for each time and variable, or for each series and class."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    source = found.source
    if source.task == "classify":
        writer.writerow(["series", "class", *(f"probability of {name}" for name in source.classes)])
        for one in found.series:
            assert one.probabilities is not None
            writer.writerow([name_as_text(one.id), name_as_text(source.classes[int(one.probabilities.argmax())]),
                             *(f"{p:.6g}" for p in one.probabilities)])
        return out.getvalue()
    writer.writerow(["series", "time", "variable", "unit", "predicted", "observed"])
    for one in found.series:
        for i, time in enumerate(plain_times(source, Record.from_gaps(one.t, one.observed))):
            for v, name in enumerate(source.variables):
                known = not np.isnan(one.observed[i, v])
                if source.task == "fill" and known:
                    continue
                writer.writerow([name_as_text(one.id), f"{time:.10g}" if isinstance(time, float) else time,
                                 name_as_text(name), name_as_text(source.units[v]), f"{one.x[i, v]:.7g}",
                                 f"{one.observed[i, v]:.7g}" if known else ""])
    return out.getvalue()


def write_csv(found: Prediction, path: Path | str) -> Path:
    """Write predictions to a CSV file."""
    write_atomic(Path(path), csv_text(found).encode())
    return Path(path)
