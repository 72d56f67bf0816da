"""One run from beginning, or from where it stopped, to end, in the calling thread."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from acenode import experiments
from acenode.accelerate.cuda_graph.capture import own_stream
from acenode.accelerate.cuda_graph.graph import engine_for
from acenode.accelerate.dispatch import Backend
from acenode.config import Config
from acenode.config.groups import RecordingSettings
from acenode.errors import SolveError, UserError, is_out_of_memory
from acenode.execution.environment import backend_of, describe, device_of, repeatable
from acenode.experiments.base import LabTask
from acenode.files import write_json
from acenode.runs.store import Run, RunStore
from acenode.runs.writer import RunWriter, json_value
from acenode.training.trainer import Trainer, TrainingError

CHECKPOINT_SECONDS = 20.0  # longest time between checkpoints
Progress = Callable[[dict[str, Any]], None]
KEPT = ("progress", "epoch", "epochs", "seconds", "best", "last", "metric")  # of the status, until there is news


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    run: Run
    state: str  # finished | stopped | failed
    metrics: dict[str, float]
    seconds: float
    params: int
    error: str | None = None


def create(store: RunStore, config: Config) -> Run:
    """A queued run, once its configuration has been found to make a model."""
    device = device_of(config.device)
    params = experiments.get(config.experiment).count(config)
    return store.create(config, {"environment": describe(device), "params": params})


def execute(run: Run, data_root: Path, *, stop: threading.Event | None = None,
            progress: Progress | None = None) -> Outcome:
    """Train, test once at the best parameters, report. What goes wrong ends this run alone, in words."""
    config = run.config()
    if run.status()["state"] == "finished" and run.result() is not None:
        raise UserError(f"{run.id} is finished: there is nothing to resume")
    recorder = RunWriter(run)
    recorder.acquire()
    listener = _Listener(recorder, config, stop or threading.Event(), progress)
    params = int(run.description().get("params", 0))
    metrics: dict[str, float] = {}
    seconds, error = 0.0, None
    try:
        try:
            before = run.status()
            recorder.status("running", began=time.time(), **{k: before[k] for k in KEPT if k in before})
            metrics, seconds = _train(recorder, listener, config, data_root)
            state = "finished" if metrics else "stopped"
        except KeyboardInterrupt:  # outside an iteration, where the trainer could not save
            state = "stopped"
        except Exception as trouble:
            state, error = "failed", _words(trouble)
            if isinstance(trouble, UserError):
                recorder.status("failed", error=error)
                raise
        if state == "finished":
            recorder.values["progress"] = 1.0
        with contextlib.suppress(OSError):  # a full disk is what may have ended it
            recorder.status(state, error=error)
            recorder.log(state + (f": {error}" if error else ""))
    finally:
        recorder.release()
    return Outcome(run, state, metrics, seconds, params, error)


def _train(recorder: RunWriter, listener: _Listener, config: Config, data_root: Path) -> tuple[dict[str, float], float]:
    """Test metrics and training time; no metrics where the run was stopped."""
    device = device_of(config.device)
    repeatable(device)
    backend = backend_of(config.get("engine"), recorder.log, lambda name: recorder.describe(series_by=name))
    with own_stream(device), contextlib.ExitStack() as afterwards:
        afterwards.callback(listener.end)
        return _train_on(device, backend, recorder, listener, config, data_root, afterwards)


def _train_on(device: torch.device, backend: Backend, recorder: RunWriter, listener: _Listener, config: Config,
              data_root: Path, afterwards: contextlib.ExitStack) -> tuple[dict[str, float], float]:
    task = experiments.get(config.experiment).make(config, data_root, device, backend)
    if getattr(task, "partial", False):  # a number on a part of the data stands beside none of the paper's
        recorder.describe(partial=True)
    recipe = task.recipe()
    name, engine = engine_for(task, device, config.get("engine"), recorder.log, task.iterations * recipe.epochs,
                              backend)
    if engine is not None:
        afterwards.callback(engine.close)
        engine.on_giving_up = lambda: recorder.describe(trained_by="native")
    if name is not None:
        recorder.describe(trained_by=name)
    trainer = Trainer(task, recipe, listener, engine)
    listener.begin(trainer, task)
    saved = recorder.last_checkpoint(device)
    if saved is None:
        recorder.truncate_metrics(0)
        recorder.log(f"started on {device}")
        listener.keep_snapshot(0)
    else:
        recorder.truncate_metrics(saved["metrics_bytes"])
        trainer.load_state_dict(saved["trainer"])
        recorder.log(f"resumed on {device} at epoch {trainer.epoch}, iteration {trainer.iteration}")
    if not trainer.run():
        return {}, trainer.seconds
    listener.announce("testing")
    best = trainer.best
    recorder.save_best({"value": best.value, "epoch": best.epoch, "model": best.model})
    result = _test(trainer, task)
    if not result["test_last"] or not result["test"]:  # asked to stop meanwhile: resumed, it is tested again
        return {}, trainer.seconds
    write_json(recorder.path / "result.json", json_value(result))
    try:
        write_json(recorder.path / "result.json", json_value(result | task.report()))
    except Exception as trouble:  # the numbers stand without their pictures
        recorder.log(f"no analysis: {_words(trouble)}")
    # what a list of runs shows, so that it need not read a result of many points; the size says which result it was
    recorder.values |= json_value({k: result[k] for k in ("test", "test_last", "metric", "best_epoch")})
    recorder.values["result_bytes"] = (recorder.path / "result.json").stat().st_size
    return result["test"], trainer.seconds


def _test(trainer: Trainer, task: LabTask) -> dict[str, Any]:
    """The test set, read once: at the best parameters, and for comparison at the last ones."""
    best = trainer.best
    assert best.model is not None
    last = task.evaluate("test")
    task.model.load_state_dict(best.model)
    return {"test": task.evaluate("test") if last else {}, "test_last": last, "metric": task.metric.name,
            "best_epoch": (best.epoch or 0) + 1, "validation": best.value, "seconds": trainer.seconds,
            "steps": trainer.step}


class _Listener:
    """Carries what the trainer reports into the run directory."""

    def __init__(self, recorder: RunWriter, config: Config, stop: threading.Event, progress: Progress | None) -> None:
        self.recorder, self.config, self.stop, self.progress = recorder, config, stop, progress
        self.stop_file = recorder.path / "stop"

    def begin(self, trainer: Trainer, task: LabTask) -> None:
        self.trainer, self.task = trainer, task
        self.recorder.values["metric"] = task.metric.name
        epochs = trainer.recipe.epochs
        count = min(self.config.part(RecordingSettings).snapshots, epochs + 1)
        self.snapshot_epochs = {round(i * epochs / (count - 1)) for i in range(count)}
        self.recorder.checkpoint_time = time.monotonic()

    def end(self) -> None:
        """Let go of the model: trainer and listener hold each other, and device memory should not wait for that."""
        self.__dict__.pop("trainer", None)
        self.__dict__.pop("task", None)

    def stop_requested(self) -> bool:
        return self.stop.is_set() or self.stop_file.exists()

    def on_steps(self, records: list[dict[str, Any]]) -> None:
        self.recorder.append([{"kind": "step", **r} for r in records])
        self.announce("training", **{k: v for k, v in records[-1].items() if k in ("L_h", "L_a")})

    def announce(self, phase: str, **values: Any) -> None:
        """Progress for status.json and for whoever waits."""
        trainer = self.trainer
        done, elapsed = trainer.progress, trainer.seconds
        left = elapsed * (1 - done) / done if done > 0 else None
        shown = {"phase": phase, "progress": round(done, 6), "epoch": trainer.epoch, "epochs": trainer.recipe.epochs,
                 "step": trainer.step, "seconds": round(elapsed, 3), "seconds_left": left and round(left, 1),
                 "best": json_value(trainer.best.value)}
        self.recorder.heartbeat(**shown)
        if self.progress is not None:
            self.progress(shown | {"iterations": self.task.iterations, "metric": self.task.metric.name} | values)

    def on_epoch(self, record: dict[str, Any]) -> None:
        self.recorder.append([{"kind": "epoch", **record}])
        if record["epoch"] in self.snapshot_epochs:
            self.keep_snapshot(record["epoch"])
        value = record[f"validation_{self.task.metric.name}"]
        self.recorder.values["last"] = json_value(value)
        self.announce("training", validation=value)

    def keep_snapshot(self, epoch: int) -> None:
        start = time.perf_counter()
        size = self.recorder.snapshot(f"epoch-{epoch:05d}", self.task.snapshot())
        self.recorder.log(f"snapshot after epoch {epoch}: {time.perf_counter() - start:.3f} s, {size / 1e6:.2f} MB")

    def checkpoint_due(self) -> bool:
        longest = self.config.get("checkpoint_seconds")  # only in runs of version 0.1
        return time.monotonic() - self.recorder.checkpoint_time >= (CHECKPOINT_SECONDS if longest is None else longest)

    def on_checkpoint(self, state: dict[str, Any]) -> None:
        self.recorder.checkpoint(state)


def _words(trouble: Exception) -> str:
    """What went wrong and what to try, in one line."""
    if is_out_of_memory(trouble):
        return "out of memory: use a smaller batch_size, gradient=checkpointed, or another device"
    if isinstance(trouble, SolveError | TrainingError | UserError):
        return str(trouble)
    if isinstance(trouble, OSError):
        return f"{trouble.strerror or trouble}: {trouble.filename or 'a file of the run'} could not be written or read"
    return f"{type(trouble).__name__}: {trouble}".splitlines()[0]


@contextlib.contextmanager
def stop_on_interrupt() -> Iterator[threading.Event]:
    """Ctrl-C and a polite kill ask the run to stop after this iteration; a second Ctrl-C is an interrupt again."""
    stop = threading.Event()

    def ask(number: int, frame: object) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {s: signal.signal(s, ask) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


