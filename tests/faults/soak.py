"""Train four runs at a time for a while, with watchers, kills, deletions and a disk that is nearly full.

    python tests/faults/soak.py --minutes 30

A run that is killed or that ends for lack of room is resumed until it finishes. Its numbers must then equal those of a
run that was never disturbed. The report says which runs were lost, which numbers changed, and how much memory, how many
threads and how many files the app's server used.
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
import urllib.error
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from acenode.bench.browser import server
from acenode.errors import UserError
from acenode.runs.catalogue import Catalogue
from acenode.runs.store import Run, RunStore

WORKERS, WATCHERS = 4, 20
QUICK = ("--set", "solver=rk4", "--set", "step_size=0.5")
METHODS: dict[str, tuple[str, ...]] = {"resnet": (), "odenet": QUICK, "ace": QUICK}  # with settings of their own
SETTINGS = ("--epochs", "6", "--device", "cpu", "--set", "analysis=false", "--set", "snapshots=3", "--set",
            "batch_size=512")
SMALL = 20_000  # bytes of a file, in place of a disk that is nearly full: less than a checkpoint has
CACHE_MB = 20  # of the server: full after some minutes, so that memory grows afterwards only by a leak
SAMPLE_SECONDS = 5.0
END_SECONDS = 90.0  # for the server to end, and for a run to end when it is asked to
COMMAND = (sys.executable, "-m", "acenode.cli")
COUNTED = ("runs", "runs finished", "kills", "runs deleted during training", "finished runs deleted",
           "starts on a disk that is nearly full", "runs ended for lack of room", "requests", "runs lost",
           "numbers changed")


class Soak:
    """The runs, the server and the counts of one soak."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.root, self.seconds, self.deadline = folder / "runs", seconds, 0.0
        self.store = RunStore(self.root)
        self.variables = {"ACENODE_RUNS": str(self.root), "ACENODE_DATA": str(folder / "data"), "ACENODE_RECORDED": "",
                          "ACENODE_CACHE_MB": str(CACHE_MB), "OMP_NUM_THREADS": "1"}
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.samples: list[tuple[int, int, int]] = []  # kB, threads, open files of the server
        self.reference: dict[str, Any] = {}
        self.starting = threading.Lock()  # one run at a time, so that the new folder is known

    # Server and watchers --------------------------------------------------------------------------------------

    def watch(self, seed: int) -> None:
        rng = random.Random(seed)
        while time.monotonic() < self.deadline:
            names = [path.name for path in self.root.glob("mnist-*")]
            run = rng.choice(names) if names else "none"
            target = rng.choice(["/lab/active", f"/lab/live?runs={','.join(names[-8:])}", f"/lab/film/{run}",
                                 f"/lab/film/{run}/0", f"/lab/live?runs={run}@100"])
            try:
                urllib.request.urlopen(self.served.url + target, timeout=30).read()
            except urllib.error.HTTPError as error:
                if error.code >= 500:
                    self.faults.append(f"{target} answered {error.code}")
            except OSError as error:
                self.faults.append(f"{target}: {error}")
            self.counts["requests"] += 1
            time.sleep(rng.uniform(0.3, 1.5))

    def sample(self) -> None:
        while time.monotonic() < self.deadline:
            try:
                status = Path(f"/proc/{self.served.process.pid}/status").read_text()
                values = {line.partition(":")[0]: line.split()[1] for line in status.splitlines() if line.split()[1:]}
                files = len(os.listdir(f"/proc/{self.served.process.pid}/fd"))
                self.samples.append((int(values["VmRSS"]), int(values["Threads"]), files))
            except (OSError, KeyError):
                self.faults.append("the server has ended")
                return
            time.sleep(SAMPLE_SECONDS)

    # Runs -----------------------------------------------------------------------------------------------------

    def train_reference(self) -> None:
        for method in METHODS:
            run = self._new(method, None)
            if run is None or run.status()["state"] != "finished":
                raise SystemExit(f"the undisturbed run of {method} did not finish")
            self.reference[method] = numbers(run)

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

        return subprocess.Popen([*COMMAND, *words], env=os.environ | self.variables, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL, preexec_fn=limit)

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

    def report(self) -> int:
        """Print the counts and return the exit code."""
        unreadable = [e.id for e in Catalogue(self.store).entries() if e.state == "unreadable"]
        for what, count in (*((what, self.counts[what]) for what in COUNTED), ("unreadable folders", len(unreadable))):
            print(f"{what:<40} {count:>8}")
        sixth = max(1, len(self.samples) // 6)
        for name, column, scale in (("memory of the server (MB)", 0, 1024), ("threads", 1, 1), ("open files", 2, 1)):
            parts = [self.samples[i:i + sixth] for i in range(0, 6 * sixth, sixth)]
            means = [sum(s[column] for s in part) / max(1, len(part)) / scale for part in parts]
            print(f"{name + ', mean of each sixth':<40} " + " ".join(f"{mean:>8.0f}" for mean in means))
        print("\n".join(f"  {line}" for line in self.faults[:50]))
        return 1 if self.faults or unreadable else 0


def numbers(run: Run) -> Any:
    """Return all that a run computed, without times."""
    records = [{k: v for k, v in r.items() if k not in ("seconds", "elapsed")} for r in run.metrics()[0]]
    return records, (run.result() or {}).get("test")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--port", type=int, default=8597)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder), 60 * options.minutes)
        soak.train_reference()
        with (server(soak.root, options.port, **soak.variables) as soak.served,
              ThreadPoolExecutor(1 + WATCHERS + WORKERS) as pool):
            soak.deadline = time.monotonic() + soak.seconds
            started = [pool.submit(soak.sample), *(pool.submit(soak.watch, options.seed + i) for i in range(WATCHERS)),
                       *(pool.submit(soak.work, options.seed + 100 + i) for i in range(WORKERS))]
            for one in started:
                one.result()
        if soak.served.process.returncode == -signal.SIGKILL:
            soak.faults.append("the server did not end on SIGTERM")
        if soak.faults:
            print((Path(folder) / f"server-{options.port}.log").read_text(errors="replace")[-3000:])
        return soak.report()


if __name__ == "__main__":
    raise SystemExit(main())
