"""Write synthetic run folders for benchmarks and tests: many runs, long runs, and runs with large maps."""

from __future__ import annotations

import json
import math
import random
import time
from pathlib import Path
from typing import Any

import numpy as np

from acenode import experiments
from acenode.execution.execute import create
from acenode.runs.process import identity
from acenode.runs.store import Run, RunStore
from acenode.runs.writer import RunWriter

CREATED = 1_750_000_000.0
RESULT_BYTES = 100_000  # of a result.json with t-SNE points


def finished_runs(root: Path, count: int, *, experiment: str = "mnist", seconds: float = 30.0, old: bool = False,
                  **given: Any) -> list[Run]:
    """Write `count` finished ACE runs, oldest first; `old` ones have no test metrics in their status."""
    config = experiments.get(experiment).configure("ace", **{"device": "cpu", **given}).to_dict()
    points = _points()
    return [_finished(root / f"{experiment}-ace-{i:05d}", i, {**config, "seed": i}, points, seconds, old)
            for i in range(count)]


def _finished(path: Path, i: int, config: dict[str, Any], points: list[list[float]], seconds: float,
              old: bool) -> Run:
    test = {"accuracy": 0.9 + i % 100 / 1000, "loss": 0.3, "nfe": 20.0}
    result = json.dumps({"test": test, "test_last": test, "metric": "accuracy", "best_epoch": 7, "validation": 0.95,
                         "seconds": seconds, "steps": 276, "tsne": points})
    known = {} if old else {"test": test, "metric": "accuracy", "test_last": test, "best_epoch": 7,
                            "result_bytes": len(result), "began": CREATED + i, "last": 0.94}
    path.mkdir(parents=True)
    for name, value in (
        ("config.json", {"format": 1, "id": path.name, "created": CREATED + i, "config": config, "params": 31_690,
                         "environment": {"device": "cpu (x86_64)", "threads": 1, "python": "3.12.3",
                                         "versions": {"acenode": "0.1.0", "torch": "2.13.0"}}}),
        ("status.json", {"state": "finished", "error": None, "progress": 1.0, "phase": "testing",
                         "epoch": config["epochs"], "epochs": config["epochs"], "step": 276, "seconds": seconds,
                         "seconds_left": 0.0, "best": 0.95, **known, "heartbeat": CREATED + i + seconds,
                         "process": identity()}),
    ):
        (path / name).write_text(json.dumps(value))
    (path / "result.json").write_text(result)
    return Run(path)


def _points() -> list[list[float]]:
    """Return random t-SNE points."""
    rng = random.Random(0)
    return [[rng.uniform(-50, 50), rng.uniform(-50, 50)] for _ in range(RESULT_BYTES // 42)]


def long_run(store: RunStore, steps: int, state: str = "finished") -> Run:
    """Write a run with that many step records, as if this process had trained it."""
    run = create(store, experiments.get("mnist").configure("ace", device="cpu"))
    rng = np.random.default_rng(0)
    with open(run.path / "metrics.jsonl", "w", encoding="utf-8") as file:
        for i in range(steps):
            loss = 2 * math.exp(-i / steps * 4) + 0.1 * float(rng.random())
            file.write(json.dumps({"kind": "step", "step": i, "epoch": i // 100, "lr": 0.1, "L_h": loss,
                                   "L_a": loss * 1.1, "accuracy": 1 - loss / 3, "grad_h": loss, "grad_a": loss / 2,
                                   "nfe_forward": 20,
                                   "nfe_backward": 0, "dt_min": 0.1, "dt_mean": 0.3, "dt_max": 0.5,
                                   "seconds": 0.1}) + "\n")
    RunWriter(run).status(state, progress=0.5, epoch=1, epochs=2, seconds=1.0, began=time.time())
    return run


def run_with_large_maps(store: RunStore, frames: int = 60, probes: int = 2, channels: int = 4, side: int = 64) -> Run:
    """Write a run with one snapshot of large maps, of the most frames that the player receives in full."""
    run = long_run(store, 50)
    rng = np.random.default_rng(0)
    start, end = (rng.normal(size=(probes, channels, side, side)).astype(np.float32) for _ in range(2))
    t = np.linspace(0, 1, frames, dtype=np.float32)
    states = (start + t[:, None, None, None, None] * (end - start)).astype(np.float16)
    RunWriter(run).snapshot("epoch-00000", {
        "t": t, "h": states, "a": -states, "image": np.zeros((probes, 1, 28, 28), dtype=np.uint8),
        "label": np.arange(probes), "logits": np.zeros((probes, 10), dtype=np.float32)})
    return run
