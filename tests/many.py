"""Many finished runs, written by hand in no time: what a long-used folder of runs looks like."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from acenode import experiments
from acenode.process import identity
from acenode.runs import Run

CREATED = 1_750_000_000.0
SIZE = 100_000  # bytes of a result.json with t-SNE points


def finished_runs(root: Path, count: int, *, seconds: float = 30.0, old: bool = False, **given: Any) -> list[Run]:
    """`count` finished runs on the digits, oldest first; `old` ones have no test metrics in their status."""
    config = experiments.get("mnist").configure("ace", **{"device": "cpu", **given}).to_dict()
    points = _points()
    return [_finished(root / f"mnist-ace-{i:05d}", i, {**config, "seed": i}, points, seconds, old)
            for i in range(count)]


def _finished(path: Path, i: int, config: dict[str, Any], points: list[list[float]], seconds: float,
              old: bool) -> Run:
    test = {"accuracy": 0.9 + i % 100 / 1000, "loss": 0.3, "nfe": 20.0}
    result = json.dumps({"test": test, "test_last": test, "metric": "accuracy", "best_epoch": 7, "validation": 0.95,
                         "seconds": seconds, "steps": 276, "tsne": points})
    known = {} if old else {"test": test, "metric": "accuracy", "best_epoch": 7, "result_bytes": len(result),
                            "began": CREATED + i, "last": 0.94}
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
    rng = random.Random(0)
    return [[rng.uniform(-50, 50), rng.uniform(-50, 50)] for _ in range(SIZE // 42)]
