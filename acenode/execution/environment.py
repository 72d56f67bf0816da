"""Where a run is computed: the device, and the versions that are written beside its numbers."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from typing import Any

import torch

from acenode.accelerate.dispatch import Backend
from acenode.errors import UserError

NO_C = "ACENODE_NATIVE"  # 0: never call a C compiler


def device_of(name: str) -> torch.device:
    """The device that `auto`, `cpu` or `cuda` means here."""
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("there is no CUDA device here: use --device cpu, or auto")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def backend_of(engine: str | None, log: Callable[[str], None] = lambda line: None,
               on_series_by: Callable[[str], None] = lambda name: None) -> Backend:
    """Return what a run with this setting `engine` may use: `reference` is torch operations with autograd only."""
    return Backend(engine != "reference", os.environ.get(NO_C) != "0", log, on_series_by)


def repeatable(device: torch.device) -> None:
    """Sums in one order from now on, in the whole process: cuDNN's quickest convolutions add up as it happens to come,
    and training makes points of accuracy of such a rounding.
    """
    if device.type == "cuda":
        torch.backends.cudnn.deterministic = True


def describe(device: torch.device) -> dict[str, Any]:
    """Versions and device, for config.json."""
    from importlib.metadata import PackageNotFoundError, version

    def of(package: str) -> str | None:
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    return {
        "python": platform.python_version(), "platform": platform.platform(), "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu ({platform.machine()})",
        "versions": {name: of(name) for name in ("acenode", "torch", "torchdiffeq", "numpy", "scikit-learn")},
    }
