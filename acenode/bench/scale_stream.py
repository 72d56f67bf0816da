"""Runs that stream their files to a folder keeper on a local Ray, as workers on other machines do, without training.

They write what a quick run writes: ten steps a second in two appends, a status a second and a checkpoint of 2 MB every
20 s. The paths of the runs are the arguments. When all have begun, the process prints the ids of the keeper's process
and of the workers; it ends with its standard input.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from acenode.execution.cluster.changed_files import ChangedFiles, apply_changes
from acenode.execution.cluster.own_folder import own_folder
from acenode.files import write_atomic
from acenode.runs.store import Run
from acenode.runs.writer import RunWriter

STEPS, PAUSE = 5, 0.5  # in one append, and seconds between two
CHECKPOINT_BYTES, CHECKPOINT_SECONDS = 2_000_000, 20.0
PROCESSES = 2  # that play all workers


def _stream(path: str, keeper: Any, ended: threading.Event) -> None:
    """Write a run like a quick training would, in a copy whose files are sent."""
    from acenode.execution.cluster.contact import Contact

    contact = Contact(path, keeper)
    contact.begin()
    with tempfile.TemporaryDirectory() as place:
        copy = Run(Path(place) / Path(path).name)
        copy.path.mkdir()
        apply_changes(copy.path, contact.files())
        writer, step, saved = RunWriter(copy), 0, 0.0
        writer.status("running", progress=0.0)
        with contact.open(ChangedFiles(copy.path, sent=True)) as stop:
            while not stop.is_set() and not ended.is_set():
                records = [{"kind": "step", "step": step + i, "L_h": 0.5, "L_a": 0.5, "grad_h": 0.1, "grad_a": 0.1,
                            "nfe_forward": 20, "seconds": 0.1, "time": time.time()} for i in range(STEPS)]
                step += STEPS
                writer.append(records)
                writer.heartbeat(progress=0.5, step=step)
                if time.monotonic() - saved > CHECKPOINT_SECONDS:
                    saved = time.monotonic()
                    (copy.path / "checkpoints").mkdir(exist_ok=True)
                    write_atomic(copy.path / "checkpoints" / "last.pt", os.urandom(CHECKPOINT_BYTES))
                ended.wait(PAUSE)


class _Workers:
    """An actor that plays several workers in threads."""

    def __init__(self) -> None:
        self.ended, self.threads = threading.Event(), list[threading.Thread]()

    def start(self, paths: list[str], keeper: Any) -> int:
        """Begin to stream; return the id of this process."""
        self.threads = [threading.Thread(target=_stream, args=(path, keeper, self.ended), daemon=True)
                        for path in paths]
        for thread in self.threads:
            thread.start()
        return os.getpid()

    def end(self) -> None:
        self.ended.set()
        for thread in self.threads:
            thread.join()


def main(paths: list[str]) -> None:
    """Stream all runs until the standard input ends."""
    import ray

    from acenode.execution.cluster.folder_keeper import FolderKeeper

    class Keeper(FolderKeeper):
        def pid(self) -> int:
            return os.getpid()

    with own_folder("acenode-ray") as place:
        ray.init(address="local", num_cpus=PROCESSES, include_dashboard=False, log_to_driver=False,
                 _temp_dir=str(place))
        keeper: Any = ray.remote(Keeper).options(num_cpus=0, max_concurrency=8).remote()
        actors: list[Any] = [ray.remote(_Workers).options(num_cpus=1).remote() for _ in range(PROCESSES)]
        started = ray.get([actor.start.remote(paths[i::PROCESSES], keeper) for i, actor in enumerate(actors)])
        while not all((Path(path) / "metrics.jsonl").exists() for path in paths):
            time.sleep(0.2)
        print(ray.get(keeper.pid.remote()), *started, flush=True)
        sys.stdin.read()
        ray.get([actor.end.remote() for actor in actors])
        ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1:])
