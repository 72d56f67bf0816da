"""The contact of a worker with the folder keeper: files and stop requests, while a run is trained."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from acenode.execution.cluster.changed_files import ChangedFiles, FileChange

CONTACT_SECONDS = 0.4  # between exchanges with the folder keeper
ANSWER_SECONDS = 60.0  # longest time for an answer
SILENT_SECONDS = 120.0  # without an answer, after which a run whose files are sent stops with a checkpoint


class Contact:
    """Exchanges files and stop requests with the folder keeper, in a thread while the run is trained.

    Args:
        run: path of the run on the machine of the driver.
        keeper: the handle of the folder keeper.
    """

    def __init__(self, run: str, keeper: Any) -> None:
        import ray

        self.get = ray.get
        self.run, self.keeper, self.worker = run, keeper, secrets.token_hex(8)
        self.changed: ChangedFiles | None = None

    def begin(self) -> int:
        return self.get(self.keeper.begin.remote(self.run, self.worker))

    def check(self) -> str:
        return self.get(self.keeper.check.remote(self.run, self.worker))

    def files(self) -> list[FileChange]:
        return self.get(self.keeper.files.remote(self.run, self.worker))

    @contextmanager
    def open(self, changed: ChangedFiles | None) -> Iterator[threading.Event]:
        """Stay in contact during the block; send what changed, if given. Yield the event that asks the run to stop.

        Raises:
            Exception: the last files could not be sent.
        """
        self.changed = changed
        stop, ended = threading.Event(), threading.Event()
        thread = threading.Thread(target=self._stay, args=(stop, ended), name="acenode-contact", daemon=True)
        thread.start()
        try:
            yield stop
        finally:
            ended.set()
            thread.join()
        self._exchange()

    def _stay(self, stop: threading.Event, ended: threading.Event) -> None:
        answered = time.monotonic()
        while not ended.wait(CONTACT_SECONDS):
            try:
                if self._exchange() == "stop":
                    stop.set()
                answered = time.monotonic()
            except Exception:  # the driver's disk is full, or its machine cannot be reached
                if self.changed is not None and time.monotonic() - answered > SILENT_SECONDS:
                    stop.set()

    def _exchange(self) -> str:
        """Send changes and return the keeper's reply."""
        if self.changed is None:
            reply = self.get(self.keeper.check.remote(self.run, self.worker), timeout=ANSWER_SECONDS)
        else:
            changes = self.changed.collect()
            reply = self.get(self.keeper.write.remote(self.run, self.worker, changes), timeout=ANSWER_SECONDS)
            self.changed.received()
        if reply == "replaced":  # Ray took this worker for dead and another one trains the run
            os._exit(1)
        if reply == "send all" and self.changed is not None:
            self.changed.forget()
            return self._exchange()
        return reply
