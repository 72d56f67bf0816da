"""Train four runs at a time for a while, with kills, deletions and a disk that is nearly full.

    python tests/faults/soak.py --minutes 30

A run that is killed or that ends for lack of room is resumed until it finishes. Its numbers must then equal those of a
run that was never disturbed. Meanwhile others list the runs. The report says which were lost and which numbers changed.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from acenode.errors import UserError
from acenode.runs.catalogue import Catalogue
from acenode.runs.store import Run, RunStore

WORKERS, READERS = 4, 4
QUICK = ("--set", "solver=rk4", "--set", "step_size=0.5")
METHODS: dict[str, tuple[str, ...]] = {"resnet": (), "odenet": QUICK, "ace": QUICK}  # with settings of their own
SETTINGS = ("--epochs", "6", "--device", "cpu", "--set", "analysis=false", "--set", "snapshots=3", "--set",
            "batch_size=512")
SMALL = 20_000  # bytes of a file, in place of a disk that is nearly full: less than a checkpoint has
END_SECONDS = 90.0  # for a run to end when it is asked to
COUNTED = ("runs", "runs finished", "kills", "runs deleted during training", "finished runs deleted",
           "starts on a disk that is nearly full", "runs ended for lack of room", "listings", "runs lost",
           "numbers changed")


class Soak:
    """The runs and the counts of one soak."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.root = folder / "runs"
        self.store = RunStore(self.root)
        self.env = {**os.environ, "ACENODE_RUNS": str(self.root), "ACENODE_DATA": str(folder / "data"),
                    "ACENODE_RECORDED": "", "OMP_NUM_THREADS": "1"}
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.starting = threading.Lock()  # one run at a time, so that the new folder is known
        self.deadline = time.monotonic() + END_SECONDS * len(METHODS)
        self.reference = {method: numbers(self._new(method, None)) for method in METHODS}
        self.deadline = time.monotonic() + seconds

    def read(self) -> None:
        catalogue = Catalogue(self.store)
        while time.monotonic() < self.deadline:
            for entry in catalogue.entries():
                entry.run.metrics()
            self.counts["listings"] += 1
            time.sleep(0.5)

    def work(self, seed: int) -> None:
        rng = random.Random(seed)
        while time.monotonic() < self.deadline:
            method = rng.choice(list(METHODS))
            run = self._new(method, rng)
            while run is not None and time.monotonic() < self.deadline + END_SECONDS:
                if self._state(run) in (None, "finished"):
                    break
                calm = None if time.monotonic() > self.deadline else rng
                run = self._follow(self._start(["resume", run.id], calm), run, calm)
            if run is not None and self._state(run) == "finished":
                self.counts["runs finished"] += 1
                if numbers(run) != self.reference[method]:
                    self.counts["numbers changed"] += 1
                    self.faults.append(f"{run.id}: its numbers differ from those of an undisturbed run")
                if run.changed_metrics():
                    self.faults.append(f"{run.id}: {run.changed_metrics()}")
                if rng.random() < 0.3:
                    shutil.rmtree(run.path)
                    self.counts["finished runs deleted"] += 1

    def _new(self, method: str, rng: random.Random | None) -> Run | None:
        """Train a new run; return it, or None if it was deleted or never began."""
        with self.starting:
            before = {path.name for path in self.root.glob("mnist-*")}
            process, made = self._start(["train", "mnist", "--method", method, *SETTINGS, *METHODS[method]], rng), []
            while not made and process.poll() is None:
                time.sleep(0.05)
                made = [p for p in self.root.glob("mnist-*") if p.name not in before and (p / "status.json").exists()]
        self.counts["runs"] += bool(made)
        return self._follow(process, Run(made[0]), rng) if made else None

    def _start(self, words: list[str], rng: random.Random | None) -> subprocess.Popen[bytes]:
        small = rng is not None and rng.random() < 0.2
        self.counts["starts on a disk that is nearly full"] += small

        def limit() -> None:
            if small:
                resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL, resource.RLIM_INFINITY))

        return subprocess.Popen([sys.executable, "-m", "acenode.cli", *words], env=self.env, preexec_fn=limit,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _follow(self, process: subprocess.Popen[bytes], run: Run, rng: random.Random | None) -> Run | None:
        """Wait for the end of a process and disturb it meanwhile; return None if the run was deleted."""
        what = rng.random() if rng is not None else 1.0
        if rng is not None and what < 0.6:
            try:
                process.wait(rng.uniform(0.0, 12.0))
            except subprocess.TimeoutExpired:
                if what < 0.45:
                    process.send_signal(rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
                    self.counts["kills"] += 1
                else:
                    for _ in range(2):  # a file may be written meanwhile
                        shutil.rmtree(run.path, ignore_errors=True)
                    self.counts["runs deleted during training"] += 1
                    process.wait(END_SECONDS)
                    if run.path.exists():
                        self.faults.append(f"{run.id} came back: {sorted(p.name for p in run.path.iterdir())}")
                    return None
        try:
            process.wait(END_SECONDS * 4)
        except subprocess.TimeoutExpired:
            self.faults.append(f"{run.id} hangs")
            process.kill()
        return run

    def _state(self, run: Run) -> str | None:
        """Return the state of a run that nothing trains; one that does not exist or cannot be read is lost."""
        try:
            status = run.status()
        except UserError as error:
            self.counts["runs lost"] += 1
            self.faults.append(f"{run.id} is lost: {error}")
            return None
        if status["state"] == "failed":
            self.counts["runs ended for lack of room"] += 1
            if "free disk space" not in str(status["error"]):
                self.faults.append(f"{run.id} failed: {status['error']}")
        return status["state"]


def numbers(run: Run | None) -> Any:
    """Return all that a run computed, without times."""
    assert run is not None
    records = [{k: v for k, v in r.items() if k not in ("seconds", "elapsed")} for r in run.metrics()[0]]
    return records, (run.result() or {}).get("test")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder), 60 * options.minutes)
        threads = [*(threading.Thread(target=soak.read) for _ in range(READERS)),
                   *(threading.Thread(target=soak.work, args=(options.seed + i,)) for i in range(WORKERS))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        unreadable = [entry.id for entry in Catalogue(soak.store).entries() if entry.state == "unreadable"]
        for what, count in (*((what, soak.counts[what]) for what in COUNTED), ("unreadable folders", len(unreadable))):
            print(f"{what:<40} {count:>8}")
        print("\n".join(f"  {line}" for line in soak.faults[:50]))
        return 1 if soak.faults or unreadable else 0


if __name__ == "__main__":
    raise SystemExit(main())
