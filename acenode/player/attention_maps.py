"""Attention weights as maps, one for each frame and probe."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SIDE = 40  # a wider map is averaged down to this size


@dataclass(frozen=True)
class MapKind:
    """What a map shows: its title and the names of its axes."""

    name: str
    title: str
    rows: str
    columns: str


PAIRWISE = MapKind(
    "pairwise", "Attention (softmax(a)), row i: how much of each coordinate h_j flows into h_i", "i", "j")
ELEMENTWISE = MapKind(
    "elementwise", "Attention (sigmoid(a)), mean over channels: how much of the state h passes", "row", "column")
COORDINATES = MapKind(
    "coordinates", "Attention (sigmoid(a)): how much of each coordinate of the state h passes", "", "coordinate")


def kind_of(h: np.ndarray, a: np.ndarray) -> MapKind | None:
    """Return how a (T, B, …) acts on h (T, B, …), found by their shapes; None if that cannot be drawn."""
    if h.ndim == 3 and a.shape == (*h.shape, h.shape[-1]):
        return PAIRWISE
    if a.shape != h.shape:
        return None
    return {3: COORDINATES, 4: COORDINATES, 5: ELEMENTWISE}.get(h.ndim)


def sigmoid(a: np.ndarray) -> np.ndarray:
    """Compute the sigmoid without overflow."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * a)))


def weights(a: np.ndarray, kind: MapKind, widest: int = SIDE) -> np.ndarray:
    """Return the map of each frame and probe, (T, B, rows, columns), averaged down if wider than `widest`."""
    a = a.astype(np.float32)
    if kind is PAIRWISE:
        e = np.exp(a - a.max(-1, keepdims=True))
        return pooled(e / e.sum(-1, keepdims=True), widest)
    passed = sigmoid(a)
    if a.ndim > 3:
        passed = passed.mean(2)  # over channels
    return pooled(passed if a.ndim == 5 else passed[:, :, None], widest)


def pooled(maps: np.ndarray, widest: int = SIDE) -> np.ndarray:
    """Average neighbouring cells until no side is above `SIDE`, if one is above `widest`."""
    if max(maps.shape[-2:]) <= widest:
        return maps
    for axis in (-2, -1):
        size = maps.shape[axis]
        if size > SIDE:
            edges = np.linspace(0, size, SIDE + 1).astype(int)
            shape = [1] * maps.ndim
            shape[axis] = SIDE
            maps = np.add.reduceat(maps, edges[:-1], axis=axis) / np.diff(edges).reshape(shape)
    return maps


def change(a: np.ndarray) -> np.ndarray:
    """Return ‖a(t) − a(0)‖ / ‖a(0)‖ of each frame and probe, (T, B); not divided if a(0) = 0."""
    flat = a.astype(np.float64).reshape(*a.shape[:2], -1)
    start = np.linalg.norm(flat[0], axis=-1)
    return np.linalg.norm(flat - flat[0], axis=-1) / np.where(start > 0, start, 1.0)
