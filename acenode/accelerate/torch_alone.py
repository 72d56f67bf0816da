"""`engine=reference`: the operations of torch alone, whatever kernels of our own there are.

Kernels of our own are asked for where a forward pass is taken; the way back is that of its forward pass, also where
torch takes it in another thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_thread = threading.local()  # a thread trains one run at a time


def kernels_wanted() -> bool:
    """Whether this thread may use kernels of our own."""
    return getattr(_thread, "wanted", True)


@contextmanager
def torch_alone(alone: bool = True) -> Iterator[None]:
    """No kernels of our own meanwhile, in this thread."""
    before = kernels_wanted()
    _thread.wanted = before and not alone
    try:
        yield
    finally:
        _thread.wanted = before
