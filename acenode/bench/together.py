"""`acenode bench together`: the same runs one after another, in threads, and in processes of their own.

Every way trains whole runs with the launcher, validation, test and snapshots included, on one device. Choose epochs
with which the runs take about the same time alone, so that all of them compete most of the time.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import threading
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from acenode import experiments
from acenode.bench import mps
from acenode.bench.together_table import render
from acenode.config import Config
from acenode.data.folder import data_dir
from acenode.errors import UserError
from acenode.execution.devices import gpu_state
from acenode.execution.environment import describe, device_of
from acenode.execution.launcher import Launcher, Place
from acenode.runs.store import Run, RunStore

WAYS = ("processes", "mps", "one", "threads")  # in this order: threads leave memory in this process
SAMPLE_SECONDS = 1.0  # between two readings of the memory


@dataclass(frozen=True)
class Trained:
    """One run of an arm."""

    name: str  # experiment/method, seed
    epochs: int
    training: float  # seconds in training iterations
    began: float  # seconds from the beginning of the arm to the beginning of the run
    ended: float


@dataclass(frozen=True)
class Arm:
    """All runs, trained in one way."""

    way: str
    seconds: float
    memory: int | None  # peak bytes of this process and its workers
    gpu_memory: int | None  # peak bytes in use on the device, by anyone
    runs: list[Trained]


def run(options: Namespace) -> int:
    """Measure and print."""
    device = device_of(options.device)
    configs = configs_of(options.train, options.each, options.data, device.type)
    ways = ways_of(options.ways, device)
    at_a_time = len(configs) if options.jobs is None else options.jobs
    if not 1 <= at_a_time <= 64:
        raise UserError("--jobs must be between 1 and 64")
    result = {"environment": describe(device), "data": options.data, "at_a_time": at_a_time, "runs": len(configs),
              "train": options.train, "each": options.each, "mps_running": mps.is_running(),
              "arms": [asdict(arm) for arm in measure(configs, ways, device.type, at_a_time)]}
    print(json.dumps(result) if options.json else render(result))
    return 0


def configs_of(train: str, each: int, data: str, device: str) -> list[Config]:
    """Return the configurations of "EXPERIMENT/METHOD:EPOCHS,...", each with as many seeds."""
    if each < 1:
        raise UserError("--each must be at least 1")
    found = []
    for text in train.split(","):
        name, _, epochs = text.strip().partition(":")
        experiment, _, method = name.partition("/")
        if not method or not epochs.isdigit():
            raise UserError(f"--train takes EXPERIMENT/METHOD:EPOCHS,..., such as physionet/ace:1, not {text!r}")
        found += [experiments.get(experiment).configure(method, data, seed=seed, epochs=int(epochs), device=device)
                  for seed in range(each)]
    return found


def ways_of(text: str | None, device: torch.device) -> list[str]:
    """Return the ways named in a comma-separated list; without one, all but mps, and mps on a GPU that has it."""
    if text is None:
        return [way for way in WAYS if way != "mps" or (device.type == "cuda" and mps.is_installed())]
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in WAYS]:
        raise UserError(f"there is no way {unknown[0]!r}: choose from {', '.join(WAYS)}")
    if "mps" in names and not (device.type == "cuda" and mps.is_installed()):
        raise UserError("mps needs a CUDA device and nvidia-cuda-mps-control: leave it out of --ways")
    return [way for way in WAYS if way in names]


# Measurements -------------------------------------------------------------------------------------------------------


def measure(configs: list[Config], ways: list[str], device: str, at_a_time: int) -> Iterator[Arm]:
    """Train all runs in each way, after one epoch of every kind of run, which compiles what is kept on disk."""
    with tempfile.TemporaryDirectory() as folder:
        first = {(c.experiment, c.method): Config.from_dict(c.to_dict() | {"epochs": 1}) for c in configs}
        _report("one epoch of every kind of run, to compile")
        measure_arm("processes", list(first.values()), device, len(first), Path(folder) / "compile")
        for way in ways:
            _report(f"{len(configs)} runs: {way}")
            with mps.daemon() if way == "mps" else nullcontext():
                arm = measure_arm(way, configs, device, at_a_time, Path(folder) / way)
            each = (f"{r.name}: {r.began:.1f} s to {r.ended:.1f} s, {r.training:.1f} s training" for r in arm.runs)
            _report("\n  ".join([f"  {arm.seconds:.1f} s", *each]))
            yield arm


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def measure_arm(way: str, configs: list[Config], device: str, at_a_time: int, folder: Path) -> Arm:
    """Train all runs in one way."""
    gc.collect()
    place: Place = "thread" if way in ("one", "threads") else "process"
    launcher = Launcher(RunStore(folder), data_dir(), {device: place})
    try:
        launcher.set_workers(device, 1 if way == "one" else at_a_time)
        with _peak_memory(device) as peak:
            begun = time.time()
            runs = [launcher.start(config) for config in configs]
            launcher.wait()
            seconds = time.time() - begun
    finally:
        launcher.close()
    return Arm(way, seconds, peak["memory"], peak["gpu"], [_trained(r, begun) for r in runs])


def _trained(run: Run, begun: float) -> Trained:
    status, config = run.status(), run.config()
    if status["state"] != "finished":
        raise UserError(f"{config.experiment}/{config.method} {status['state']}: {status['error']}")
    return Trained(f"{config.experiment}/{config.method}, seed {config.seed}", status["epochs"], status["seconds"],
                   status["began"] - begun, status["heartbeat"] - begun)


@contextmanager
def _peak_memory(device: str) -> Iterator[dict[str, Any]]:
    """Sample memory in a thread while the block runs."""
    peak: dict[str, Any] = {"memory": None, "gpu": None}
    done = threading.Event()

    def sample() -> None:
        while not done.wait(SAMPLE_SECONDS):
            peak["memory"] = max(peak["memory"] or 0, process_memory() or 0) or None
            if device == "cuda":
                peak["gpu"] = max(peak["gpu"] or 0, gpu_state(0, 0, 0).memory_used or 0) or None

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def process_memory(proc: Path = Path("/proc")) -> int | None:
    """Return the bytes that this process and its children use, shared pages counted once; None without /proc."""
    try:
        children = (proc / "self" / "task").glob("*/children")
        pids = ["self", *(pid for path in children for pid in path.read_text().split())]
        return sum(_proportional_size(proc / pid) for pid in pids)
    except OSError:
        return None


def _proportional_size(process: Path) -> int:
    try:
        lines = (process / "smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
