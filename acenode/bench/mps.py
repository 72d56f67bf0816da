"""CUDA's multi-process service, which lets kernels of several processes run at the same time on one GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from acenode.errors import UserError

CONTROL = "nvidia-cuda-mps-control"
FOLDERS = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")


def is_installed() -> bool:
    """Return True if the service can be started here."""
    return shutil.which(CONTROL) is not None


def is_running() -> bool:
    """Return True if CUDA programs that start now use the service."""
    return is_installed() and _control("get_server_list") == 0


def _control(command: str) -> int:
    return subprocess.run([CONTROL], input=command + "\n", text=True, capture_output=True, timeout=30).returncode


@contextmanager
def daemon() -> Iterator[None]:
    """Run a service of our own, for processes that are started in the block."""
    before = {name: os.environ.get(name) for name in FOLDERS}
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= dict.fromkeys(FOLDERS, folder)
        try:
            # no pipes: the daemon would hold them open, and waiting for their end would not return
            started = subprocess.run([CONTROL, "-d"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30)
            if started.returncode:
                raise UserError(f"{CONTROL} did not start (exit code {started.returncode}): leave mps out of --ways")
            try:
                yield
            finally:
                _control("quit")
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
