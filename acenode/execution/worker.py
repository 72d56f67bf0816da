"""The program of a worker process: it trains the runs that a launcher names, one after another.

The launcher writes one JSON object a line to the standard input:

    {"run": PATH, "data": PATH, "device": NAME}   train the run in this directory with the data in that folder
    {"stop": true}                                stop that run after the current iteration

A line on standard output says that the run has ended and that the worker can train another one. Everything else is in
the run directory. The end of the input means that the launcher wants no more runs or that its process has died: the run
stops with a checkpoint and the worker exits. It also exits after a run that failed, so that all its memory is freed.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import torch

from acenode.execution.execute import attempt
from acenode.runs.store import Run

ORPHAN_SECONDS = 300.0  # a worker without a launcher ends after this time at the latest, even within an iteration


@dataclass(frozen=True)
class _Request:
    run: Run
    data_root: Path
    device: str
    stop: threading.Event = field(default_factory=threading.Event)


class _Inbox:
    """Reads requests in a thread of its own, so that a stop reaches a run that is being trained."""

    def __init__(self) -> None:
        self.requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()  # None: exit
        self.stop = threading.Event()  # of the last run that was requested
        self.ended = False

    def read(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            given = json.loads(line)
            if "run" in given:
                request = _Request(Run(Path(given["run"])), Path(given["data"]), given["device"])
                self.stop = request.stop
                self.requests.put(request)
            else:
                self.stop.set()
        self.end()
        time.sleep(ORPHAN_SECONDS)
        os._exit(1)

    def end(self) -> None:
        """Stop the run that is being trained, and exit after it."""
        self.ended = True
        self.stop.set()
        self.requests.put(None)


def main(threads: int) -> None:
    """Train requested runs with so many torch threads until the input ends."""
    requests, answers = os.fdopen(0, "rb", buffering=0), _take_output()  # a thread may not block a buffer at the exit
    torch.set_num_threads(threads)
    inbox = _Inbox()
    signal.signal(signal.SIGTERM, lambda number, frame: inbox.end())
    threading.Thread(target=inbox.read, args=(requests,), name="acenode-inbox", daemon=True).start()
    while (request := inbox.requests.get()) is not None:
        state = attempt(request.run, request.data_root, request.stop, request.device)
        if state not in ("finished", "stopped") or inbox.ended:
            return
        answers.write(b"ended\n")


def _take_output() -> IO[bytes]:
    """Return the standard output for answers; what libraries print goes to standard error from here on."""
    sys.stdout.flush()
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    return answers


if __name__ == "__main__":
    main(int(sys.argv[1]))
