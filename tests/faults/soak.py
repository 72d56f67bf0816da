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
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


class Soak:
    """The runs, the server and the counts of one soak."""

    def __init__(self, folder: Path, seconds: float, seed: int) -> None:
        self.root, self.seconds, self.deadline, self.seed = folder / "runs", seconds, 0.0, seed
        self.store = RunStore(self.root)
        self.env = {**os.environ, "ACENODE_RUNS": str(self.root), "ACENODE_DATA": str(folder / "data"),
                    "ACENODE_RECORDED": "", "ACENODE_CACHE_MB": str(CACHE_MB), "OMP_NUM_THREADS": "1"}
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.samples: list[tuple[float, int, int, int]] = []  # seconds, kB, threads, open files of the server
        self.reference: dict[str, Any] = {}
        self.lock = threading.Lock()
        self.log = open(folder / "server.txt", "wb")  # noqa: SIM115 - open until the end

    # Server and watchers --------------------------------------------------------------------------------------

    def start_server(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        known = subprocess.run([*COMMAND, "app", "--help"], capture_output=True, text=True, env=self.env).stdout
        words = ["--no-token"] if "--no-token" in known else []
        self.server = subprocess.Popen([*COMMAND, "app", "--headless", "--port", str(port), *words], env=self.env,
                                       stdout=self.log, stderr=self.log)
        until = time.monotonic() + END_SECONDS
        while time.monotonic() < until and self.server.poll() is None:
            try:
                urllib.request.urlopen(f"{self.address}/lab/active", timeout=5).close()
                self.deadline = time.monotonic() + self.seconds
                return
            except OSError:
                time.sleep(0.2)
        raise SystemExit("the server did not start")

    def watch(self, seed: int) -> None:
        rng = random.Random(seed)
        while time.monotonic() < self.deadline:
            names = [path.name for path in self.root.glob("mnist-*")]
            run = rng.choice(names) if names else "none"
            target = rng.choice(["/lab/active", f"/lab/live?runs={','.join(names[-8:])}", f"/lab/film/{run}",
                                 f"/lab/film/{run}/0", f"/lab/live?runs={run}@100"])
            try:
                with urllib.request.urlopen(self.address + target, timeout=30) as answer:
                    answer.read()
            except urllib.error.HTTPError as error:
                if error.code >= 500:
                    self.fault(f"{target} answered {error.code}")
            except OSError as error:
                self.fault(f"{target}: {error}")
            self.count("requests")
            time.sleep(rng.uniform(0.3, 1.5))

    def sample(self) -> None:
        begun = time.monotonic()
        while time.monotonic() < self.deadline:
            try:
                status = Path(f"/proc/{self.server.pid}/status").read_text()
                values = {line.partition(":")[0]: line.split()[1] for line in status.splitlines() if line.split()[1:]}
                files = len(os.listdir(f"/proc/{self.server.pid}/fd"))
                self.samples.append((time.monotonic() - begun, int(values["VmRSS"]), int(values["Threads"]), files))
            except (OSError, KeyError):
                self.fault("the server has ended")
                return
            time.sleep(SAMPLE_SECONDS)

    def end_server(self) -> None:
        self.server.send_signal(signal.SIGTERM)
        try:
            self.server.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.fault("the server did not end on SIGTERM")
            self.server.kill()

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
                state = self._state(run)
                if state is None or state == "finished":
                    break
                calm = None if time.monotonic() > self.deadline else rng
                run = self._train(["resume", run.id], run, calm)
            if run is not None:
                self._check(run, method)
                if rng.random() < 0.3:
                    shutil.rmtree(run.path)
                    self.count("finished runs deleted")

    def _new(self, method: str, rng: random.Random | None) -> Run | None:
        """Train a new run; return it, or None if it was deleted or never began."""
        with self.lock:  # one at a time, so that the new folder is known
            before = {path.name for path in self.root.glob("mnist-*")}
            process = self._start(["train", "mnist", "--method", method, *SETTINGS, *METHODS[method]], rng)
            run = None
            while run is None and process.poll() is None:
                time.sleep(0.05)
                made = [p for p in self.root.glob("mnist-*") if p.name not in before and (p / "status.json").exists()]
                run = Run(made[0]) if made else None
        if run is None:
            return None
        self.count("runs")
        return self._follow(process, run, rng)

    def _train(self, words: list[str], run: Run, rng: random.Random | None) -> Run | None:
        return self._follow(self._start(words, rng), run, rng)

    def _start(self, words: list[str], rng: random.Random | None) -> subprocess.Popen[bytes]:
        limit: Callable[[], None] | None = None
        if rng is not None and rng.random() < 0.2:
            self.count("starts on a disk that is nearly full")

            def limit() -> None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL, resource.RLIM_INFINITY))

        return subprocess.Popen([*COMMAND, *words], env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                preexec_fn=limit)

    def _follow(self, process: subprocess.Popen[bytes], run: Run, rng: random.Random | None) -> Run | None:
        """Wait for the end of a process and disturb it meanwhile; return None if the run was deleted."""
        what = rng.random() if rng is not None else 1.0
        if rng is not None and what < 0.6:
            try:
                process.wait(rng.uniform(0.0, 12.0))
            except subprocess.TimeoutExpired:
                if what < 0.45:
                    process.send_signal(rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
                    self.count("kills")
                else:
                    shutil.rmtree(run.path, ignore_errors=True)
                    shutil.rmtree(run.path, ignore_errors=True)  # if a file was written meanwhile
                    self.count("runs deleted during training")
                    process.wait(END_SECONDS)
                    if run.path.exists():
                        self.fault(f"{run.id} came back: {sorted(p.name for p in run.path.iterdir())}")
                    return None
        try:
            process.wait(END_SECONDS * 4)
        except subprocess.TimeoutExpired:
            self.fault(f"{run.id} hangs")
            process.kill()
        return run

    def _state(self, run: Run) -> str | None:
        """Return the state of a run that nothing trains; one that does not exist or cannot be read is lost."""
        try:
            status = run.status()
        except UserError as error:
            self.count("runs lost")
            self.fault(f"{run.id} is lost: {error}")
            return None
        if status["state"] == "failed":
            self.count("runs ended for lack of room")
            if "free disk space" not in str(status["error"]):
                self.fault(f"{run.id} failed: {status['error']}")
        return status["state"]

    def _check(self, run: Run, method: str) -> None:
        if self._state(run) == "finished":
            self.count("runs finished")
            if numbers(run) != self.reference[method]:
                self.count("numbers changed")
                self.fault(f"{run.id}: its numbers differ from those of an undisturbed run")
            if run.changed_metrics():
                self.fault(f"{run.id}: {run.changed_metrics()}")

    def count(self, what: str) -> None:
        with _counting:
            self.counts[what] += 1

    def fault(self, what: str) -> None:
        with _counting:
            self.faults.append(what)

    # Report ---------------------------------------------------------------------------------------------------

    def report(self) -> int:
        """Print the counts and return the exit code."""
        for what in ("runs", "runs finished", "kills", "runs deleted during training", "finished runs deleted",
                     "starts on a disk that is nearly full", "runs ended for lack of room", "requests", "runs lost",
                     "numbers changed"):
            print(f"{what:<40} {self.counts[what]:>8}")
        unreadable = [e.id for e in Catalogue(self.store).entries() if e.state == "unreadable"]
        print(f"{'unreadable folders':<40} {len(unreadable):>8}")
        third = max(1, len(self.samples) // 3)
        for name, column, scale in (("memory of the server (MB)", 1, 1024), ("threads", 2, 1), ("open files", 3, 1)):
            parts = [self.samples[i:i + third] for i in (0, third, 2 * third)]
            means = [sum(s[column] for s in part) / max(1, len(part)) / scale for part in parts]
            print(f"{name + ', mean of each third':<40} " + " ".join(f"{mean:>8.0f}" for mean in means))
        last = self.samples[2 * third:]
        for name, part in (("first", last[:len(last) // 2]), ("second", last[len(last) // 2:])):
            mean = sum(s[1] for s in part) / max(1, len(part)) / 1024
            print(f"{f'memory (MB), {name} half of the last third':<40} {mean:>8.0f}")
        for line in self.faults[:50]:
            print(f"  {line}")
        return 1 if self.faults or unreadable else 0


_counting = threading.Lock()


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
        soak = Soak(Path(folder), 60 * options.minutes, options.seed)
        soak.train_reference()
        soak.start_server(options.port)
        targets = [(soak.sample, ()), *((soak.watch, (options.seed + i,)) for i in range(WATCHERS)),
                   *((soak.work, (options.seed + 100 + i,)) for i in range(WORKERS))]
        threads = [threading.Thread(target=target, args=given) for target, given in targets]  # type: ignore[arg-type]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        soak.end_server()
        code = soak.report()
        if code:
            print(f"--- the server's output ---\n{(Path(folder) / 'server.txt').read_text(errors='replace')[-3000:]}")
        return code


if __name__ == "__main__":
    raise SystemExit(main())
