"""The peak memory of a piece of work."""

from __future__ import annotations

import gc
import resource
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def peak_megabytes(work: Callable[[], Any], device: torch.device) -> float:
    """Run the work; return its peak memory on the device in MB, above what was allocated before."""
    if device.type != "cuda":
        return _peak_rss(work)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    work()
    return (torch.cuda.max_memory_allocated(device) - before) / 1e6


def _peak_rss(work: Callable[[], Any]) -> float:
    """Estimate the growth of resident memory while the work runs, by sampling, to a few MB."""
    page = resource.getpagesize()
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return float("nan")

    def resident() -> int:
        return int(statm.read_text().split()[1]) * page

    gc.collect()
    before, peak, done = resident(), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, resident())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        work()
    finally:
        done.set()
        thread.join()
    return max(0, peak - before) / 1e6
