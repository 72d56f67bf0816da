"""The environment of a run: its device, its backend, and the versions that config.json records."""

from __future__ import annotations

import logging
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from acenode.backend import Backend
from acenode.errors import UserError
from acenode.runs.process import is_here
from acenode.runs.store import RunStore

NATIVE_VARIABLE = "ACENODE_NATIVE"  # an environment variable; 0: never call a C compiler
DEVICES_LOCK = ".devices.lock"  # in the folder of runs
LOCK_SECONDS = 10.0  # after which a run chooses without the lock
RECENT_SECONDS = 3600.0  # since the last change of status.json: a run that trains writes it every few seconds


def child_environment() -> dict[str, str]:
    """Return the environment of a child process: it imports what this process imports, and its torch threads sleep
    while they wait, so that other processes have the cores."""
    path = os.pathsep.join(p or os.getcwd() for p in sys.path)
    return {"OMP_WAIT_POLICY": "passive", **os.environ, "PYTHONPATH": path}


def device_of(name: str) -> torch.device:
    """Return the device for the setting `auto`, `cpu`, `cuda` or `cuda:N`; without a number, no GPU is chosen yet."""
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UserError("there is no CUDA device here: use --device cpu, or auto")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device, count = torch.device(name), torch.cuda.device_count()
    if device.index is not None and device.index >= count:
        known = "the only GPU is cuda:0" if count == 1 else f"the GPUs are cuda:0 to cuda:{count - 1}"
        raise UserError(f"there is no {name} here: {known}; or use --device cpu")
    return device


@contextmanager
def chosen_device(setting: str, folder: Path) -> Iterator[torch.device]:
    """Yield the device of a run: `auto` and `cuda` mean the GPU with the fewest runs of this folder. Other runs wait
    with their choice until the block has ended, in which the run's status must be written."""
    device = device_of(setting)
    if device.type != "cuda" or device.index is not None:
        yield device
    elif torch.cuda.device_count() < 2:
        yield torch.device("cuda", 0)
    else:
        with ExitStack() as locked:
            with suppress(OSError, Timeout):  # a file system without locks, or somebody holds it for long
                lock = FileLock(folder / DEVICES_LOCK, timeout=LOCK_SECONDS, thread_local=False)
                lock.acquire()
                locked.callback(lock.release)
            yield torch.device("cuda", least_busy_gpu(folder))


def least_busy_gpu(folder: Path) -> int:
    """Return the index of the GPU with the fewest runs of this folder; of several, the one with most free memory."""
    runs: Counter[str] = Counter()
    for run in RunStore(folder):
        with suppress(UserError, OSError):
            if time.time() - os.stat(run.path / "status.json").st_mtime < RECENT_SECONDS:
                status = run.status()
                if status["state"] == "running" and is_here(status["process"]):
                    runs[str(status.get("device"))] += 1
    return min(range(torch.cuda.device_count()), key=lambda i: (runs[f"cuda:{i}"], _memory_used(i), i))


def _memory_used(index: int) -> int:
    with suppress(Exception):  # pynvml is missing or not permitted
        return torch.cuda.device_memory_used(index)
    return 0


def backend_of(engine: str | None, log: Callable[[str], None] = lambda line: None,
               on_series_by: Callable[[str], None] = lambda name: None) -> Backend:
    """Return what a run with this setting `engine` may use: `reference` is torch operations with autograd only."""
    return Backend(engine != "reference", os.environ.get(NATIVE_VARIABLE) != "0", log, on_series_by)


@contextmanager
def run_context(device: torch.device, engine: str | None, log: Callable[[str], None] = lambda line: None,
                on_series_by: Callable[[str], None] = lambda name: None) -> Iterator[Backend]:
    """Set up the device for one run in this thread, and yield the backend to build its model with. On a GPU, it has a
    CUDA stream of its own; memory is freed when the last run ends, a failed run's when the next one ends."""
    backend = backend_of(engine, log, on_series_by)
    if device.type != "cuda":
        yield backend
        return
    from acenode.device.gpu import own_stream

    # The fastest convolutions sum in varying order, and training amplifies that to whole percentage points of accuracy.
    torch.backends.cudnn.deterministic = True
    with own_stream(device):
        yield backend


@contextmanager
def warnings_logged(log: Callable[[str], None]) -> Iterator[None]:
    """Pass the warnings that this package logs to `log` while the block runs; runs at the same time all get them."""
    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            try:
                log(record.getMessage())
            except OSError:  # the disk may be full
                self.handleError(record)

    handler, logger = Handler(logging.WARNING), logging.getLogger("acenode")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def device_title(device: torch.device) -> str:
    """Return the name of the device, for people."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu ({platform.machine()})"


def describe(device: torch.device) -> dict[str, Any]:
    """Return versions and device, for config.json."""
    from importlib.metadata import PackageNotFoundError, version

    def of(package: str) -> str | None:
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    return {
        "python": platform.python_version(), "platform": platform.platform(), "threads": torch.get_num_threads(),
        "device": device_title(device),
        "versions": {name: of(name) for name in ("acenode", "torch", "torchdiffeq", "numpy", "scikit-learn")},
    }
