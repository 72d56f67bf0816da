"""Scale variables: as in the published results, or by statistics of the training data only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FLOOR = 1e-6  # variables with a smaller standard deviation are only shifted


@dataclass(frozen=True, eq=False)
class Scale:
    """x' = (x − shift) / scale for each variable."""

    shift: np.ndarray  # (D,) float32
    scale: np.ndarray  # (D,) float32, never 0

    def apply(self, x: np.ndarray, m: np.ndarray) -> np.ndarray:
        """Scale x (…, D); unobserved values stay 0."""
        return np.where(m, (x - self.shift) / self.scale, np.float32(0)).astype(np.float32)

    def invert(self, x: np.ndarray) -> np.ndarray:
        """Convert back to raw units."""
        return (x * self.scale + self.shift).astype(np.float32)

    @classmethod
    def comparable(cls, x: np.ndarray, m: np.ndarray) -> Scale:
        """Scale to (x − min) / max of all observed values: divided by the maximum, not the range, as in the published
        results."""
        seen = m.any(axis=0)
        low = np.where(seen, np.where(m, x, np.inf).min(axis=0, initial=np.inf), 0.0)
        high = np.where(seen, np.where(m, x, -np.inf).max(axis=0, initial=-np.inf), 0.0)
        return cls(low.astype(np.float32), np.where(high == 0, 1.0, high).astype(np.float32))

    @classmethod
    def standard(cls, x: np.ndarray, m: np.ndarray) -> Scale:
        """Scale to mean 0 and standard deviation 1 of the observed values; fit it on training records only."""
        count = np.maximum(m.sum(axis=0), 1)
        mean = np.where(m, x, 0.0).sum(axis=0, dtype=np.float64) / count
        spread = np.sqrt(np.where(m, (x - mean) ** 2, 0.0).sum(axis=0, dtype=np.float64) / count)
        return cls(mean.astype(np.float32), np.where(spread < FLOOR, 1.0, spread).astype(np.float32))
