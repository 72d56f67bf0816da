"""Execute one run in the calling thread, from the beginning or from its last checkpoint.

    create   check the configuration and make the run directory
    execute  train, test once with the best parameters, write the result; an error fails this run only
    attempt  execute in the background: every error ends in status.json
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from acenode import experiments
from acenode.backend import Backend
from acenode.config import Config
from acenode.config.groups import SnapshotSettings
from acenode.errors import SolveError, UserError, is_out_of_memory
from acenode.execution.engine_choice import EngineChoice, SeedGroup, choose_engine
from acenode.execution.environment import chosen_device, describe, device_of, device_title, run_context, warnings_logged
from acenode.experiments.base import LabTask
from acenode.files import NO_ROOM
from acenode.runs.store import Run, RunStore
from acenode.runs.writer import RunDeletedError, RunWriter, json_value, load_checkpoint
from acenode.training.task import PiecewiseTask
from acenode.training.trainer import Trainer, TrainingError

KEPT_STATUS = ("progress", "epoch", "epochs", "seconds", "best", "last", "metric")  # shown until training reports anew
IN_STATUS = ("test", "test_last", "metric", "best_epoch")  # of the result, so that lists of runs need not read it
CHECKPOINT_SECONDS = 20.0  # longest time between checkpoints

Progress = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    run: Run
    state: str  # finished | stopped | failed
    metrics: dict[str, float]
    seconds: float
    params: int
    error: str | None = None


def create(store: RunStore, config: Config, extra: Mapping[str, Any] | None = None, *, elsewhere: bool = False) -> Run:
    """Create a queued run; raise UserError if no model can be built from its configuration.

    `extra` is added to config.json. A run with `search`, the name of a search, is a trial of it and is never tested.
    With `elsewhere`, the run is trained on a machine that is not known yet, and may need a device that is not here.
    """
    environment = {} if elsewhere else {"environment": describe(device_of(config.device))}
    params = experiments.get(config.experiment).count(config)
    return store.create(config, {**environment, "params": params, **(extra or {})})


def refuse_finished(run: Run) -> None:
    """Raise a UserError if a run has its result, or is a trial that has ended."""
    if run.status()["state"] == "finished" and (run.result() is not None or run.is_trial):
        raise UserError(f"{run.id} is finished: there is nothing to resume")


def execute(run: Run, data_root: Path, *, stop: threading.Event | None = None,
            progress: Progress | None = None, process: dict[str, Any] | None = None,
            device: str | None = None, group: SeedGroup | None = None) -> Outcome:
    """Train and test a run, and write the result to its directory.

    Args:
        run: a run that is not finished; one with a checkpoint continues from it.
        data_root: the folder with the data sets.
        stop: the run stops after the current iteration once this is set.
        progress: called with the run's progress about twice a second.
        process: the process that readers of the run should look for, if it trains the run by this one.
        device: where to train, such as cuda:0; by default the least busy device that the configuration allows.
        group: the runs of other seeds with which its passes are one computation.

    An error that the user can correct is raised as a UserError; any is in status.json, others in the outcome.
    """
    config = run.config()
    refuse_finished(run)
    writer = RunWriter(run, process)
    writer.acquire()
    listener = RunListener(writer, config, stop or threading.Event(), progress)
    params = int(run.description().get("params", 0))
    metrics: dict[str, float] | None = None
    seconds, error = 0.0, None
    try:
        try:
            before = run.status()
            with chosen_device(device or config.device, run.path.parent) as place:
                writer.status("running", began=time.time(), device=str(place),
                              **{k: before[k] for k in KEPT_STATUS if k in before})
            if process is not None and not (run.path / "checkpoints" / "last.pt").exists():
                writer.describe(environment=describe(place))
            metrics, seconds = _train_and_test(place, writer, listener, config, data_root, group)
            state = "stopped" if metrics is None else "finished"
        except KeyboardInterrupt:  # between iterations, where the trainer did not save
            state = "stopped"
        except Exception as exception:
            state, error = "failed", error_message(exception)
            if isinstance(exception, UserError):
                with contextlib.suppress(OSError, RunDeletedError):
                    writer.end("failed", error)
                raise
        if state == "finished":
            writer.values["progress"] = 1.0
        with contextlib.suppress(OSError):  # the disk may be full
            writer.end(state, error)
    finally:
        writer.release()
    return Outcome(run, state, metrics or {}, seconds, params, error)


def attempt(run: Run, data_root: Path, stop: threading.Event, device: str | None = None, *,
            process: dict[str, Any] | None = None, group: SeedGroup | None = None) -> str | None:
    """Execute a run without raising: whatever ends it is in its status.json. Return the state in there, if any."""
    try:
        execute(run, data_root, stop=stop, process=process, device=device, group=group)
    except UserError as error:  # already in status.json, unless the run never started
        with contextlib.suppress(UserError, OSError):
            if run.stored_state() == "queued":
                run.set_state("failed", error=str(error))
    except BaseException as error:  # a bug must not leave the run in state `running`
        with contextlib.suppress(Exception):
            run.set_state("failed", error=f"{type(error).__name__}: {error}".splitlines()[0])
    with contextlib.suppress(UserError, OSError):
        return run.stored_state()
    return None


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


def _train_and_test(device: torch.device, writer: RunWriter, listener: RunListener, config: Config,
                    data_root: Path, group: SeedGroup | None) -> tuple[dict[str, float] | None, float]:
    """Return test metrics and training time; None if the run was stopped, and no metrics of the trial of a search. The
    model exists in `_train_on` only, so that its memory is unused when the context ends and frees it."""
    environment = writer.run.description().get("environment")
    if isinstance(environment, dict):  # on what the run is trained was a guess when it was created
        writer.describe(environment=environment | {"device": device_title(device)})
    with (warnings_logged(writer.log),
          run_context(device, config.get("engine"), writer.log,
                      lambda name: writer.describe(series_by=name)) as backend,
          contextlib.ExitStack() as at_end):
        at_end.callback(listener.end)
        return _train_on(device, backend, writer, listener, config, data_root, at_end, group)


def _train_on(device: torch.device, backend: Backend, writer: RunWriter, listener: RunListener, config: Config,
              data_root: Path, at_end: contextlib.ExitStack,
              group: SeedGroup | None) -> tuple[dict[str, float] | None, float]:
    try:
        task = experiments.get(config.experiment).make(config, data_root, device, backend)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise TrainingError("out of memory while the data was loaded: end other programs and runs, or use a machine "
                            "or device with more memory") from error
    if getattr(task, "partial", False):  # results on a part of the data are not compared with the paper's
        writer.describe(partial=True)
    if note := getattr(task, "data_note", ""):
        writer.describe(data_note=note)
    last = writer.path / "checkpoints" / "last.pt"
    saved = load_checkpoint(last, device) if last.exists() else None
    if fingerprint := getattr(task, "data_fingerprint", ""):
        if saved is not None and writer.run.description().get("data_fingerprint") not in (None, fingerprint):
            raise UserError(f"the imported set of {writer.run.id} has changed since it began, so it cannot be resumed: "
                            "train a new run")
        writer.describe(data_fingerprint=fingerprint)
    trainer = _make_trainer(task, device, backend, writer, listener, config, at_end, group)
    writer.truncate_metrics(0 if saved is None else saved["metrics_bytes"])
    if saved is None:
        writer.log(f"started on {device}")
        listener.write_snapshot(0)
    else:
        if changed := writer.run.changed_metrics():
            writer.log(changed)
        trainer.load_state_dict(saved["trainer"])
        writer.log(f"resumed on {device} at epoch {trainer.epoch}, iteration {trainer.iteration}")
    if not trainer.run():
        return None, trainer.seconds
    best, trial = trainer.best, writer.run.is_trial
    listener.report_progress("training" if trial else "testing")
    writer.save_best({"value": best.value, "epoch": best.epoch, "model": best.model})
    return {} if trial else _test(trainer, task, config, writer), trainer.seconds


def _make_trainer(task: LabTask, device: torch.device, backend: Backend, writer: RunWriter, listener: RunListener,
                  config: Config, at_end: contextlib.ExitStack, group: SeedGroup | None) -> Trainer:
    """Return a trainer with the engine of the run, and record in config.json which engine that is."""
    recipe = task.recipe()
    if group is None:
        chosen = choose_engine(task, device, config.get("engine"), backend)
    else:
        assert isinstance(task, PiecewiseTask)
        chosen = EngineChoice("native", group.engine(task, backend))
    listener.fallback = chosen.fallback
    if chosen.engine is not None:
        at_end.callback(chosen.engine.close)

        def fall_back(line: str) -> None:
            writer.describe(trained_by="native")
            listener.fallback = line

        chosen.engine.on_fallback = fall_back
    if chosen.name is not None:
        writer.describe(trained_by=chosen.name)
    trainer = Trainer(task, recipe, listener, chosen.engine)
    listener.begin(trainer, task)
    return trainer


def _test(trainer: Trainer, task: LabTask, config: Config, writer: RunWriter) -> dict[str, float] | None:
    """Test the last and the best parameters and write the result; None if stopped meanwhile: a resumed run tests."""
    best = trainer.best
    assert best.model is not None
    last = task.evaluate("test")
    task.model.load_state_dict(best.model)
    metrics = task.evaluate("test") if last else {}
    if not metrics:
        return None
    bad = next((name for name, value in metrics.items() if not math.isfinite(value)), None)
    if bad is not None:
        rate = config.get("learning_rate")
        raise TrainingError(f"the test {bad} is {metrics[bad]}, not a number: lower the learning rate"
                            + (f" (now {rate:g})" if rate is not None else ""))
    result = {"test": metrics, "test_last": last, "metric": task.metric.name, "best_epoch": (best.epoch or 0) + 1,
              "validation": best.value, "seconds": trainer.seconds, "steps": trainer.step}
    size = writer.write_result(result)
    try:
        size = writer.write_result(result | task.report())
    except Exception as exception:
        writer.log(f"no analysis: {error_message(exception)}")
    writer.values |= json_value({k: result[k] for k in IN_STATUS})
    writer.values["result_bytes"] = size  # identifies the result that these values are from
    return metrics


def error_message(exception: Exception) -> str:
    """Return, in one line, what went wrong and what to try."""
    if isinstance(exception, SolveError | TrainingError | UserError):
        return str(exception)
    if is_out_of_memory(exception):
        return "out of memory: use a smaller batch_size, gradient=checkpointed, or another device"
    if isinstance(exception, OSError):
        if exception.errno in NO_ROOM:
            return f"no room for the run's files ({exception.strerror}): free disk space, then resume the run"
        file = exception.filename or "a file of the run"
        return f"{exception.strerror or exception}: {file} could not be written or read"
    return f"{type(exception).__name__}: {exception}".splitlines()[0]
