"""`acenode bench scale`: what many runs cost. Each part that `--parts` may choose is a function of that name."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from acenode import experiments
from acenode.bench import Row, chosen, cost_of, cpu_seconds, descendants, memory, progress, seconds_of
from acenode.bench.synthetic import CREATED, EpochLauncher, synthetic_search, value_of, write_run
from acenode.config import Config
from acenode.config.ranges import read_ranges
from acenode.data.folder import data_dir
from acenode.errors import UserError
from acenode.execution.cluster.files import (
    CONTACT_SECONDS,
    ChangedFiles,
    Contact,
    FileChange,
    FolderKeeper,
    apply_changes,
    own_folder,
)
from acenode.execution.cluster.ray_cluster import RayCluster, driver_environment
from acenode.execution.environment import describe
from acenode.execution.execute import create
from acenode.execution.launcher import Launcher
from acenode.execution.processes import POLL_SECONDS
from acenode.files import json_bytes, write_atomic
from acenode.runs.catalogue import Catalogue
from acenode.runs.questions import Search, SearchStore
from acenode.runs.store import Run, RunStore
from acenode.runs.writer import RunWriter
from acenode.search.journal import SearchJournal
from acenode.search.plan import trial_config
from acenode.search.results import importance, read_report
from acenode.search.run import SearchRun
from acenode.search.sampling import load_optuna


def scale(options: Namespace) -> Row:
    """Measure the chosen parts."""
    parts = chosen("part", options.parts, PARTS)
    torch.set_num_threads(1)
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray would lower the priority of its workers
    found: Row = {"environment": describe(torch.device("cpu")), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as folder:
        for part in parts:
            progress(part)
            found[part] = PARTS[part](Path(folder) / part)
    return found


@contextmanager
def launcher_for(way: str, device: str, workers: int, folder: Path) -> Iterator[Callable[[list[Config]], list[Run]]]:
    """Yield a function that trains runs in threads, in processes or on a local Ray, so many at a time."""
    cluster = RayCluster(threads=1, cpus=workers) if way == "ray" else None
    launcher = Launcher(RunStore(folder), data_dir(), {device: "thread" if way in ("one", "threads") else "process"},
                        cluster)

    def train(configs: list[Config]) -> list[Run]:
        runs = [launcher.start(config) for config in configs]
        launcher.wait()
        for run in runs:
            if (status := run.status())["state"] != "finished":
                raise UserError(f"{run.config().experiment}/{run.config().method} {status['state']}: {status['error']}")
        return runs

    try:
        launcher.set_workers("ray" if cluster is not None else device, workers)
        yield train
    finally:
        launcher.close()


def rates(folder: Path, workers: Sequence[int] = (1, 2, 4, 8), ways: Sequence[str] = ("threads", "processes", "ray"),
          runs: int = 4) -> list[Row]:
    """Train whole short runs on the digits with one torch thread each; the ways take turns at each number of workers.

    The time until every worker has trained a first run, which starts its process and loads torch, is apart.
    """
    configs = [experiments.get("mnist").configure("odenet", seed=seed, epochs=2, device="cpu", analysis=False,
                                                  snapshots=2, solver="euler", step_size=0.5)
               for seed in range(max(runs, *workers))]
    found = list[Row]()
    for count in workers:
        for way in ways:
            with launcher_for(way, "cpu", count, folder / f"{way}-{count}") as train:
                starting = seconds_of(partial(train, configs[:count]))
                seconds = seconds_of(partial(train, configs[:max(runs, count)]))
            found.append({"at a time": count, "way": way, "runs": max(runs, count),
                          "runs an hour": 3600 * max(runs, count) / seconds, "seconds to start": starting})
    return found


# The head: the launcher, the folder keeper, and Ray's own processes -------------------------------------------------


class _IdleCluster(RayCluster):
    """A cluster on which nothing is trained: with `workers`, its runs wait there; without, in the launcher's queue."""

    workers = 0

    def slots(self) -> int:
        return self.workers

    def train(self, run: Run, data_root: Path, stop: threading.Event) -> None:
        while not stop.wait(POLL_SECONDS):
            pass
        run.set_state("stopped")


def head(folder: Path, queued: int = 200, streaming: int = 20, seconds: float = 30.0) -> list[Row]:
    """Measure a head with runs in its queue and others that stream their files to it, in processes of its own.

    The launcher lists all runs every second; the newest line of a run that streams is at most `delay` old.
    """
    store, mnist = RunStore(folder), experiments.get("mnist")
    launcher, catalogue = Launcher(store, data_dir(), cluster=_IdleCluster()), Catalogue(store)
    try:
        for seed in range(queued):
            launcher.start(mnist.configure("odenet", seed=seed))
        runs = [create(store, mnist.configure("ace", seed=seed)) for seed in range(streaming)]
        command = [sys.executable, "-P", "-m", "acenode.bench.scale", *(str(run.path) for run in runs)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                   env=driver_environment(local=True))
        try:
            while not all((run.path / "metrics.jsonl").exists() for run in runs):
                if process.poll() is not None:
                    raise UserError("the streaming runs could not be started: try again when the machine is less busy")
                time.sleep(0.2)
            return _measure_head(process.pid, catalogue, runs, seconds)
        finally:
            process.communicate()  # the end of its input ends it
    finally:
        launcher.close()


def _measure_head(driver: int, catalogue: Catalogue, runs: list[Run], seconds: float) -> list[Row]:
    titles = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in [driver, *descendants(driver)]}
    keeper = [pid for pid, title in titles.items() if title.startswith(b"ray::FolderKeeper")]
    ray = [pid for pid, title in titles.items() if pid not in keeper and not title.startswith(b"ray::_stream")]
    catalogue.entries()

    def used() -> tuple[float, ...]:
        return (time.process_time(), cpu_seconds(keeper), cpu_seconds(ray),
                sum((run.path / "metrics.jsonl").stat().st_size for run in runs))

    before, begun, delay, listing = used(), time.monotonic(), 0.0, 0.0
    while time.monotonic() - begun < seconds:
        time.sleep(1)
        listing = max(listing, seconds_of(catalogue.entries))
        newest = [records[-1]["time"] for run in runs if (records := run.metrics()[0])]
        delay = max(delay, time.time() - min(newest, default=time.time()))
    launcher, kept, spent, written = ((after - earlier) / (time.monotonic() - begun)
                                      for after, earlier in zip(used(), before, strict=True))
    return [{"process": "launcher", "core share": launcher, "seconds to list": listing},
            {"process": "folder keeper", "core share": kept, "memory MB": memory(keeper) / 1e6,
             "delay in seconds": delay, "bytes a second": written},
            {"process": "Ray's own", "core share": spent, "memory MB": memory(ray) / 1e6}]


STEPS, PAUSE = 5, 0.5  # of a quick run: records in one append, and seconds between two
CHECKPOINT_BYTES, CHECKPOINT_SECONDS = 2_000_000, 20.0
PROCESSES = 2  # that play all workers


def _step(i: int) -> Row:
    return {"kind": "step", "step": i, "L_h": 0.5, "L_a": 0.5, "grad_h": 0.1, "grad_a": 0.1, "nfe_forward": 20,
            "seconds": 0.1, "time": time.time()}


def _write_and_send(path: str, keeper: Any) -> None:
    """Write a run like a quick training would, in a copy whose files are sent, until the process ends."""
    contact = Contact(path, keeper)
    contact.ask("begin")
    with tempfile.TemporaryDirectory() as place:
        copy = Run(Path(place) / Path(path).name)
        copy.path.mkdir()
        apply_changes(copy.path, contact.ask("files"))
        writer, step, saved = RunWriter(copy), 0, 0.0
        writer.status("running", progress=0.0)
        (copy.path / "checkpoints").mkdir(exist_ok=True)
        with contact.open(ChangedFiles(copy.path, sent=True)) as stop:
            while not stop.wait(PAUSE):
                writer.append([_step(step + i) for i in range(STEPS)])
                step += STEPS
                writer.heartbeat(progress=0.5, step=step)
                if time.monotonic() - saved > CHECKPOINT_SECONDS:
                    saved = time.monotonic()
                    write_atomic(copy.path / "checkpoints" / "last.pt", os.urandom(CHECKPOINT_BYTES))


def _stream(paths: list[str], keeper: Any) -> None:
    with ThreadPoolExecutor(len(paths)) as pool:
        list(pool.map(partial(_write_and_send, keeper=keeper), paths))


def stream_runs(paths: list[str]) -> None:
    """Stream runs to a folder keeper on a local Ray, as workers on other machines do, until the standard input ends."""
    import ray

    with own_folder("acenode-ray") as place:
        ray.init(address="local", num_cpus=PROCESSES, include_dashboard=False, log_to_driver=False,
                 _temp_dir=str(place))
        keeper: Any = ray.remote(FolderKeeper).options(num_cpus=0, max_concurrency=8).remote()
        tasks = [ray.remote(_stream).options(name="_stream").remote(paths[i::PROCESSES], keeper)
                 for i in range(PROCESSES)]
        sys.stdin.read()
        for path in paths:
            Run(Path(path)).request_stop()
        ray.get(tasks)
        ray.shutdown()


# A search -----------------------------------------------------------------------------------------------------------


def search(folder: Path, trials: int = 200, workers: int = 2, epochs: int = 4) -> list[Row]:
    """Conduct a search on the digits with pruning, on a local Ray."""
    store = SearchStore(RunStore(folder))
    held = {"epochs": epochs, "solver": "euler", "step_size": 1.0, "analysis": False, "snapshots": 2}
    made = Search("rates", "mnist", "odenet", read_ranges(["learning_rate=log:1e-3..1, momentum=0..0.95"]), trials,
                  held=held, device="cpu")
    store.write(made)
    launcher = Launcher(store.runs, data_dir(), cluster=RayCluster(threads=1, cpus=workers))
    try:
        launcher.set_workers("ray", workers)
        seconds = seconds_of(SearchRun(store, made, launcher, workers=lambda: workers).run)
    finally:
        launcher.close()
    report, runs = read_report(store, "rates"), list(store.runs)
    trained = sum(record["kind"] == "epoch" for run in runs for record in run.metrics()[0])
    training = sum(float(run.status().get("seconds") or 0) for run in runs)
    best, default = (one.value if one else None for one in (report.best, report.default))
    return [{"trials": trials, "workers": workers, "seconds": seconds, "trials an hour": 3600 * trials / seconds,
             **report.counts, "saved share": 1 - trained / (epochs * trials), "best": best, "default": default,
             "training share": training / (workers * seconds)}]


# Many trials and workers without training ---------------------------------------------------------------------------

MORE, EPOCHS = 30, 4  # trials that are conducted on top of the recorded ones, and their epochs


def trials(folder: Path, sizes: Sequence[int] = (100, 1_000, 10_000), workers: int = 100) -> list[Row]:
    """Measure the scheduler at several numbers of recorded trials, then what many workers cost it.

    Times have the processor time beside them, which other work on the machine hardly changes.
    """
    load_optuna()
    return [{"recorded trials": count, **row} for count in sizes
            for row in _measure_trials(folder / str(count), count, workers)
            ] + _measure_workers(folder / "workers", workers)


def _measure_trials(root: Path, count: int, workers: int) -> Iterator[Row]:
    def timed(name: str, cost: Sequence[float], **more: Any) -> Row:
        return {"measured": name, "seconds": cost[0], "of the processor": cost[1], **more}

    store = SearchStore(RunStore(root))
    made = synthetic_search(store, "many", count)
    for trial in read_report(store, "many").trials:
        config = trial_config(made, lambda one, params=trial.params: params[one.key])  # type: ignore[misc]
        write_run(root / trial.run, config.to_dict(), CREATED + trial.number,
                  {"search": made.name, "trial": trial.number},  # no result, because trials are not tested
                  {"phase": "training", "epoch": 12, "epochs": 12, "seconds": 30.0, "best": 0.95, "last": 0.94})
    catalogue, before = Catalogue(store.runs), memory()
    yield timed("list all runs, at first", cost_of(catalogue.entries))
    again = cost_of(catalogue.entries)
    yield timed("list all runs again", again, **{"memory MB": (memory() - before) / 1e6})
    journal = SearchJournal(store.journal("many"), made.ranges)
    yield timed("read the journal, at first", cost_of(journal.refresh))
    yield timed("best trials and importance", cost_of(lambda: (
        read_report(store, "many", journal).ranked(), importance(made.ranges, journal.trials, True))))
    for sampler, pruner in (("tpe", "median"), ("random", "none")):
        made = replace(made, sampler=sampler, pruner=pruner)
        each, (*opening, grown) = _conduct(store, made, journal, workers)
        # workers wait for the scheduler if each of their trials takes less than the shortest
        yield timed(f"one trial of {EPOCHS} epochs: {sampler}, pruner {pruner}", each, shortest=workers * each[1])
        yield timed(f"  read its {MORE} trials in the journal", cost_of(journal.refresh))
        yield timed("  open the journal with Optuna, once", opening, **{"memory MB": grown / 1e6})


class _NextEpoch(threading.Event):
    """An event that is never set. Each wait for it adds an epoch to every run of the launcher."""

    def __init__(self, launcher: EpochLauncher) -> None:
        super().__init__()
        self.launcher, self.costs = launcher, list[tuple[float, float]]()

    def wait(self, timeout: float | None = None) -> bool:
        self.costs.append(cost_of(self.launcher.advance))
        return False


def _conduct(store: SearchStore, search: Search, journal: SearchJournal,
             workers: int) -> tuple[list[float], tuple[float, ...]]:
    """Conduct some trials more than are recorded, at most `workers` at a time, and time the scheduler.

    Returns its costs for one trial, and for opening the journal with the memory in bytes that this takes.
    """
    more = replace(search, trials=len(journal.refresh()) + MORE, held={"epochs": EPOCHS})
    launcher = EpochLauncher(store.runs, lambda config, epoch: value_of(config.get("learning_rate")) - 0.3 / epoch)
    epochs, opened, before = _NextEpoch(launcher), list[tuple[float, ...]](), memory()
    begun, used = time.perf_counter(), time.process_time()

    def at_a_time() -> int:
        if not opened:  # the first question of the scheduler, which has just opened the journal
            opened.append((time.perf_counter() - begun, time.process_time() - used, memory([os.getpid()]) - before))
        return workers

    whole = cost_of(lambda: SearchRun(store, more, launcher, workers=at_a_time).run(epochs))
    aside = [sum(costs) for costs in zip(*epochs.costs, strict=True)]
    return [(total - start - other) / MORE for total, start, other in zip(whole, opened[0], aside, strict=False)], \
        opened[0]


def _measure_workers(folder: Path, workers: int, seconds: float = 5.0, rounds: int = 10) -> list[Row]:
    """Return the share of a core that the launcher needs for so many workers, and what the folder keeper spends on one
    exchange with one of them, some steps and a status: `full` is the number of workers that need a whole core, without
    Ray's transport."""
    mnist, cluster = experiments.get("mnist"), _IdleCluster()
    cluster.workers = 1
    launcher = Launcher(RunStore(folder / "launcher"), data_dir(), cluster=cluster)
    try:
        launcher.set_workers("ray", workers)
        for seed in range(workers):
            launcher.start(mnist.configure("odenet", seed=seed))
        while len(launcher.running) < workers:
            time.sleep(0.1)
        waited = cost_of(lambda: time.sleep(seconds))
    finally:
        launcher.close()
    store, keeper = RunStore(folder / "keeper"), FolderKeeper()
    runs = [create(store, mnist.configure("ace", seed=seed)) for seed in range(workers)]
    for run in runs:
        keeper.begin(str(run.path), "worker")
        keeper.files(str(run.path), "worker")
    lines = b"".join(json_bytes(_step(i)) + b"\n" for i in range(STEPS))

    def send() -> None:
        for done in range(rounds):
            for run in runs:
                status = json_bytes({**run.status(), "state": "running", "heartbeat": time.time()})
                keeper.write(str(run.path), "worker", [FileChange("metrics.jsonl", lines, done * len(lines)),
                                                       FileChange("status.json", status)])

    spent, cpu = cost_of(send)
    for run in runs:
        keeper.end(str(run.path))
        run.set_state("stopped")
    exchanges = rounds * len(runs)
    return [{"measured": f"launcher, {workers} workers", "core share": waited[1] / waited[0]},
            {"measured": "folder keeper, one exchange with a worker", "seconds": spent / exchanges,
             "of the processor": cpu / exchanges, "core share": workers * cpu / exchanges / CONTACT_SECONDS,
             "full": CONTACT_SECONDS * exchanges / cpu}]


PARTS: dict[str, Callable[[Path], list[Row]]] = {"rates": rates, "head": head, "search": search, "trials": trials}

if __name__ == "__main__":
    stream_runs(sys.argv[1:])
