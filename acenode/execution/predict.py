"""Apply a trained model of named variables to new rows: forecast, fill in or classify, in the variables' own units.

    write_csv(predict_file("runs/<id>", "new.csv"), "predicted.csv")
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from acenode.compare.metrics import name_as_text
from acenode.data.folder import data_dir
from acenode.data.importing.build import read_series
from acenode.data.importing.columns import Columns, corrected_columns
from acenode.data.importing.observations import Piece
from acenode.data.importing.store import ImportedSets, plain_times
from acenode.data.importing.table import TableFile
from acenode.data.named_set import NamedSet
from acenode.data.series import Record
from acenode.errors import UserError
from acenode.files import write_atomic
from acenode.runs.store import Run, RunStore

SLACK = 1e-6  # of the duration


@dataclass(frozen=True, eq=False)
class PredictedSeries:
    """Predictions for one series, in own units."""

    id: str
    t: np.ndarray  # (n,) times at which values are predicted, in the set's unit of time
    x: np.ndarray  # (n, V) predictions
    observed: np.ndarray  # (n, V) values of the file at these times, NaN where there is none
    probabilities: np.ndarray | None = None  # (classes,) for a classification; then there are no times


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predictions for all series of a file."""

    source: NamedSet
    series: tuple[PredictedSeries, ...]
    notes: tuple[str, ...] = ()


class Predictor:
    """The model of a finished run on named variables with its best parameters; the data folder has the set that it was
    trained on. A run without parameters, or that predicts something else, is a UserError."""

    def __init__(self, run: Run, root: Path) -> None:
        import torch

        from acenode.backend import PLAIN
        from acenode.execution.loaded_run import load_run
        from acenode.experiments.named_task import NamedTask

        found = load_run(run, root, torch.device("cpu"), PLAIN)
        if not isinstance(found.task, NamedTask):
            raise UserError(f"{run.id} was trained on {run.config().experiment}: only runs on named variables and on "
                            "data of your own predict new rows")
        self.task, self.changed = found.task, found.changed
        self.source, self.root = found.task.source, root

    def file(self, table: TableFile) -> Prediction:
        """Predict the series of a file whose columns are those of the set."""
        columns, windowed = self._columns(table)
        found, pieces = read_series(table, columns, self.source.time_unit, self.source.time_origin)
        if found.variables != self.source.variables:
            raise UserError(f"{table.name} has the variables {', '.join(found.variables)}, but the model "
                            f"{', '.join(self.source.variables)}")
        notes = [self.changed] if self.changed else []
        if self.source.task == "classify":
            return Prediction(self.source, tuple(self._classify(pieces)), tuple(notes))
        left_out: list[str] = []
        wanted = [one for piece in pieces for one in (self._ahead(piece, windowed, left_out)
                                                      if self.source.task == "forecast" else self._gaps(piece))]
        left_out = list(dict.fromkeys(left_out))
        if not wanted:
            none = "no gaps" if self.source.task == "fill" else "no series has values in the time that is given"
            raise UserError(f"there is nothing to predict in {table.name}: {'; '.join(left_out) or none}")
        values = self.task.predict_records([given for given, _ in wanted], [one.t for _, one in wanted])
        predicted = [replace(one, x=np.asarray(value.x)) for (_, one), value in zip(wanted, values, strict=True)]
        return Prediction(self.source, tuple(predicted), (*notes, *left_out))

    def course(self, index: int, points: int = 100) -> PredictedSeries:
        """Predict a series of the set itself on a fine grid of times, for a chart."""
        from acenode.experiments.named_task import at_times

        batch, record = self.task.data.batch([index]), self.source.series[index]
        grid = np.linspace(*batch.span, points)
        x = at_times(self.task.model, self.task.data, batch, grid, self.task.device)[0]
        return PredictedSeries(self.source.ids[index], record.t[0] + grid * self.source.duration,
                               x * self.source.std + self.source.mean, np.full(x.shape, np.nan))

    def hidden(self, index: int) -> np.ndarray:
        """Return which observations of a series of the set are held out to be filled in, (n, V)."""
        return self.task.data.hidden([index])[0]

    def classes_of(self, index: int) -> np.ndarray:
        """Return the probability of each class for a series of the set, (classes,)."""
        record = self.source.series[index]
        piece = Piece(self.source.ids[index], index, record.t, np.where(record.m, record.x, np.nan))
        (found,) = self._classify([piece])
        assert found.probabilities is not None
        return found.probabilities

    def _columns(self, table: TableFile) -> tuple[Columns, bool]:
        sets = ImportedSets(self.root)
        if sets.exists(self.source.name):
            details = sets.details(self.source.name)
            return details.columns, details.window is not None
        columns = corrected_columns(table.head(), variables=self.source.variables, label="none")
        return columns, columns.id is None

    def _ahead(self, piece: Piece, windowed: bool, left_out: list[str]) -> list[tuple[Record, PredictedSeries]]:
        """Return what a forecast sees of a series, and the times and observations that it is asked for, still without
        predictions; nothing if it cannot be forecast. `left_out` gets a line for times that cannot.

        Of windows, the last values are given; of whole series, the first. The times are those of the rows that follow,
        or, if there are none, typical steps up to the end of what the model was trained for.
        """
        source, known = self.source, ~np.isnan(piece.x).all(1)
        if not known.any():
            return []
        t = piece.t[known]
        if windowed:  # the window that ends with the last values
            start = int(np.searchsorted(t, t[-1] - source.given, side="right"))
            first, last = t[start], t[-1]
        else:
            first = t[0]
            last = t[t < first + source.given][-1]
        asked = piece.t[piece.t > last]
        if not len(asked):
            step = float(np.median(np.concatenate([np.diff(r.t) for r in source.series if len(r.t) > 1])))
            asked = np.arange(last + step, first + source.duration * (1 + SLACK), step)
        begin, unit = self.task.data.span[0] * source.duration, f" {source.time_unit}".rstrip()
        slack = SLACK * source.duration
        early, late = asked < first + begin - slack, asked > first + source.duration + slack  # out of the ODE's span
        if early.any():  # the series is shorter than what is given in training
            left_out.append(f"times less than {begin:g}{unit} after the first given value were left out: the model "
                            "forecasts from there on")
        if late.any():
            left_out.append(f"times more than {source.duration:g}{unit} after the first given value were left out")
        asked = asked[~early & ~late]
        if not len(asked):
            return []
        observed = np.full((len(asked), piece.x.shape[1]), np.nan)
        place = np.minimum(np.searchsorted(piece.t, asked), len(piece.t) - 1)
        same = piece.t[place] == asked
        observed[same] = piece.x[place[same]]
        given = (piece.t >= first) & (piece.t <= last) & known
        return [(Record.from_gaps(piece.t[given], piece.x[given]),
                 PredictedSeries(piece.id, asked, observed[:0], observed))]

    def _gaps(self, piece: Piece) -> list[tuple[Record, PredictedSeries]]:
        """Return each window with gaps, and the rows to fill in, still without predictions."""
        found = []
        for start in np.arange(piece.t[0], piece.t[-1] + SLACK, self.source.duration * (1 + SLACK)):
            inside = (piece.t >= start) & (piece.t < start + self.source.duration * (1 + SLACK))
            t, x = piece.t[inside], piece.x[inside]
            gaps = np.isnan(x).any(1)
            if gaps.any() and not np.isnan(x).all():
                found.append((Record.from_gaps(t, x), PredictedSeries(piece.id, t[gaps], x[:0], x[gaps])))
        return found

    def _classify(self, pieces: Sequence[Piece]) -> list[PredictedSeries]:
        none, usable = np.zeros((0, len(self.source.variables))), [p for p in pieces if not np.isnan(p.x).all()]
        found = self.task.predict_records([Record.from_gaps(p.t, p.x) for p in usable], [none[:, 0]] * len(usable))
        return [PredictedSeries(piece.id, none[:, 0], none, none, one.probabilities)
                for piece, one in zip(usable, found, strict=True)]


def predict_file(run: Run | str | Path, file: Path | str | TableFile, *, data: Path | None = None) -> Prediction:
    """Apply a trained model to the rows of a file.

    Args:
        run: a finished run on named variables, or its folder.
        file: a CSV or Parquet file with the columns of the set that the run was trained on.
        data: the data folder; the usual one if None.

    Returns:
        Forecasts of the rows that follow what is given, values for gaps, or probabilities of classes: whatever the run
        was trained for.
    """
    if not isinstance(run, Run):
        folder = Path(run)
        run = RunStore(folder.parent).open(folder.name)
    table = file if isinstance(file, TableFile) else TableFile(Path(file))
    return Predictor(run, data_dir() if data is None else data).file(table)


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
