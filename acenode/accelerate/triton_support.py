"""What all Triton kernels share: one launch at a time, block sizes, and the largest index."""

from __future__ import annotations

import threading
from typing import Any

MAX_ELEMENTS = 2**31  # of a tensor: kernels compute indices in 32 bits
_launching = threading.Lock()


class Serialised:
    """A Triton kernel whose launches, `kernel[grid](…)`, take turns between threads: the first launch compiles.

    The lock covers the launch alone. Code that holds it must not wait for torch's own threads, which launch too.
    """

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        launch = self.kernel[grid]

        def locked(*args: Any, **kwargs: Any) -> None:
            with _launching:
                launch(*args, **kwargs)

        return locked


def block_size(*sizes: int) -> int:
    """Return the smallest power of two, at least 16, that is no less than any of the sizes."""
    return max(16, 1 << (max(sizes) - 1).bit_length())
