"""Run folders to measure with: many, long ones, and ones with large maps. Made up, so never shown as results."""

from __future__ import annotations

import json
import math
import time

import numpy as np

from acenode import experiments
from acenode.config import FORMAT
from acenode.execute import create
from acenode.files import write_json
from acenode.process import identity
from acenode.record import Recorder
from acenode.runs import Run, RunStore


def many_runs(root: object, count: int) -> None:
    """Finished runs with results of about 100 KB each."""
    store = RunStore(str(root))
    first = create(store, experiments.get("mnist").configure("ace"))
    description = json.loads((first.path / "config.json").read_text(encoding="utf-8"))
    points = {"x": [0.123] * 5000, "y": [0.456] * 5000, "label": [1] * 5000, "index": list(range(5000))}
    for i in range(count):
        path = store.root / f"mnist-ace-{i:05d}"
        path.mkdir()
        write_json(path / "config.json", description | {"id": path.name, "created": time.time() - i, "format": FORMAT})
        tested = {"test": {"accuracy": 0.9}, "test_last": {"accuracy": 0.9}, "metric": "accuracy", "best_epoch": 3}
        write_json(path / "result.json", {**tested, "seconds": 9.0, "tsne": points})
        status = {"state": "finished", "progress": 1.0, "error": None, "heartbeat": time.time(), "process": identity(),
                  **tested, "seconds": 9.0, "result_bytes": (path / "result.json").stat().st_size}
        write_json(path / "status.json", status)
    first.delete()


def long_run(store: RunStore, steps: int, state: str = "finished") -> Run:
    """A run with that many step records, as if this process trained it."""
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
    Recorder(run).status(state, progress=0.5, epoch=1, epochs=2, seconds=1.0, began=time.time())
    return run


def wide_film(store: RunStore, frames: int = 60, probes: int = 2, channels: int = 4, side: int = 64) -> Run:
    """A run with one snapshot of large maps, as many as the player is sent every frame of."""
    run = long_run(store, 50)
    rng = np.random.default_rng(0)
    start, end = (rng.normal(size=(probes, channels, side, side)).astype(np.float32) for _ in range(2))
    t = np.linspace(0, 1, frames, dtype=np.float32)
    states = (start + t[:, None, None, None, None] * (end - start)).astype(np.float16)
    Recorder(run).snapshot("epoch-00000", {
        "t": t, "h": states, "a": -states, "image": np.zeros((probes, 1, 28, 28), dtype=np.uint8),
        "label": np.arange(probes), "logits": np.zeros((probes, 10), dtype=np.float32)})
    return run
