"""The first two principal components of points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Components:
    """Points in the plane of largest variance, and each axis's share of the variance."""

    points: np.ndarray  # (N, 2)
    shares: np.ndarray  # (2,)


def principal(x: np.ndarray) -> Components:
    """Project x (N, D) onto its first two principal components, from the smaller of XᵀX and XXᵀ."""
    x = np.asarray(x, dtype=np.float64)
    x = x - x.mean(0)
    if x.shape[1] <= x.shape[0]:
        values, vectors = np.linalg.eigh(x.T @ x)  # ascending
        points = x @ vectors[:, ::-1][:, :2]
    else:
        values, vectors = np.linalg.eigh(x @ x.T)
        points = vectors[:, ::-1][:, :2] * np.sqrt(np.maximum(values[::-1][:2], 0))
    points = np.pad(points, ((0, 0), (0, 2 - points.shape[1])))  # data with one coordinate has no second component
    largest = np.take_along_axis(points, np.abs(points).argmax(0)[None], 0)
    points = points * np.where(largest < 0, -1.0, 1.0)  # the sign is arbitrary: make the farthest point positive
    total = np.square(x).sum()
    return Components(points, np.square(points).sum(0) / total if total > 0 else np.zeros(2))
