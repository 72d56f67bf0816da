"""The training side of a run directory: status, metrics, snapshots and checkpoints, and who may write them."""

from __future__ import annotations

import io
import json
import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import BaseFileLock

from acenode.errors import UserError
from acenode.files import discard, write_atomic, write_json
from acenode.runs.lock import try_lock
from acenode.runs.process import identity
from acenode.runs.store import Run


class Recorder:
    """Holds a run's lock while it is trained and writes what training reports."""

    def __init__(self, run: Run) -> None:
        self.run, self.path = run, run.path
        self.lock: BaseFileLock | None = None
        self.values: dict[str, Any] = {}
        self.beaten = self.saved = 0.0
        self.best_epoch: int | None = None

    # Who may write --------------------------------------------------------------------------------------------

    def acquire(self) -> None:
        """Take the run, unless another thread or process has it; the system drops the lock with the process."""
        self.lock = try_lock(self.run)
        if self.lock is None:
            raise UserError(f"{self.run.id} is being trained already: stop it first with `acenode stop {self.run.id}`")
        for part in self.path.rglob(".*.part"):  # left by a process that was killed while it wrote
            discard(part)

    def release(self) -> None:
        if self.lock is not None:
            self.lock.release()

    # Status ---------------------------------------------------------------------------------------------------

    def status(self, state: str, **values: Any) -> None:
        """Write status.json now."""
        self.values |= values
        self.beaten = time.time()
        write_json(self.path / "status.json", {"state": state, "error": None, **self.values, "heartbeat": self.beaten,
                                               "process": identity()})

    def heartbeat(self, **values: Any) -> None:
        """Progress, written at most once a second."""
        self.values |= values
        if time.time() - self.beaten > 1.0:
            self.status("running")

    def describe(self, **values: Any) -> None:
        """Add to what config.json says of the run."""
        described = self.run.description()
        if any(described.get(k) != v for k, v in values.items()):
            write_json(self.path / "config.json", described | values, indent=2)

    def log(self, line: str) -> None:
        with open(self.path / "log.txt", "a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")

    # Metrics --------------------------------------------------------------------------------------------------

    def append(self, records: list[dict[str, Any]]) -> None:
        """Add records to metrics.jsonl in one write; what JSON has no word for becomes null."""
        lines = "".join(json.dumps(plain(r)) + "\n" for r in records)
        with open(self.path / "metrics.jsonl", "ab") as file:
            file.write(lines.encode())

    def rewind(self, size: int) -> None:
        """Forget the metrics written after the checkpoint that training goes on from."""
        path = self.path / "metrics.jsonl"
        if path.exists():
            os.truncate(path, min(size, path.stat().st_size))

    # Snapshots and checkpoints --------------------------------------------------------------------------------

    def snapshot(self, name: str, arrays: dict[str, np.ndarray]) -> int:
        """Keep arrays under snapshots/; how many bytes they took."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        write_atomic(self.path / "snapshots" / f"{name}.npz", buffer.getvalue())
        return buffer.tell()

    def checkpoint(self, state: dict[str, Any]) -> None:
        """Keep the best parameters for others to load, then the training state and how far the metrics had come."""
        self.keep_best(state["best"])
        metrics = self.path / "metrics.jsonl"
        buffer = io.BytesIO()
        torch.save({"trainer": state, "metrics_bytes": metrics.stat().st_size if metrics.exists() else 0}, buffer)
        write_atomic(self.path / "checkpoints" / "last.pt", buffer.getvalue())
        self.saved = time.monotonic()

    def keep_best(self, best: dict[str, Any]) -> None:
        """Write best.safetensors, unless it is there already."""
        if best["model"] is None or best["epoch"] == self.best_epoch:
            return
        from safetensors.torch import save

        write_atomic(self.path / "checkpoints" / "best.safetensors",
                     save({k: v.contiguous() for k, v in best["model"].items()},
                          {"epoch": str(best["epoch"] + 1), "value": repr(best["value"])}))
        self.best_epoch = best["epoch"]

    def last_checkpoint(self, device: torch.device) -> dict[str, Any] | None:
        path = self.path / "checkpoints" / "last.pt"
        return load_checkpoint(path, device) if path.exists() else None


def load_checkpoint(path: Path, device: torch.device) -> dict[str, Any]:
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # whatever a torn or foreign file makes torch raise
        raise UserError(f"{path} cannot be read ({type(error).__name__}): delete it to start the run afresh") from None


def plain(value: Any) -> Any:
    """The value as JSON can carry it: null for what is not a finite number."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, list) else value
