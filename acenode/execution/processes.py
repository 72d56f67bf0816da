"""Processes that train runs: how one is asked to, the launcher's pool of workers, and the program of a worker.

The launcher writes one JSON object a line to a process's standard input:

    {"train": KEY, "run": PATH, "data": PATH, ...}   train the run in this directory with the data in that folder
    {"stop": KEY}                                    stop that run after the current iteration

The answer {"ended": KEY} on standard output says that the run has ended. Everything else is in the run directory. The
end of the input means that the launcher wants no more runs or that its process has died: the runs stop with a
checkpoint and the process exits. A worker also exits after a run that failed, so that all its memory is freed.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

import torch

from acenode.errors import UserError
from acenode.execution.environment import child_environment
from acenode.execution.execute import attempt
from acenode.runs.store import BUSY, Run

KEEP_SECONDS = 60.0  # how long an idle worker process is kept: importing torch takes seconds
POLL_SECONDS = 0.1  # longest time until a stop request is passed on
EXIT_SECONDS = 10.0  # time that an idle process gets to exit


class ChildProcess:
    """A process that trains runs; `more` is sent with each of them."""

    def __init__(self, module: str, *arguments: str, more: dict[str, Any], **options: Any) -> None:
        # Ctrl-C in a terminal reaches this process only, which then asks the others to stop.
        command = [sys.executable, "-P", "-m", module, *arguments]
        self.process = subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        process_group=0, **options)
        self.more, self.lost = more, threading.Event()  # lost: the process has ended
        self._ended: dict[str, threading.Event] = {}  # of the runs that it trains
        self._sending = threading.Lock()
        threading.Thread(target=self._read, name="acenode-answers", daemon=True).start()

    def train(self, run: Run, data_root: Path, stop: threading.Event) -> bool:
        """Train a run and wait for its end; return False if the process has died before."""
        key, ended = secrets.token_hex(8), threading.Event()
        self._ended[key] = ended
        if self.lost.is_set():
            return False
        self._send({"train": key, "run": str(run.path.resolve()), "data": str(data_root.resolve()), **self.more})
        requested = False
        while not ended.wait(POLL_SECONDS):
            if stop.is_set() and not requested:
                self._send({"stop": key})
                requested = True
        return self._ended.pop(key, None) is not None

    def close_input(self) -> None:
        """Let the process stop its runs and exit."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def _send(self, request: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        with self._sending, contextlib.suppress(BrokenPipeError, ValueError):  # the process has died, or is closed
            self.process.stdin.write(json.dumps(request).encode() + b"\n")

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines, contextlib.suppress(ValueError):  # a line that was cut off
            for answer in map(json.loads, lines):
                self._handle(answer)
        self._handle_end()
        self.lost.set()
        waiting, self._ended = self._ended, {}
        for ended in waiting.values():
            ended.set()

    def _handle(self, answer: dict[str, Any]) -> None:
        if answer["ended"] in self._ended:
            self._ended[answer["ended"]].set()

    def _handle_end(self) -> None:
        """Do what is left to do when the process has ended."""


class WorkerProcess(ChildProcess):
    """A process that trains runs of one device, one at a time."""

    def __init__(self, device: str) -> None:
        super().__init__("acenode.execution.processes", str(torch.get_num_threads()), more={"device": device},
                         env=child_environment())
        self.device, self.idle_since = device, 0.0

    def explain_end(self, run: Run) -> None:
        """Write why a run ended with its process, unless the process did."""
        code = self.process.wait()
        with contextlib.suppress(UserError, OSError):
            if run.stored_state() not in BUSY:
                return
            if code < 0:
                name = next((s.name for s in signal.Signals if s == -code), f"signal {-code}")
                reason = " (the system does that when memory runs out)" if -code == signal.SIGKILL else ""
                run.set_state("interrupted", error=f"the training process was killed by {name}{reason}: resume the "
                                                   "run to continue from its last checkpoint")
            elif code > 0:
                run.set_state("failed", error=f"the training process ended with exit code {code}: its error is in the "
                                              "terminal of the app")


class ProcessPool:
    """Worker processes by device; there are never more than were in use at one time in the last minute."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.closed = False
        self.idle: list[WorkerProcess] = []
        self.ending: list[WorkerProcess] = []

    def train(self, device: str, run: Run, data_root: Path, stop: threading.Event) -> None:
        """Train a run in an idle process of the device, or in a new one; return when the run has ended."""
        worker = self._take(device)
        if worker.train(run, data_root, stop):
            worker.idle_since = time.monotonic()
            with self.lock:
                self.idle.append(worker)
            if self.closed:
                self.end_idle(0.0)
        else:
            worker.explain_end(run)
            worker.close_input()

    def _take(self, device: str) -> WorkerProcess:
        with self.lock:
            for worker in reversed(self.idle):  # the one that was used last
                if worker.device == device:
                    self.idle.remove(worker)
                    if worker.process.poll() is None:
                        return worker
        try:
            return WorkerProcess(device)
        except OSError as error:
            raise UserError(f"no process could be started to train the run ({error.strerror or error}): "
                            "resume it when other programs have ended") from None

    def end_idle(self, seconds: float = KEEP_SECONDS) -> None:
        """End the processes that have been idle for so long."""
        with self.lock:
            now = time.monotonic()
            old = [w for w in self.idle if now - w.idle_since >= seconds]
            self.idle = [w for w in self.idle if w not in old]
            for worker in old:
                worker.close_input()
            self.ending = [w for w in self.ending + old if w.process.poll() is None]

    def close(self) -> None:
        """End all idle processes and wait for them; the others end after their runs."""
        self.closed = True
        self.end_idle(0.0)
        for worker in self.ending:
            try:
                worker.process.wait(EXIT_SECONDS)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()


# The program of a worker --------------------------------------------------------------------------------------------

ORPHAN_SECONDS = 300.0  # a worker without a launcher ends after this time at the latest, even within an iteration


def main(threads: int) -> None:
    """Train requested runs with so many torch threads until the input ends. A thread of its own reads the input, so
    that a stop reaches a run that is being trained."""
    lines, answers = os.fdopen(0, "rb", buffering=0), take_output()  # a thread may not block a buffer at the exit
    requests: queue.SimpleQueue[tuple[dict[str, str], threading.Event] | None] = queue.SimpleQueue()  # None: exit
    latest, ended = threading.Event(), threading.Event()  # latest: stops the run that was requested last

    def end(*signalled: object) -> None:
        ended.set()
        latest.set()
        requests.put(None)

    def read() -> None:
        nonlocal latest
        for given in map(json.loads, lines):
            if "train" in given:
                latest = threading.Event()
                requests.put((given, latest))
            else:
                latest.set()
        end()
        time.sleep(ORPHAN_SECONDS)
        os._exit(1)

    torch.set_num_threads(threads)
    signal.signal(signal.SIGTERM, end)
    threading.Thread(target=read, name="acenode-requests", daemon=True).start()
    while (request := requests.get()) is not None:
        given, stop = request
        state = attempt(Run(Path(given["run"])), Path(given["data"]), stop, given["device"])
        if state not in ("finished", "stopped") or ended.is_set():
            return
        answers.write(json.dumps({"ended": given["train"]}).encode() + b"\n")


def take_output() -> IO[bytes]:
    """Return the standard output for answers; what libraries print goes to standard error from here on."""
    sys.stdout.flush()
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    return answers


if __name__ == "__main__":
    main(int(sys.argv[1]))
