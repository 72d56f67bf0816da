"""What many workers cost the machine that conducts their runs: a thread for each, and the files that they send."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path

from acenode import experiments
from acenode.bench.process_cost import Cost, own_cpu_seconds
from acenode.data.folder import data_dir
from acenode.execution.cluster.changed_files import FileChange
from acenode.execution.cluster.contact import CONTACT_SECONDS
from acenode.execution.cluster.folder_keeper import FolderKeeper
from acenode.execution.cluster.ray_cluster import POLL_SECONDS, RayCluster
from acenode.execution.execute import create
from acenode.execution.launcher import Launcher
from acenode.files import json_bytes
from acenode.runs.store import Run, RunStore

SECONDS = 5.0  # of measurement
ROUNDS = 10  # of files from every worker
LINES = 5  # in each


@dataclass(frozen=True)
class WorkerCost:
    """Costs of a number of workers on the machine that conducts their runs."""

    workers: int
    launcher: float  # share of a core
    receiving: Cost  # of the folder keeper, to write what one worker sends at a time

    @property
    def keeper(self) -> float:
        """The share of a core that the folder keeper needs for all of them, without Ray's transport."""
        return self.workers * self.receiving.cpu / CONTACT_SECONDS

    @property
    def text(self) -> str:
        """Describe them for people."""
        return (f"{self.workers} workers: launcher {self.launcher:.1%} of a core; folder keeper "
                f"{self.receiving} for what one worker sends at a time, {self.keeper:.0%} of a core if all send files; "
                f"full at {CONTACT_SECONDS / self.receiving.cpu:,.0f} workers, without Ray's transport")


class _WaitingCluster(RayCluster):
    """A cluster whose runs are never trained: its launcher waits for them as for others."""

    def train(self, run: Run, data_root: Path, stop: threading.Event) -> None:
        while not stop.wait(POLL_SECONDS):
            pass
        run.set_state("stopped")

    def slots(self) -> int:
        return 1


def measure_workers(folder: Path, workers: int) -> WorkerCost:
    """Measure the launcher with so many runs, then the folder keeper."""
    mnist = experiments.get("mnist")
    launcher = Launcher(RunStore(folder / "launcher"), data_dir(), cluster=_WaitingCluster())
    try:
        launcher.set_workers("ray", workers)
        for seed in range(workers):
            launcher.start(mnist.configure("odenet", seed=seed))
        while len(launcher.active()) < workers:
            time.sleep(0.1)
        before, begun = own_cpu_seconds(), time.monotonic()
        time.sleep(SECONDS)
        share = (own_cpu_seconds() - before) / (time.monotonic() - begun)
    finally:
        launcher.close()
    store = RunStore(folder / "keeper")
    runs = [create(store, mnist.configure("ace", seed=seed)) for seed in range(workers)]
    return WorkerCost(workers, share, _receiving(runs))


def _receiving(runs: list[Run]) -> Cost:
    """Return what one exchange costs the folder keeper: some steps and a status."""
    keeper, sizes = FolderKeeper(), [0] * len(runs)
    for run in runs:
        keeper.begin(str(run.path), "worker")
        keeper.files(str(run.path), "worker")
    lines = b"".join(json_bytes({"kind": "step", "step": i, "L_h": 0.5, "L_a": 0.5, "grad_h": 0.1, "grad_a": 0.1,
                                 "nfe_forward": 20, "seconds": 0.1}) + b"\n" for i in range(LINES))
    begun = Cost.now()
    for _ in range(ROUNDS):
        for i, run in enumerate(runs):
            status = json_bytes({**run.status(), "state": "running", "heartbeat": time.time()})
            keeper.write(str(run.path), "worker", [FileChange("metrics.jsonl", lines, sizes[i]),
                                                   FileChange("status.json", status)])
            sizes[i] += len(lines)
    spent = Cost.now() - begun
    for run in runs:
        keeper.end(str(run.path))
        run.set_state("stopped")
    return spent / (ROUNDS * len(runs))
