"""A TensorBoard event file with the curves of a run, written by the tensorboard package."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from acenode.compare.metrics import MetricRecord, axis_index, finite, read_records, to_float
from acenode.errors import UserError
from acenode.files import write_atomic
from acenode.runs.store import Run

LARGEST = 3.4028235e38  # finite float32
AXES = frozenset({"step", "epoch"})  # positions of a record, not metrics


def write(run: Run, out: Path) -> Path:
    """Write one event file into the folder `out`, which is what `tensorboard --logdir` takes.

    Raises:
        UserError: if the tensorboard package is not installed.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError:
        raise UserError("the tensorboard package is not installed: run `pip install 'acenode[tensorboard]'`") from None
    start = finite(run.description().get("created")) or 0.0
    buffer = io.BytesIO()
    writer = RecordWriter(buffer)
    writer.write(Event(wall_time=start, file_version="brain.Event:2").SerializeToString())
    for event in events(run, start):
        writer.write(Event(**event).SerializeToString())
    # The file is named after the run, so that a second export replaces the curves and does not draw them twice.
    write_atomic(out / f"events.out.tfevents.{int(start):010d}.{run.id}", buffer.getvalue())
    return out


def events(run: Run, start: float) -> Iterator[dict[str, Any]]:
    """Yield the events: train/… over steps, epoch/… over epochs, test/… at the end. Times count training only."""
    found = read_records(run)
    now, last = start, 0
    for record in found.steps:
        now += finite(record.get("seconds")) or 0.0
        step = axis_index(record, "step")
        if step is not None:
            yield from scalars(now, step, "train", record)
            last = max(last, step + 1)
    for record in found.epochs:
        epoch = axis_index(record, "epoch")
        if epoch is not None:
            yield from scalars(start + (finite(record.get("elapsed")) or 0.0), epoch, "epoch", record)
    test = (run.result() or {}).get("test")
    if isinstance(test, dict):
        yield from scalars(now, last, "test", test)


def scalars(wall_time: float, step: int, family: str, record: MetricRecord) -> Iterator[dict[str, Any]]:
    """Yield one event with all numbers of a record, if it has any."""
    values = [{"tag": f"{family}/{key}".encode("utf-8", "replace").decode(),
               "simple_value": math.copysign(math.inf, number) if abs(number) > LARGEST else number}
              for key, given in record.items()
              if key not in AXES and (number := to_float(given)) is not None]
    if values:
        yield {"wall_time": wall_time, "step": step, "summary": {"value": values}}
