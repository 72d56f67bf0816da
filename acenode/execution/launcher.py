"""The launcher: trains runs in the background, from one queue, with a number of workers per device.

The processor and each GPU are devices. A run that asks for `cuda` goes to the GPU with the fewest runs. Every run has a
thread here, which trains it, or has a machine of the cluster do so or, where several are trained at a time, a worker
process: threads of one process would compete for one interpreter. Workers report through the run directory alone.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from acenode.config import Config
from acenode.errors import UserError
from acenode.execution.cluster.ray_cluster import RayCluster
from acenode.execution.devices import CpuMeter, DeviceState, device_names, gpu_state, matches
from acenode.execution.engine_choice import MAX_SEEDS, SeedGroup, fallback_line, separate_reason, without_seed
from acenode.execution.environment import device_of
from acenode.execution.execute import attempt, create, refuse_finished
from acenode.execution.processes import ProcessPool
from acenode.runs.process import RENEW_SECONDS, identity, refuse_stalled, touch
from acenode.runs.store import BUSY, Run, RunStore

IDLE_SECONDS = 0.2  # between checks of the queue
Place = Literal["auto", "thread", "process"]  # auto: processes where several runs are trained at a time
MAX_WORKERS = 64  # runs at a time on a device of this machine,
MAX_CLUSTER_WORKERS = 500  # and on a cluster: a thread for each, which wakes ten times a second
ALONE = -1  # the batch of runs that are trained by themselves
ABANDONED = "training ended, but its last state could not be written"


@dataclass
class _Job:
    """A queued or running run, its device, and the event that asks it to stop."""

    run: Run
    asked: str  # cpu, cuda or cuda:N
    config: Config
    batch: int  # runs that were queued together have equal numbers
    device: str = ""  # that trains it, once it runs
    stop: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None
    group: SeedGroup | None = None  # seeds that are trained as one computation

    @property
    def slot(self) -> Hashable:
        """What takes up a worker: the group of seeds, or the run."""
        return self.run.id if self.group is None else self.group


@dataclass(frozen=True)
class Job:
    """A running or queued run, as the launcher has it."""

    run: str
    config: Config
    devices: tuple[str, ...]  # that may train it; the one that does, if it runs
    slot: Hashable  # equal for seeds that are trained as one computation: they take up one worker
    running: bool


class Launcher:
    """Starts, stops, resumes, deletes and reorders runs; each device takes runs from the queue independently.

    Args:
        store: where new runs are created.
        data_root: the folder with the data sets.
        places: for `cpu`, `cuda` or a single GPU, whether threads of this process train its runs, or other processes.
        cluster: trains all runs instead of the devices of this machine; the launcher closes it.
    """

    def __init__(self, store: RunStore, data_root: Path, places: Mapping[str, Place] | None = None,
                 cluster: RayCluster | None = None) -> None:
        self.store, self.data_root = store, data_root
        self.places: dict[str, Place] = dict(places or {})
        self.pool = ProcessPool()
        self.changed = threading.Condition()
        self.waiting: list[_Job] = []
        self.running: dict[str, _Job] = {}  # by the id of the run
        self.cluster = cluster
        self.most_workers = MAX_WORKERS if cluster is None else MAX_CLUSTER_WORKERS
        self.limits = dict.fromkeys(device_names() if cluster is None else [cluster.name], 1)
        self.limit_chosen = False  # otherwise a cluster trains as many runs at a time as fit
        self.closed = False
        self.batch = self.depth = 0  # the number of the batch that is queued, and how many blocks queue it
        self.meter = CpuMeter()
        self.dispatcher = threading.Thread(target=self._dispatch, name="acenode-launcher", daemon=True)
        self.dispatcher.start()

    @contextlib.contextmanager
    def queue_together(self) -> Iterator[None]:
        """Start nothing before the end of the block: seeds of one configuration in it can train as one computation."""
        with self.changed:
            self.depth += 1
            try:
                yield
            finally:
                self.depth -= 1
                self.batch += 1

    def start(self, config: Config, extra: Mapping[str, Any] | None = None) -> Run:
        """Queue a new run; `extra` is added to its config.json."""
        with self.changed:  # until it is in the queue, others would see an abandoned run
            self._check_open()
            run = create(self.store, config, extra, elsewhere=self.cluster is not None)
            self._enqueue(run, config, self._device(config))
        return run

    def resume(self, run: Run) -> None:
        """Queue a run that was stopped, failed or interrupted; it continues from its last checkpoint."""
        with self.changed:  # held throughout: of two concurrent requests one is refused
            if self._find(run.id) is not None:
                raise UserError(f"{run.id} is already queued or running")
            refuse_finished(run)
            state = self._state(run)
            if state in BUSY:  # in another process
                raise UserError(f"{run.id} is {state}: there is nothing to resume")
            config = run.config()
            device = self._device(config)  # before the run changes: its device may be missing here
            self._check_open()
            run.cancel_stop()
            run.set_state("queued", error=None)
            self._enqueue(run, config, device)

    def retry(self, run: Run) -> Run:
        """Queue a new run with the same configuration."""
        return self.start(run.config())

    def stop(self, run: Run) -> None:
        """Take a run out of the queue, or ask it to stop after the current iteration; may be called twice."""
        with self.changed:
            job = self._find(run.id)
            if job is not None and job in self.waiting:
                self.waiting.remove(job)
                run.set_state("stopped")
                self.changed.notify_all()
            elif job is not None:
                job.stop.set()
            elif self._state(run) in BUSY:  # in another process
                run.request_stop()
            elif run.stored_state() in BUSY:  # its process is gone
                run.set_state("interrupted", error=run.status()["error"] or ABANDONED)

    def delete(self, run: Run) -> None:
        """Delete the directory of a run that is not running."""
        with self.changed:
            if run.id in self.running:
                raise UserError(f"{run.id} is running: stop it first")
            state = "unreadable"
            with contextlib.suppress(UserError):  # a damaged run can be deleted too
                state = self._state(run)
            if state == "running":
                raise UserError(f"{run.id} is running in another process: stop it first")
            refuse_stalled(run.path)
            self.waiting = [job for job in self.waiting if job.run.id != run.id]
            self.changed.notify_all()
            try:
                with contextlib.suppress(FileNotFoundError):  # already deleted
                    run.delete()
            except OSError as error:
                raise UserError(f"{run.path} cannot be deleted ({error.strerror or error}): correct that and try "
                                "again") from None

    def move(self, run: Run, position: int) -> None:
        """Move a queued run to another position, counted from 0."""
        with self.changed:
            job = self._find(run.id)
            if job is None or job not in self.waiting:
                raise UserError(f"{run.id} is not in the queue")
            self.waiting.remove(job)
            self.waiting.insert(max(0, position), job)

    def set_workers(self, device: str, count: int) -> None:
        """Set how many runs a device trains at a time; `cuda` sets it for each GPU."""
        names = [name for name in self.limits if matches(name, device)]
        if not names:
            raise UserError(f"there is no device {device!r}: choose one of {', '.join(self.limits)}")
        if not 1 <= count <= self.most_workers:
            raise UserError(f"a device takes 1 to {self.most_workers} runs at a time, not {count}")
        with self.changed:
            self.limits |= dict.fromkeys(names, count)
            self.limit_chosen = True
            self.changed.notify_all()

    def workers(self, device: str) -> int:
        """Return how many runs are trained at a time on the devices that `auto`, `cpu`, `cuda` or `cuda:N` allows."""
        return sum(self.limits[name] for name in self._allowed(device)) or 1

    def trains_together(self, config: Config) -> bool:
        """Return True if seeds of a configuration that are queued together become one computation."""
        if self.cluster is not None:
            return False
        device = self._device(config)
        return self._place(device) != "process" and separate_reason(config, device) is None

    def devices(self, device: str) -> int:
        """Return how many devices `auto`, `cpu`, `cuda` or `cuda:N` allows, at least 1."""
        return max(1, len(self._allowed(device)))

    def queue(self) -> list[str]:
        """Return the ids of the queued runs, the next one first."""
        with self.changed:
            return [job.run.id for job in self.waiting]

    def position(self, run_id: str) -> int | None:
        """Return the position of a run in the queue, counted from 0, or None if it is not queued."""
        queue = self.queue()
        return queue.index(run_id) if run_id in queue else None

    def jobs(self) -> list[Job]:
        """Return the running runs, then the queued ones in their order."""
        def slot(job: _Job) -> Hashable:
            together = job.batch != ALONE and self.trains_together(job.config)
            return (job.batch, without_seed(job.config)) if together else job.run.id

        with self.changed:
            running = [Job(j.run.id, j.config, (j.device,), j.slot, running=True) for j in self.running.values()]
            return running + [Job(j.run.id, j.config, tuple(n for n in self.limits if matches(n, j.asked)), slot(j),
                                  running=False) for j in self.waiting]

    def device_states(self) -> list[DeviceState]:
        """Return load, memory and the workers in use of each device; seeds that train as one use one worker."""
        with self.changed:
            limits = dict(self.limits)
            running = [device for device, _ in {(job.device, job.slot) for job in self.running.values()}]
        if self.cluster is not None:
            title = self.cluster.size.title if self.cluster.size else "Ray"
            return [DeviceState(self.cluster.name, title, limits[self.cluster.name], len(running), None, None, None)]
        return [self.meter.state(workers, running.count(name)) if name == "cpu" else
                gpu_state(int(name.partition(":")[2]), workers, running.count(name), several=len(limits) > 2)
                for name, workers in limits.items()]

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until no run is queued or running; return False on timeout."""
        with self.changed:
            return self.changed.wait_for(lambda: not self.waiting and not self.running, timeout)

    def close(self, timeout: float | None = 60.0) -> None:
        """Start no more runs, ask the running ones to write a checkpoint and stop, and wait for them."""
        with self.changed:
            self.closed = True
            waiting, self.waiting = self.waiting, []
            jobs = list(self.running.values())
            for job in jobs:
                job.stop.set()
            for job in waiting:
                with contextlib.suppress(UserError, OSError):  # a damaged run does not prevent the others from stopping
                    job.run.set_state("stopped")
            self.changed.notify_all()
        for job in jobs:
            if job.thread is not None:
                job.thread.join(timeout)
        self.pool.close()
        if self.cluster is not None:
            self.cluster.close()

    def recover(self, runs: Iterable[Run]) -> list[Run]:
        """Mark those of the runs that a dead process left queued or running as interrupted, and return them."""
        left = []
        for run in runs:
            with contextlib.suppress(Exception):  # one bad folder, or one that cannot be written, stops nobody
                status = run.status()
                if status["state"] == "interrupted" and run.stored_state() != "interrupted":
                    run.set_state("interrupted", error=status["error"])
                    left.append(run)
        return left

    def _check_open(self) -> None:
        if self.closed:
            raise UserError("the launcher is closing: start the app again")

    def _enqueue(self, run: Run, config: Config, device: str) -> None:
        self.waiting.append(_Job(run, device, config, self.batch))
        if not self.depth:
            self.batch += 1
        self.changed.notify_all()

    def _device(self, config: Config) -> str:
        return str(device_of(config.device)) if self.cluster is None else self.cluster.name

    def _find(self, run_id: str) -> _Job | None:
        return self.running.get(run_id) or next((j for j in self.waiting if j.run.id == run_id), None)

    def _state(self, run: Run) -> str:
        status = run.status()
        here = status["state"] in BUSY and status["process"] == identity()
        return "interrupted" if here and self._find(run.id) is None and not run.locked else status["state"]

    def _allowed(self, device: str) -> list[str]:
        if self.cluster is not None:
            return [self.cluster.name]
        kind = device if device != "auto" else "cuda" if len(self.limits) > 1 else "cpu"
        return [name for name in self.limits if matches(name, kind)]

    def _ready(self) -> Iterator[_Job]:
        """Yield queued jobs for which a device has a free worker, in order, with the device that is least busy."""
        if self.cluster is not None and not self.limit_chosen:
            self.limits[self.cluster.name] = min(self.most_workers, self.cluster.slots())
        busy = {name: len({j.slot for j in self.running.values() if j.device == name}) for name in self.limits}
        for job in list(self.waiting):
            if job not in self.waiting:  # it has started with another seed
                continue
            free = [name for name in self.limits if matches(name, job.asked) and busy[name] < self.limits[name]]
            if free:
                job.device = min(free, key=busy.__getitem__)
                busy[job.device] += 1
                yield from self._with_other_seeds(job)

    def _with_other_seeds(self, job: _Job) -> list[_Job]:
        """Return a job that starts and the queued ones that are trained as one computation with it."""
        seeds = [job, *(other for other in self.waiting if other is not job and other.batch == job.batch
                        and without_seed(other.config) == without_seed(job.config))][:MAX_SEEDS]
        if len(seeds) == 1 or job.batch == ALONE or self.cluster is not None or self._place(job.device) == "process":
            return [job]
        if reason := separate_reason(job.config, job.device):
            for each in seeds:
                each.batch = ALONE
                with contextlib.suppress(OSError):  # it says so itself if it cannot write
                    each.run.log(fallback_line(reason))
            return [job]
        group = SeedGroup(len(seeds))
        for each in seeds:
            each.group, each.device = group, job.device
        return seeds

    def _dispatch(self) -> None:
        renewed = time.monotonic()
        while True:
            with self.changed:
                if self.closed:
                    return
                for job in self._ready():
                    self.waiting.remove(job)
                    self.running[job.run.id] = job
                    job.thread = threading.Thread(target=self._work, args=(job,), name=f"acenode-{job.run.id}",
                                                  daemon=True)
                    job.thread.start()
                    self.changed.notify_all()
                self.changed.wait(IDLE_SECONDS)
                jobs = [*self.waiting, *self.running.values()]
            self.pool.end_idle()
            if time.monotonic() - renewed >= RENEW_SECONDS:
                for job in jobs:
                    touch(job.run.path)
                renewed = time.monotonic()

    def _work(self, job: _Job) -> None:
        place, kind = self._place(job.device), job.device.partition(":")[0]
        several = os.name == "posix" and sum(n for name, n in self.limits.items() if matches(name, kind)) > 1
        in_process = place == "process" or (place == "auto" and several)
        try:
            if self.cluster is not None:
                self.cluster.train(job.run, self.data_root, job.stop)
            elif job.group is None and in_process:
                self.pool.train(job.device, job.run, self.data_root, job.stop)
            else:
                attempt(job.run, self.data_root, job.stop, job.device, group=job.group)
        except BaseException as error:  # no process could be started, or there is a bug: the run must not stay queued
            with contextlib.suppress(Exception):
                job.run.set_state("failed", error=str(error))
        finally:
            with self.changed:
                self.running.pop(job.run.id, None)
                self.changed.notify_all()

    def _place(self, device: str) -> Place:
        return self.places.get(device, self.places.get(device.partition(":")[0], "auto"))


def seconds_until_start(run: str, jobs: Sequence[Job], workers: Mapping[str, int],
                        seconds: Callable[[Job], float | None]) -> float | None:
    """Return in how many seconds the queued run of this id starts, or None if it is not queued or that is unknown.

    `jobs` are the running ones, then the queued ones in their order; `workers` says how many runs each device trains at
    a time, `seconds` how long a job still takes. A job whose time is unknown keeps its worker for ever.
    """
    free = {device: [0.0] * count for device, count in workers.items()}  # when each worker has nothing to do
    slots: dict[Hashable, list[Job]] = {}
    for job in jobs:
        slots.setdefault(job.slot, []).append(job)
    for together in slots.values():
        start, device = 0.0, together[0].devices[0]
        if not together[0].running:
            places = [(min(free[name]), name) for name in together[0].devices if free.get(name)]
            if not places:
                return None
            start, device = min(places)
            if run in [job.run for job in together]:
                return start
        if start in free[device]:  # for a running one, fewer workers may have been allowed since
            free[device].remove(start)
        times = [time for time in map(seconds, together) if time is not None]
        if len(times) == len(together):
            free[device].append(start + max(times))
    return None
