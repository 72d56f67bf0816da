"""Train a run in a Ray worker, in its directory if this machine sees it, else in a copy that is sent as it is written.

Ray executes the task again if its worker or its machine dies; the run then continues from its last checkpoint.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acenode.errors import UserError
from acenode.execution.cluster.files import ChangedFiles, FileChange, apply_changes, own_folder, sees, wait_for_lock
from acenode.runs.store import Run

MAX_ATTEMPTS = 10  # workers that may die of one run, for instance because memory runs out


@dataclass(frozen=True)
class RunOrder:
    """What a worker needs to know to train a run."""

    run: str  # path on the machine of the driver
    data_root: str
    probe: str | None  # the file that is seen on a shared file system; None: send files in any case
    process: dict[str, Any]  # the launcher's process, which readers of the run look for
    threads: int
    gpu: float  # share of a GPU; 0: the run uses the processor


def train_run(order: RunOrder, keeper: Any) -> None:
    """Train a run; every outcome is in its status.json.

    Args:
        order: what to train and how.
        keeper: the handle of the folder keeper.
    """
    contact = Contact(order.run, keeper)
    attempts = contact.begin()
    if attempts > MAX_ATTEMPTS:
        raise UserError(f"{MAX_ATTEMPTS} workers died while they trained this run: it may need more memory than a "
                        "machine has; resume it to try again")
    if contact.check() == "stop":
        return
    if order.probe is not None and sees(Path(order.probe)):
        with contact.open(None) as stop:
            run = Run(Path(order.run))
            wait_for_lock(run, stop)
            _train(run, order, stop)
        return
    with own_folder("acenode-run") as place:
        copy = Run(place / Path(order.run).name)
        copy.path.mkdir()
        apply_changes(copy.path, contact.files())
        with contact.open(ChangedFiles(copy.path, sent=True)) as stop:
            _train(copy, order, stop)


def _train(run: Run, order: RunOrder, stop: threading.Event) -> None:
    """Train with as many threads as the order says, no GPU that Ray has not assigned, and the data of this machine."""
    if not order.gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if Path(order.data_root).is_dir():
        os.environ["ACENODE_DATA"] = order.data_root
    import torch

    from acenode.data.folder import data_dir
    from acenode.execution.execute import attempt

    torch.set_num_threads(order.threads)
    attempt(run, data_dir(), stop, process=order.process)


# The contact of a worker with the folder keeper: files and stop requests ---------------------------------------------

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
        return self._ask("begin")

    def check(self) -> str:
        return self._ask("check")

    def files(self) -> list[FileChange]:
        return self._ask("files")

    def _ask(self, method: str, *more: Any, timeout: float | None = None) -> Any:
        return self.get(getattr(self.keeper, method).remote(self.run, self.worker, *more), timeout=timeout)

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
            reply = self._ask("check", timeout=ANSWER_SECONDS)
        else:
            reply = self._ask("write", self.changed.collect(), timeout=ANSWER_SECONDS)
            self.changed.received()
        if reply == "replaced":  # Ray took this worker for dead and another one trains the run
            os._exit(1)
        if reply == "send all" and self.changed is not None:
            self.changed.forget()
            return self._exchange()
        return reply
