"""Runs that consist of snapshots, and a decoder for the blocks that the player is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from export_runs import snapshot as snapshot

from acenode.runs.store import Run


def run_of(path: Path, snapshots: dict[int, dict[str, np.ndarray]]) -> Run:
    run = Run(path)
    (run.path / "snapshots").mkdir(parents=True, exist_ok=True)
    for epoch, arrays in snapshots.items():
        np.savez_compressed(run.path / "snapshots" / f"epoch-{epoch:05d}.npz", allow_pickle=False, **arrays)
    return run


def decoded(block: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the header and the arrays of a block."""
    size = int.from_bytes(block[:4], "little")
    header = json.loads(block[4:4 + size])
    arrays = {}
    for name, place in header["arrays"].items():
        start = 4 + size + place["offset"]
        assert start % 4 == 0  # a Float32Array must be aligned
        kind = np.dtype(place["dtype"])
        found = np.frombuffer(block, kind, int(np.prod(place["shape"])), start)
        arrays[name] = found.reshape(place["shape"])
    return header, arrays


def values(levels: np.ndarray, scale: dict[str, float]) -> np.ndarray:
    return np.asarray(scale["low"] + levels * (scale["high"] - scale["low"]) / 255)


def sigmoid(a: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-a.astype(np.float64))))
