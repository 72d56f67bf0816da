"""Where a run is computed: the device, and the versions that are written beside its numbers."""

from __future__ import annotations

import platform
from typing import Any

import torch

from acenode.errors import UserError


def device_of(name: str) -> torch.device:
    """The device that `auto`, `cpu` or `cuda` means here."""
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("there is no CUDA device here: use --device cpu, or auto")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


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
