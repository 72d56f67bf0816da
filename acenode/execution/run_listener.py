"""Write what the trainer reports to the run directory, and report progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from acenode.config import Config
from acenode.config.groups import SnapshotSettings
from acenode.experiments.base import LabTask
from acenode.runs.writer import RunWriter, json_value
from acenode.training.trainer import Trainer

CHECKPOINT_SECONDS = 20.0  # longest time between checkpoints

Progress = Callable[[dict[str, Any]], None]


class RunListener:
    """Writes metrics, snapshots, checkpoints and progress of a run, and asks the trainer to stop on request."""

    def __init__(self, writer: RunWriter, config: Config, stop: threading.Event, progress: Progress | None) -> None:
        self.writer, self.config, self.stop, self.progress = writer, config, stop, progress
        self.stop_file = writer.path / "stop"
        self.fallback: str | None = None  # why the graph engine is not used

    def begin(self, trainer: Trainer, task: LabTask) -> None:
        self.trainer, self.task = trainer, task
        self.writer.values["metric"] = task.metric.name
        epochs = trainer.recipe.epochs
        count = min(self.config.part(SnapshotSettings).snapshots, epochs + 1)
        self.snapshot_epochs = {round(i * epochs / (count - 1)) for i in range(count)}
        self.writer.checkpoint_time = time.monotonic()

    def end(self) -> None:
        """Drop the references to trainer and model, so that their memory is freed without the garbage collector."""
        self.__dict__.pop("trainer", None)
        self.__dict__.pop("task", None)

    def stop_requested(self) -> bool:
        return self.stop.is_set() or self.stop_file.exists()

    def checkpoint_due(self) -> bool:
        longest = self.config.get("checkpoint_seconds")  # only in runs of version 0.1
        return time.monotonic() - self.writer.checkpoint_time >= (CHECKPOINT_SECONDS if longest is None else longest)

    def on_steps(self, records: list[dict[str, Any]]) -> None:
        self.writer.append([{"kind": "step", **r} for r in records])
        self.report_progress("training", **{k: v for k, v in records[-1].items() if k in ("L_h", "L_a")})

    def on_epoch(self, record: dict[str, Any]) -> None:
        self.writer.append([{"kind": "epoch", **record}])
        if record["epoch"] in self.snapshot_epochs:
            self.write_snapshot(record["epoch"])
        value = record[f"validation_{self.task.metric.name}"]
        self.writer.values["last"] = json_value(value)
        self.report_progress("training", validation=value)

    def on_checkpoint(self, state: dict[str, Any]) -> None:
        self.writer.checkpoint(state)

    def write_snapshot(self, epoch: int) -> None:
        start = time.perf_counter()
        size = self.writer.snapshot(f"epoch-{epoch:05d}", self.task.snapshot())
        self.writer.log(f"snapshot after epoch {epoch}: {time.perf_counter() - start:.3f} s, {size / 1e6:.2f} MB")

    def report_progress(self, phase: str, **values: Any) -> None:
        """Write progress to status.json and pass it, with the given values, to the caller's function."""
        trainer = self.trainer
        done, elapsed = trainer.progress, trainer.seconds
        left = elapsed * (1 - done) / done if done > 0 else None
        shown = {"phase": phase, "progress": round(done, 6), "epoch": trainer.epoch, "epochs": trainer.recipe.epochs,
                 "step": trainer.step, "seconds": round(elapsed, 3), "seconds_left": left and round(left, 1),
                 "best": json_value(trainer.best.value)}
        self.writer.heartbeat(**shown)
        if self.progress is not None:
            self.progress(shown | {"iterations": self.task.iterations, "metric": self.task.metric.name,
                                   "fallback": self.fallback} | values)
