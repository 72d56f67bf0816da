"""Execute one run in another process, here or on a cluster, and report its progress like `execute` does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from acenode.errors import UserError
from acenode.execution.execute import Outcome, refuse_finished
from acenode.execution.run_listener import Progress
from acenode.runs.store import Run

READ_SECONDS = 0.5  # between looks at the run directory
SHOWN = ("phase", "progress", "epoch", "epochs", "step", "seconds", "seconds_left", "best", "metric")  # of status.json


def execute_elsewhere(train: Callable[[Run, Path, threading.Event], None], run: Run, data_root: Path, *,
                      stop: threading.Event, progress: Progress) -> Outcome:
    """Have a run trained and tested by another process; its directory has the result.

    Args:
        train: trains the run: `RayCluster.train`, or `ProcessPool.train` with a device.
        run: a run that is not finished; one with a checkpoint continues from it.
        data_root: the folder with the data sets.
        stop: the run stops after the current iteration once this is set.
        progress: called with the run's progress about twice a second.

    Raises:
        UserError: the run is finished, the process cannot be started, or the cluster cannot be joined.
    """
    refuse_finished(run)
    run.set_state("queued", error=None)
    ended = threading.Event()
    reader = threading.Thread(target=_follow, args=(run, ended, progress), name="acenode-follow", daemon=True)
    reader.start()
    try:
        train(run, data_root, stop)
    finally:
        ended.set()
        reader.join()
    status, result = run.status(), run.result()
    metrics = {k: float("nan") if v is None else v for k, v in (result or {}).get("test", {}).items()}
    return Outcome(run, status["state"], metrics if status["state"] == "finished" else {},
                   float(status.get("seconds") or 0), int(run.description().get("params", 0)), status.get("error"))


def _follow(run: Run, ended: threading.Event, progress: Progress) -> None:
    """Report the progress in the run directory until the run has ended."""
    offset = run.metrics()[1]
    last = False
    while not last:
        last = ended.wait(READ_SECONDS)
        try:
            records, offset = run.metrics(offset)
            status = run.status()
        except UserError:  # deleted meanwhile
            continue
        if "phase" in status and status["state"] != "queued":
            shown: dict[str, Any] = {key: status.get(key) for key in SHOWN} | {"fallback": None}
            for record in [*records, {}]:  # one call for each epoch, which may come several at a time
                shown |= {k: record[k] for k in ("L_h", "L_a") if k in record}
                if record.get("kind") == "epoch":
                    value = record.get(f"validation_{status.get('metric')}")
                    progress(shown | {"epoch": record["epoch"], "validation": value})
            progress(shown)
