"""Runs that consist of snapshots, and a decoder for the blocks that the player is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from acenode.runs.store import Run


def snapshot(seed: int = 0, *, kind: str = "elementwise", frames: int = 9, probes: int = 4) -> dict[str, np.ndarray]:
    """Return a snapshot: feature maps with elementwise attention, vectors with pairwise attention, or without a."""
    rng = np.random.default_rng(seed)
    shape = (frames, probes, 5) if kind in ("pairwise", "coordinates") else (frames, probes, 3, 4, 4)
    arrays: dict[str, np.ndarray] = {"t": np.linspace(0, 1, frames, dtype=np.float32), "label": np.arange(probes) % 3}
    arrays["h"] = rng.normal(size=shape).cumsum(0).astype(np.float16)
    if kind != "none":
        arrays["a"] = rng.normal(size=(*shape, 5) if kind == "pairwise" else shape).cumsum(0).astype(np.float16)
    if len(shape) == 5:
        arrays["image"] = rng.integers(0, 256, (probes, 1, 8, 8), dtype=np.uint8)
        arrays["logits"] = rng.normal(size=(probes, 3)).astype(np.float32)
    return arrays


def stations(seed: int = 0, *, attention: bool = True, frames: int = 101, probes: int = 4, d: int = 8
             ) -> dict[str, np.ndarray]:
    """Return a snapshot of named probes whose states jump at observations."""
    rng, t = np.random.default_rng(seed), np.linspace(0, 200, frames)
    jumps = np.full((probes, 60), np.nan, np.float32)
    h = 0.4 * np.sin(t[:, None, None] / rng.uniform(8, 30, (probes, d)))
    for p in range(probes):
        own = np.sort(np.random.default_rng(p).choice(1500, 40 + 6 * p, replace=False)) / 10
        jumps[p, :own.size] = own[:60]
        steps = np.searchsorted(own, t, side="right")
        h[:, p] += np.r_[np.zeros((1, d)), rng.normal(size=(own.size, d)).cumsum(0) * 0.25][steps]
    arrays = {"t": t.astype(np.float32), "h": h.astype(np.float16), "jumps": jumps,
              "name": np.array([f"USC0001{p:04d}" for p in range(probes)])}
    if attention:
        weights = rng.normal(size=(d, d)) @ np.tanh(h[..., None] * h[..., None, :])
        arrays["a"] = weights.astype(np.float16)
    return arrays


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
