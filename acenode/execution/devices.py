"""The devices that runs can use: their load and their memory."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

GPU_RUNS = 6  # at a time on each, where the processor has a core or two for each
MIN_INTERVAL = 0.5  # seconds over which the load is averaged at least: shorter ones are noise


def device_names() -> list[str]:
    """Return the devices that train runs: the processor and every GPU, such as `cpu`, `cuda:0` and `cuda:1`."""
    import torch

    return ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0))]


def default_workers(device: str, gpus: int = 1) -> int:
    """Return how many runs to train at a time: on each GPU a few side by side, on a processor one for two cores."""
    pairs = max(1, (os.cpu_count() or 1) // 2)
    return min(GPU_RUNS * max(1, gpus), pairs) if device == "cuda" else pairs


def device_choices() -> list[str]:
    """Return the values of the setting `device` that a form offers here; a single one if there is no choice."""
    gpus = device_names()[1:]
    return ["auto", "cpu", "cuda", *(gpus if len(gpus) > 1 else [])] if gpus else ["auto"]


def matches(name: str, asked: str) -> bool:
    """Return True if a device can train a run that asks for `cpu`, `cuda` or `cuda:N`."""
    return asked in (name, name.partition(":")[0])


@dataclass(frozen=True)
class DeviceState:
    """The load and memory of a device; a value is None where the system does not report it."""

    name: str  # cpu, cuda:0, cuda:1, …
    title: str
    workers: int  # runs at a time
    running: int  # workers in use
    memory_used: int | None  # bytes
    memory_total: int | None
    utilisation: float | None  # 0 to 1


class CpuMeter:
    """Reads load and memory of the processor from /proc; the load is an average since the last call."""

    def __init__(self, proc: Path = Path("/proc"), cores: set[int] | None = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.proc, self.cores, self.clock = proc, own_cores() if cores is None else cores, clock
        self.lock = threading.Lock()
        self.load: float | None = None
        self.read_at, self.ticks = clock(), self._ticks()

    def state(self, workers: int, running: int) -> DeviceState:
        """Return the state of the processor."""
        count = len(self.cores)
        return DeviceState("cpu", f"CPU, {count} core{'s' if count > 1 else ''}", workers, running, *self.memory(),
                           self.utilisation())

    def utilisation(self) -> float | None:
        """Return the fraction of time that the cores were busy."""
        with self.lock:
            now = self.clock()
            if now - self.read_at >= MIN_INTERVAL:
                ticks = self._ticks()
                if ticks is not None and self.ticks is not None and ticks[1] > self.ticks[1]:
                    share = (ticks[0] - self.ticks[0]) / (ticks[1] - self.ticks[1])
                    self.load = min(1.0, max(0.0, share))
                self.read_at, self.ticks = now, ticks
            return self.load

    def memory(self) -> tuple[int | None, int | None]:
        """Return bytes in use and in total."""
        try:
            lines = (line.split() for line in (self.proc / "meminfo").read_text().splitlines())
            sizes = {words[0]: int(words[1]) * 1024 for words in lines if words[0] in ("MemTotal:", "MemAvailable:")}
            return sizes["MemTotal:"] - sizes["MemAvailable:"], sizes["MemTotal:"]
        except (OSError, ValueError, KeyError, IndexError):
            return None, None

    def _ticks(self) -> tuple[int, int] | None:
        try:
            lines = (line.split() for line in (self.proc / "stat").read_text().splitlines())
            wanted = {f"cpu{core}" for core in self.cores}
            counts = [[int(word) for word in words[1:9]] for words in lines if words and words[0] in wanted]
            total = sum(map(sum, counts))
            return total - sum(count[3] + count[4] for count in counts), total  # less idle and I/O wait
        except (OSError, ValueError, IndexError):
            return None


def own_cores() -> set[int]:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def gpu_state(index: int, workers: int, running: int, *, several: bool = False) -> DeviceState:
    """Return the state of a GPU. With several GPUs, the memory in use is known only if pynvml is installed: to ask
    CUDA for it would take memory on every one of them."""
    import torch

    title, used, total, load = "GPU", None, None, None
    with contextlib.suppress(Exception):  # the driver fails: runs report that themselves
        title = torch.cuda.get_device_name(index)
        total = torch.cuda.get_device_properties(index).total_memory
    try:
        used = torch.cuda.device_memory_used(index)
    except Exception:  # pynvml is missing or not permitted
        with contextlib.suppress(Exception):
            if not several:
                free, total = torch.cuda.mem_get_info(index)
                used = total - free
    with contextlib.suppress(Exception):
        load = torch.cuda.utilization(index) / 100
    return DeviceState(f"cuda:{index}", f"GPU {index}: {title}" if several else title, workers, running, used,
                       total if used is not None else None, load)


# Without torch, whose import takes seconds --------------------------------------------------------------------------

def quick_device(name: str = "auto", system: Path = Path("/")) -> tuple[str, str | None]:
    """Return `cpu` or `cuda` for the setting `device`, and the name of the GPU if the driver tells it, which it does on
    Linux only; elsewhere `auto` is taken for the processor."""
    title = None
    for path in sorted((system / "proc/driver/nvidia/gpus").glob("*/information")):
        with contextlib.suppress(OSError):
            found = re.search(r"^Model:\s*(.+?)\s*$", path.read_text(), re.MULTILINE)
            title = title or (found[1] if found else None)
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
