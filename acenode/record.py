"""The training side of a run directory: status, metrics, snapshots and checkpoints, and who may write them."""

from __future__ import annotations

import io
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from acenode.errors import UserError
from acenode.files import read_json, write_atomic, write_json
from acenode.process import alive, identity
from acenode.runs import Run


class Recorder:
    """Holds a run's lock while it is trained and writes what training reports."""

    def __init__(self, run: Run) -> None:
        self.run, self.path = run, run.path
        self.lock = self.path / "lock"
        self.values: dict[str, Any] = {}
        self.beaten = self.saved = 0.0

    # Who may write --------------------------------------------------------------------------------------------

    def acquire(self) -> None:
        """Take the run, unless a living process has it."""
        mine = {**identity(), "thread": threading.get_ident(), "heartbeat": time.time()}
        for _ in range(3):
            try:
                handle = os.open(self.lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            except FileExistsError:
                try:
                    other = read_json(self.lock)
                    busy = alive(other, float(other.get("heartbeat", 0)))
                except (OSError, ValueError, AttributeError, TypeError):
                    busy = False
                if busy:
                    raise UserError(f"{self.run.id} is being trained by process {other.get('pid')}: stop it first "
                                    f"with `acenode stop {self.run.id}`") from None
                self.lock.unlink(missing_ok=True)
                continue
            with os.fdopen(handle, "w") as file:
                json.dump(mine, file)
            (self.path / "stop").unlink(missing_ok=True)
            return
        raise UserError(f"{self.run.id} is being taken by another process: try again")

    def release(self) -> None:
        self.lock.unlink(missing_ok=True)

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

    def log(self, line: str) -> None:
        with open(self.path / "log.txt", "a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")

    # Metrics --------------------------------------------------------------------------------------------------

    def append(self, records: list[dict[str, Any]]) -> None:
        """Add records to metrics.jsonl in one write; what JSON has no word for becomes null."""
        lines = "".join(json.dumps({k: _plain(v) for k, v in r.items()}) + "\n" for r in records)
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
        """Keep the training state and how far the metrics had come; then the best parameters for others to load."""
        metrics = self.path / "metrics.jsonl"
        buffer = io.BytesIO()
        torch.save({"trainer": state, "metrics_bytes": metrics.stat().st_size if metrics.exists() else 0}, buffer)
        write_atomic(self.path / "checkpoints" / "last.pt", buffer.getvalue())
        best = state["best"]
        if best["model"] is not None and best["epoch"] != self.values.get("best_epoch"):
            from safetensors.torch import save

            write_atomic(self.path / "checkpoints" / "best.safetensors",
                         save({k: v.contiguous() for k, v in best["model"].items()},
                              {"epoch": str(best["epoch"]), "value": repr(best["value"])}))
            self.values["best_epoch"] = best["epoch"]
        self.saved = time.monotonic()

    def last_checkpoint(self, device: torch.device) -> dict[str, Any] | None:
        path = self.path / "checkpoints" / "last.pt"
        return load_checkpoint(path, device) if path.exists() else None


def load_checkpoint(path: Path, device: torch.device) -> dict[str, Any]:
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # whatever a torn or foreign file makes torch raise
        raise UserError(f"{path} cannot be read ({type(error).__name__}): delete it to start the run afresh") from None


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    return value
