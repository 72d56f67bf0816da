"""Choose the GPU of a run: the one that it asks for, or the one with the fewest runs."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from acenode.errors import UserError
from acenode.execution.environment import device_of
from acenode.runs.process import is_here
from acenode.runs.store import RunStore

LOCK = ".devices.lock"  # in the folder of runs
LOCK_SECONDS = 10.0  # after which a run chooses without the lock
RECENT_SECONDS = 3600.0  # since the last change of status.json: a run that trains writes it every few seconds


@contextmanager
def chosen_device(setting: str, folder: Path) -> Iterator[torch.device]:
    """Yield the device of a run: `auto` and `cuda` mean the GPU with the fewest runs of this folder.

    The run's status must be written within the block. Until it ends, other runs wait with their choice, so that runs
    that start at the same time use different GPUs.

    Args:
        setting: auto, cpu, cuda or cuda:N.
        folder: of the runs.
    """
    device = device_of(setting)
    if device.type != "cuda" or device.index is not None:
        yield device
    elif torch.cuda.device_count() < 2:
        yield torch.device("cuda", 0)
    else:
        with ExitStack() as locked:
            with suppress(OSError, Timeout):  # a file system without locks, or somebody holds it for long
                lock = FileLock(folder / LOCK, timeout=LOCK_SECONDS, thread_local=False)
                lock.acquire()
                locked.callback(lock.release)
            yield torch.device("cuda", least_busy_gpu(folder))


def least_busy_gpu(folder: Path) -> int:
    """Return the index of the GPU with the fewest runs of this folder; of several, the one with most free memory."""
    runs = _running(folder)
    return min(range(torch.cuda.device_count()), key=lambda i: (runs[f"cuda:{i}"], _memory_used(i), i))


def _running(folder: Path) -> Counter[str]:
    """Count the runs that train on each device of this machine."""
    counts: Counter[str] = Counter()
    for run in RunStore(folder):
        with suppress(UserError, OSError):
            if time.time() - os.stat(run.path / "status.json").st_mtime < RECENT_SECONDS:
                status = run.status()
                if status["state"] == "running" and is_here(status["process"]):
                    counts[str(status.get("device"))] += 1
    return counts


def _memory_used(index: int) -> int:
    """Return the bytes in use on a GPU; 0 if that is not known without starting CUDA there."""
    with suppress(Exception):  # pynvml is missing or not permitted
        return torch.cuda.device_memory_used(index)
    return 0
