"""The cost of a head: 200 runs in its queue, 20 that stream their files to it. Nothing is trained.

The head is the machine on which the command or the app runs: its launcher, the folder keeper, and Ray's own processes.
`scale_stream` plays the workers.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from acenode import experiments
from acenode.bench.process_cost import cpu_seconds, descendants, memory, own_cpu_seconds
from acenode.data.folder import data_dir
from acenode.errors import UserError
from acenode.execution.cluster.ray_cluster import RayCluster, driver_environment
from acenode.execution.execute import create
from acenode.execution.launcher import Launcher
from acenode.runs.catalogue import Catalogue
from acenode.runs.store import Run, RunStore

QUEUED, STREAMING = 200, 20
SECONDS = 30.0  # of measurement


@dataclass(frozen=True)
class HeadCost:
    """What the processes of the head use; shares of one core, bytes of memory."""

    queued: int
    streaming: int
    launcher: float
    listing: float  # largest time to list all runs once more, in seconds
    keeper: float
    keeper_memory: int
    ray: float  # Ray's processes and the one that is connected to it
    ray_memory: int
    delay: float  # largest age of the newest line of a run, in seconds
    bytes_a_second: float

    @property
    def text(self) -> str:
        """Describe it for people."""
        return (f"head with {self.queued} runs queued and {self.streaming} streaming "
                f"({self.bytes_a_second / 1e3:.0f} kB of metrics a second):\n"
                f"  launcher        {self.launcher:>7.1%} of a core, with a list of all runs each second "
                f"(at most {1000 * self.listing:.0f} ms)\n"
                f"  folder keeper   {self.keeper:>7.1%} of a core, {self.keeper_memory / 1e6:.0f} MB\n"
                f"  Ray             {self.ray:>7.1%} of a core, {self.ray_memory / 1e6:.0f} MB\n"
                f"  the newest line of a run is at most {self.delay:.2f} s old; one is written every 0.5 s")


class _NotStartedError(Exception):
    """The process with the streaming runs has ended."""


class _FullCluster(RayCluster):
    """A cluster without a free worker: its launcher keeps all runs in the queue."""

    def slots(self) -> int:
        return 0


def measure_head(folder: Path, progress: Callable[[str], None], *, queued: int = QUEUED, streaming: int = STREAMING,
                 seconds: float = SECONDS) -> HeadCost:
    """Measure a head in processes of its own, as in use."""
    store, mnist = RunStore(folder), experiments.get("mnist")
    launcher = Launcher(store, data_dir(), cluster=_FullCluster())
    try:
        for seed in range(queued):
            launcher.start(mnist.configure("odenet", seed=seed))
        runs = [create(store, mnist.configure("ace", seed=seed)) for seed in range(streaming)]
        progress(f"  {queued} runs are queued")
        command = [sys.executable, "-P", "-m", "acenode.bench.scale_stream", *(str(run.path) for run in runs)]
        with tempfile.TemporaryFile() as messages:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=messages,
                                       env=driver_environment(local=True))
            try:
                return _measure(process, Catalogue(store), runs, queued, seconds, progress)
            except _NotStartedError:
                messages.seek(0)
                lines = messages.read().decode(errors="replace").strip().splitlines()
                raise UserError(f"the streaming runs could not be started ({lines[-1] if lines else 'no message'}): "
                                "try again when the machine is less busy") from None
            finally:
                process.communicate()  # the end of its input ends it
    finally:
        launcher.close()


def _measure(process: subprocess.Popen, catalogue: Catalogue, runs: list[Run], queued: int, seconds: float,
             progress: Callable[[str], None]) -> HeadCost:
    assert process.stdout is not None
    words = process.stdout.readline().split()
    if not words:
        raise _NotStartedError
    keeper, *workers = map(int, words)
    progress(f"  {len(runs)} runs are streaming")
    ray = [pid for pid in [process.pid, *descendants(process.pid)] if pid not in (keeper, *workers)]
    catalogue.entries()

    def used() -> tuple[float, float, float]:
        return own_cpu_seconds(), cpu_seconds([keeper]), cpu_seconds(ray)

    before, begun, size = used(), time.monotonic(), _bytes(runs)
    delay = listing = 0.0
    while time.monotonic() - begun < seconds:
        time.sleep(1)
        start = time.monotonic()
        catalogue.entries()
        listing = max(listing, time.monotonic() - start)
        delay = max(delay, *(_age(run) for run in runs))
    elapsed = time.monotonic() - begun
    shares = [(after - earlier) / elapsed for after, earlier in zip(used(), before, strict=True)]
    return HeadCost(queued, len(runs), shares[0], listing, shares[1], memory([keeper]), shares[2], memory(ray), delay,
                    (_bytes(runs) - size) / elapsed)


def _age(run: Run) -> float:
    records = run.metrics()[0]
    return time.time() - records[-1]["time"] if records else 0.0


def _bytes(runs: list[Run]) -> int:
    return sum((run.path / "metrics.jsonl").stat().st_size for run in runs)
