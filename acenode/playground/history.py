"""A curve that never has many points, however long training goes on."""

from __future__ import annotations

MOST = 300  # points


class History:
    """Values by step. When there are too many, every second one is dropped; the newest value is always there."""

    def __init__(self) -> None:
        self.every, self.count, self.last = 1, 0, float("nan")
        self._kept: list[float] = []

    def append(self, value: float) -> None:
        """Add the value of the next step."""
        if self.count % self.every == 0:
            self._kept.append(value)
        self.count, self.last = self.count + 1, value
        if len(self._kept) > MOST:
            self._kept, self.every = self._kept[::2], 2 * self.every

    def points(self) -> tuple[list[int], list[float]]:
        """Return steps, from 1 on, and their values."""
        steps, values = [1 + i * self.every for i in range(len(self._kept))], list(self._kept)
        if steps and steps[-1] != self.count:
            steps, values = [*steps, self.count], [*values, self.last]
        return steps, values
