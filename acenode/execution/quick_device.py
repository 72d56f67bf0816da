"""Find out which device runs would use without importing torch, which takes seconds."""

from __future__ import annotations

import os
import re
from pathlib import Path


def quick_device(name: str = "auto", system: Path = Path("/")) -> tuple[str, str | None]:
    """Return `cpu` or `cuda` for the setting `device`, and the name of the GPU if the driver tells it.

    The driver's files are there on Linux only; elsewhere `auto` is taken for the processor.
    """
    title = _gpu_title(system)
    if name == "auto":
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
        name = "cuda" if not hidden and (title or (system / "dev/nvidiactl").exists()) else "cpu"
    name = name.partition(":")[0]
    return name, title if name == "cuda" else None


def quick_gpu_count(name: str = "auto", system: Path = Path("/")) -> int:
    """Return how many GPUs the setting `device` allows, at least 1, as far as the driver and the environment tell."""
    if ":" in name or name == "cpu":
        return 1
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return max(1, len(list(filter(None, visible.split(",")))))
    return max(1, len(list((system / "proc/driver/nvidia/gpus").glob("*/information"))))


def _gpu_title(system: Path) -> str | None:
    """Read the first GPU's name, such as `NVIDIA H200`."""
    for path in sorted((system / "proc/driver/nvidia/gpus").glob("*/information")):
        try:
            found = re.search(r"^Model:\s*(.+?)\s*$", path.read_text(), re.MULTILINE)
        except OSError:
            continue
        if found:
            return found[1]
    return None
