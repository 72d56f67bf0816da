"""The contents of a small run's files, made without training."""

from __future__ import annotations

from typing import Any

import numpy as np

CREATED = 1_700_000_000.0
CONFIG = {"format": 1, "experiment": "mnist", "method": "ace", "data": "sample", "seed": 3, "device": "cpu",
          "epochs": 2, "attention": "evolving", "solver": "dopri5"}
ENVIRONMENT = {"python": "3.11.0", "device": "cpu (test)", "versions": {"torch": "2.0"}}


def step(n: int, *, attention: bool = True, solver: bool = True) -> dict[str, Any]:
    record: dict[str, Any] = {"step": n, "epoch": n // 4, "lr": 0.1, "L_h": 2.0 / (n + 1), "accuracy": n / 10,
                              "grad_h": 0.5, "nfe_forward": 20 if solver else 0, "nfe_backward": 0, "seconds": 0.25}
    if solver:
        record |= {"dt_min": 0.1, "dt_mean": 0.2, "dt_max": 0.5}
    if attention:
        record |= {"L_a": 2.1 / (n + 1), "grad_a": 0.1, "nfe_forward_a": 26}
    return {"kind": "step", **record}


def epoch(n: int) -> dict[str, Any]:
    return {"kind": "epoch", "step": 4 * n, "epoch": n, "train_L_h": 1.0 / n, "train_accuracy": 0.3 * n,
            "validation_accuracy": 0.35 * n, "validation_loss": 1.5 / n, "best": True, "elapsed": float(n)}


def metrics(**kind: bool) -> list[dict[str, Any]]:
    """Return the records of two epochs of four steps."""
    return [record for e in (1, 2) for record in (*(step(n, **kind) for n in range(4 * e - 4, 4 * e)), epoch(e))]


def result(classes: tuple[str, ...] = ("zero", "one", "two")) -> dict[str, Any]:
    return {"test": {"accuracy": 0.75, "loss": 0.5, "nfe": 20.0}, "metric": "accuracy", "best_epoch": 2,
            "validation": 0.7, "seconds": 2.0, "steps": 8, "classes": list(classes),
            "confusion": [[4, 0, 0], [1, 3, 0], [0, 2, 2]],
            "class_accuracy": dict(zip(classes, (1.0, 0.75, 0.5), strict=True)),
            "silhouette": {"features": 0.4321, "logits": None},
            "tsne": {"x": [0.0, 1.0, 2.5], "y": [1.0, -1.0, 0.0], "label": [0, 1, 2], "index": [7, 8, 9]}}


def snapshot(seed: int = 0, *, kind: str = "elementwise", frames: int = 9, probes: int = 4) -> dict[str, np.ndarray]:
    """Return a snapshot: feature maps with elementwise attention, vectors with pairwise attention, or without a."""
    rng = np.random.default_rng(seed)
    shape = (frames, probes, 5) if kind == "pairwise" else (frames, probes, 3, 4, 4)
    h = rng.normal(size=shape).cumsum(0).astype(np.float16)
    arrays = {"t": np.linspace(0, 1, frames, dtype=np.float32), "h": h, "label": np.arange(probes) % 3}
    if kind != "none":
        arrays["a"] = rng.normal(size=(*shape, 5) if kind == "pairwise" else shape).cumsum(0).astype(np.float16)
    if kind != "pairwise":
        arrays["image"] = rng.integers(0, 256, (probes, 1, 8, 8), dtype=np.uint8)
        arrays["logits"] = rng.normal(size=(probes, 3)).astype(np.float32)
    return arrays
