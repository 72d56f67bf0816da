"""Launches of Triton kernels wait for each other: the first one compiles, which is not for two threads at once.

The lock is held for a launch and no longer: whoever holds it must not wait for torch's own threads, which launch too.
"""

from __future__ import annotations

import threading
from typing import Any

_launching = threading.Lock()


class OneAtATime:
    """A kernel, launched as ever: kernel[grid](…)."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        launch = self.kernel[grid]

        def once(*args: Any, **kwargs: Any) -> None:
            with _launching:
                launch(*args, **kwargs)

        return once
