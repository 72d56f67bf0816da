"""Write a run directory during training: status, metrics, snapshots and checkpoints."""

from __future__ import annotations

import io
import math
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import BaseFileLock

from acenode.errors import UserError
from acenode.files import discard, json_bytes, write_atomic, write_json
from acenode.runs.process import RENEW_SECONDS, identity, try_lock
from acenode.runs.store import Run, encode_record

HEARTBEAT_SECONDS = 1.0  # shortest time between two updates of status.json
RESERVED = 16_384  # bytes for the last status, also on a full disk; a status has about 1,000


class RunDeletedError(UserError):
    """The folder of the run was deleted while the run was trained."""


class RunWriter:
    """Holds a run's lock while the run is trained, and writes what training reports; status.json names `process`, by
    default this one."""

    def __init__(self, run: Run, process: dict[str, Any] | None = None) -> None:
        self.run, self.path = run, run.path
        self.process = identity() if process is None else process
        self.lock: BaseFileLock | None = None
        self.values: dict[str, Any] = {}  # written to status.json beside the state
        self.reserve = Reserve(run.path / "status.json")
        self.heartbeat_time = -math.inf  # when status.json was last written (time.monotonic)
        self._written: dict[str, Any] | None = None  # the status.json that is renewed in a long phase; None: none
        self._status_lock = threading.Lock()  # of status.json and _written
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.checkpoint_time = 0.0  # when the last checkpoint was written (time.monotonic)
        self.best_epoch: int | None = None  # of the parameters in best.safetensors

    def acquire(self) -> None:
        """Lock the run; an error if another thread or process trains it."""
        self.run.refuse_recorded("trained")
        self.lock = try_lock(self.path / "lock")
        if self.lock is None:
            raise UserError(f"{self.run.id} is being trained already: stop it first with `acenode stop {self.run.id}`")
        for part in self.path.rglob(".*.part"):  # left by a process that was killed while writing
            discard(part)
        self.reserve.make()
        self._ended.clear()
        self._thread = threading.Thread(target=self._beat, name=f"acenode-heartbeat-{self.run.id}", daemon=True)
        self._thread.start()

    def release(self) -> None:
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
        discard(self.reserve.path)
        if self.lock is not None:
            self.lock.release()

    def status(self, state: str, **values: Any) -> None:
        """Write status.json now."""
        self._check_exists()
        with self._status_lock:
            self._written = self._status(state, values)
            write_json(self.path / "status.json", self._written, make_folder=False)

    def end(self, state: str, error: str | None) -> None:
        """Write the last status, in the reserved space if the disk is full, and then a line to the log."""
        self._check_exists()
        with self._status_lock:
            status, self._written = self._status(state, {"error": error}), None
            try:
                write_json(self.path / "status.json", status, make_folder=False)
            except OSError:
                self.reserve.use(json_bytes(status))
        self.log(state + (f": {error}" if error else ""))

    def _status(self, state: str, values: dict[str, Any]) -> dict[str, Any]:
        self.values |= values
        self.heartbeat_time = time.monotonic()
        return {"state": state, "error": None, **self.values, "heartbeat": time.time(), "process": self.process}

    def heartbeat(self, **values: Any) -> None:
        """Update the progress; status.json is written at most once a second, also if the clock is set back."""
        self.values |= values
        if time.monotonic() - self.heartbeat_time > HEARTBEAT_SECONDS:
            self.status("running")

    def _beat(self) -> None:
        while not self._ended.wait(RENEW_SECONDS):
            with self._status_lock, suppress(OSError, RunDeletedError):  # training reports these itself
                if self._written is not None and time.monotonic() - self.heartbeat_time > HEARTBEAT_SECONDS:
                    self._check_exists()
                    self._written |= {"heartbeat": time.time()}
                    self.heartbeat_time = time.monotonic()
                    write_json(self.path / "status.json", self._written, make_folder=False)

    def describe(self, **values: Any) -> None:
        """Add values to config.json."""
        described = self.run.description()
        if any(described.get(k) != v for k, v in values.items()):
            write_json(self.path / "config.json", described | values, indent=2, make_folder=False)

    def log(self, line: str) -> None:
        self._check_exists()
        self.run.log(line)

    def write_result(self, result: dict[str, Any]) -> int:
        """Write result.json and return its size in bytes."""
        self._check_exists()
        write_json(self.path / "result.json", json_value(result), make_folder=False)
        return (self.path / "result.json").stat().st_size

    def _check_exists(self) -> None:
        if not (self.path / "config.json").exists():
            raise RunDeletedError(f"{self.run.id} was deleted while it was trained")

    def _write(self, folder: str, name: str, content: bytes) -> None:
        self._check_exists()
        (self.path / folder).mkdir(exist_ok=True)
        write_atomic(self.path / folder / name, content, make_folder=False)

    def append(self, records: list[dict[str, Any]]) -> None:
        """Append records to metrics.jsonl in one write; numbers that are not finite become null."""
        self._check_exists()
        lines = b"".join(encode_record(json_value(r)) for r in records)
        with open(self.path / "metrics.jsonl", "ab") as file:
            file.write(lines)

    def truncate_metrics(self, size: int) -> None:
        """Cut metrics.jsonl to `size` bytes: drop what was written after the checkpoint that training resumes from. The
        file is replaced, so that those who read what is appended notice it by the inode."""
        path = self.path / "metrics.jsonl"
        if path.exists() and path.stat().st_size > size:
            with open(path, "rb") as file:
                write_atomic(path, file.read(size), make_folder=False)

    def snapshot(self, name: str, arrays: dict[str, np.ndarray]) -> int:
        """Write arrays to snapshots/ and return the size of the file in bytes."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        self._write("snapshots", f"{name}.npz", buffer.getvalue())
        return buffer.tell()

    def checkpoint(self, state: dict[str, Any]) -> None:
        """Write the best parameters, then the training state and the size of metrics.jsonl at this moment."""
        self.save_best(state["best"])
        metrics = self.path / "metrics.jsonl"
        buffer = io.BytesIO()
        torch.save({"trainer": own_memory(state), "metrics_bytes": metrics.stat().st_size if metrics.exists() else 0},
                   buffer)
        self._write("checkpoints", "last.pt", buffer.getvalue())
        self.checkpoint_time = time.monotonic()

    def save_best(self, best: dict[str, Any]) -> None:
        """Write best.safetensors, unless it holds these parameters already."""
        if best["model"] is None or best["epoch"] == self.best_epoch:
            return
        from safetensors.torch import save

        self._write("checkpoints", "best.safetensors",
                    save({k: v.contiguous() for k, v in best["model"].items()},
                         {"epoch": str(best["epoch"] + 1), "value": repr(best["value"])}))
        self.best_epoch = best["epoch"]


class Reserve:
    """A file beside `target` that holds disk space until `target` is replaced for the last time."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target.with_name(f".{target.name}.reserve.part")  # is removed like other unfinished files

    def make(self) -> None:
        """Reserve the space, as far as there is any."""
        with suppress(OSError):
            self._write("wb", bytes(RESERVED))

    def use(self, content: bytes) -> None:
        """Replace `target` without more disk space. Raise an OSError if nothing was reserved."""
        self._write("r+b", content)
        os.replace(self.path, self.target)

    def _write(self, mode: str, content: bytes) -> None:
        with open(self.path, mode) as file:
            file.write(content)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())


def load_checkpoint(path: Path, device: torch.device) -> dict[str, Any]:
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # torch raises many kinds for incomplete and foreign files
        raise UserError(f"{path} cannot be read ({type(error).__name__}): delete it to start the run afresh") from None


def own_memory(value: Any) -> Any:
    """Copy tensors that are views of a larger one, such as of the parameters of several seeds: a file would hold it."""
    if isinstance(value, torch.Tensor):
        return value if value.untyped_storage().nbytes() == value.numel() * value.element_size() else value.clone()
    if isinstance(value, dict):
        return {k: own_memory(v) for k, v in value.items()}
    return [own_memory(v) for v in value] if isinstance(value, list) else value


def json_value(value: Any) -> Any:
    """Return the value in a form that JSON can hold: numbers that are not finite become None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: json_value(v) for k, v in value.items()}
    return [json_value(v) for v in value] if isinstance(value, list | tuple) else value
