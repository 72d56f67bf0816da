"""Train a run in a Ray worker, in its directory if this machine sees it, else in a copy that is sent as it is written.

Ray executes the task again if its worker or its machine dies; the run then continues from its last checkpoint.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acenode.errors import UserError
from acenode.execution.cluster.changed_files import ChangedFiles, apply_changes
from acenode.execution.cluster.contact import Contact
from acenode.execution.cluster.folder_keeper import wait_for_lock
from acenode.execution.cluster.own_folder import own_folder
from acenode.execution.cluster.probe import sees
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
    _set_up(order)
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


def _set_up(order: RunOrder) -> None:
    """Use as many threads as the order says, no GPU that Ray has not assigned, and the data of this machine."""
    if not order.gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if Path(order.data_root).is_dir():
        os.environ["ACENODE_DATA"] = order.data_root
    import torch

    torch.set_num_threads(order.threads)


def _train(run: Run, order: RunOrder, stop: threading.Event) -> None:
    from acenode.data.folder import data_dir
    from acenode.execution.execute import attempt

    attempt(run, data_dir(), stop, process=order.process)
