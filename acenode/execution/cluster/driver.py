"""The program of the driver process: it starts or joins Ray and has it train the runs that a launcher names.

Requests are those of `acenode.execution.processes`; with a run comes the launcher's process. It has two more answers:

    {"size": {"cpus": 16, "gpus": 2, "machines": 3, "runs": 8}}   Ray is ready, or its size has changed
    {"error": TEXT}                                               Ray could not be started or joined

Ray ends the driver itself if the cluster is lost, which must not end the app: so it is a process of its own. It also
keeps Ray's messages off the terminal.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from acenode.errors import UserError
from acenode.execution.cluster.files import FolderKeeper, own_folder, shared_probe, train_run
from acenode.execution.cluster.ray_cluster import ClusterSize, cluster_size
from acenode.execution.processes import take_output
from acenode.runs.store import BUSY, Run

WAIT_SECONDS = 0.1  # for the end of a task, between looks at the requests
SIZE_SECONDS = 3.0  # between looks at the size of the cluster
CLOSE_SECONDS = 120.0  # for runs to stop with a checkpoint when the launcher has ended
RETRIES = 100  # of a task by Ray; `train_run` counts workers that die and gives up sooner
STORE_BYTES = 128 * 2**20  # shared memory of a local Ray, which carries little
KEEPER_THREADS = 8


@dataclass
class _Task:
    """A run that Ray trains or is about to."""

    key: str
    run: Run
    process: dict[str, Any]  # the launcher's
    at_end: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def end(self, state: str, error: str | None = None) -> None:
        """Write how the run ended, unless its worker did."""
        with contextlib.suppress(UserError, OSError):
            if self.run.stored_state() in BUSY and self.run.status()["process"] == self.process:
                self.run.set_state(state, error=error)

    def fail(self, error: Exception) -> None:
        if isinstance(error, ModuleNotFoundError):
            self.end("failed", f"a worker of the cluster has no {error.name}: install the same acenode on every "
                               "machine")
        else:
            self.end("failed", _line(error))


class _Driver:
    """Submits tasks and waits for their ends."""

    def __init__(self, options: argparse.Namespace, answers: IO[bytes]) -> None:
        self.options, self.answers = options, answers
        self.requests: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()  # None: exit
        self.tasks: dict[Any, _Task] = {}  # by the reference to their result
        self.size: ClusterSize | None = None
        self.connected = threading.Event()

    def start(self) -> None:
        """Connect to Ray and start the folder keeper on this machine."""
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        keeper = ray.remote(FolderKeeper).options(num_cpus=0, max_restarts=-1, max_task_retries=-1,
                                                  max_concurrency=KEEPER_THREADS, scheduling_strategy=here)
        self.keeper: Any = keeper.remote()
        self.connected.set()
        self.report_size()

    def answer(self, **values: Any) -> None:
        with contextlib.suppress(BrokenPipeError):  # the launcher has ended, which the input tells too
            self.answers.write(json.dumps(values).encode() + b"\n")

    def report_size(self) -> None:
        """Tell the launcher how large the cluster is, if that has changed."""
        size = cluster_size(ray.nodes(), self.options.threads, self.options.gpu)
        if size != self.size:
            self.size = size
            self.answer(size=asdict(size))

    def read(self, lines: Iterable[bytes]) -> None:
        """Queue the requests; in a thread of its own. End the process if the input ends while Ray is being joined."""
        for line in lines:
            self.requests.put(json.loads(line))
        if not self.connected.is_set():
            os._exit(1)  # Ray cannot be interrupted and would try for minutes; what it started ends with this process
        self.requests.put(None)

    def serve(self) -> None:
        """Handle requests and ends of tasks until the input ends."""
        looked = time.monotonic()
        while True:
            with contextlib.suppress(queue.Empty):
                request = self.requests.get(timeout=0.001 if self.tasks else WAIT_SECONDS)
                if request is None:
                    return self.close()
                self.handle(request)
                continue
            self.collect(WAIT_SECONDS)
            if time.monotonic() - looked > SIZE_SECONDS:
                self.report_size()
                looked = time.monotonic()

    def handle(self, request: dict[str, Any]) -> None:
        if "train" in request:
            task = _Task(request["train"], Run(Path(request["run"])), request["process"])
            try:
                self.submit(task, request)
            except Exception as error:  # one run that cannot be submitted does not end the others
                task.fail(error)
                self.answer(ended=task.key)
        else:
            for reference, task in self.tasks.items():
                if task.key == request["stop"]:
                    self.stop(reference, task)

    def submit(self, task: _Task, request: dict[str, Any]) -> None:
        with contextlib.ExitStack() as stack:
            probe = str(stack.enter_context(shared_probe(task.run.path))) if self.options.shared else None
            task.at_end = stack.pop_all()
        gpu = self.options.gpu if self.size and self.size.gpus and task.run.config().device != "cpu" else 0.0
        remote = ray.remote(train_run).options(num_cpus=self.options.threads, num_gpus=gpu, max_retries=RETRIES,
                                               scheduling_strategy="SPREAD", name=f"acenode {task.run.id}")
        reference = remote.remote(self.keeper, request["run"], request["data"], probe, request["process"],
                                  self.options.threads, gpu)
        self.tasks[reference] = task

    def stop(self, reference: Any, task: _Task) -> None:
        """Ask the worker of a run to stop; a task that still waits for a worker is cancelled."""
        with contextlib.suppress(UserError, OSError):  # the run was deleted
            task.run.request_stop()
            if task.run.stored_state() == "queued":
                ray.cancel(reference)

    def collect(self, seconds: float) -> None:
        """Handle the tasks that end within so many seconds."""
        if not self.tasks:
            return
        done, _ = ray.wait(list(self.tasks), timeout=seconds)
        for reference in done:
            task = self.tasks.pop(reference)
            try:
                ray.get(reference)
            except ray.exceptions.TaskCancelledError:
                task.end("stopped")
            except ray.exceptions.RayTaskError as error:
                task.fail(error.cause or error)
            except ray.exceptions.RayError as error:
                task.end("interrupted", f"Ray could not train the run ({_line(error)}): resume it")
            ray.get(self.keeper.end.remote(str(task.run.path)))
            task.at_end.close()
            if (task.run.path / "stop").exists():  # before it began
                task.end("stopped")
            task.end("interrupted", "its worker ended without a result: resume the run")
            with contextlib.suppress(OSError):
                task.run.cancel_stop()
            self.answer(ended=task.key)

    def close(self) -> None:
        """Stop all runs with a checkpoint."""
        for reference, task in self.tasks.items():
            self.stop(reference, task)
        end = time.monotonic() + CLOSE_SECONDS
        while self.tasks and time.monotonic() < end:
            self.collect(WAIT_SECONDS)


def _line(error: BaseException) -> str:
    words = str(error).strip().splitlines()
    return words[-1] if words else type(error).__name__


def main() -> None:
    """Start or join Ray, and serve until the input ends."""
    options = argparse.Namespace(**json.loads(sys.argv[1]))
    requests, answers = os.fdopen(0, "rb", buffering=0), take_output()
    driver = _Driver(options, answers)
    threading.Thread(target=driver.read, args=(requests,), name="acenode-requests", daemon=True).start()
    with own_folder("acenode-ray") as place:
        try:
            _connect(options, place)
            driver.start()
        except Exception as error:
            driver.answer(error=_line(error))
            raise
        driver.serve()
        ray.shutdown()


def _connect(options: argparse.Namespace, place: Path) -> None:
    if options.address is not None:
        ray.init(address=options.address, log_to_driver=False)
    else:
        ray.init(address="local", num_cpus=options.cpus, include_dashboard=False, log_to_driver=False,
                 object_store_memory=STORE_BYTES, _temp_dir=str(place))


if __name__ == "__main__":
    main()
