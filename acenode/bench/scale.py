"""`acenode bench scale`: what many runs cost. Four parts, which `--parts` chooses:

    rates     runs an hour in threads, in processes and on a local Ray, 1, 2, 4 and 8 at a time
    head      what the machine that conducts runs on a cluster spends on 200 queued runs and 20 that stream their files
    search    a search of 200 trials on the digits with pruning, on a local Ray
    trials    10,000 trials and 100 workers without training: listing, choosing settings, following and streaming
"""

from __future__ import annotations

import gc
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from acenode import experiments
from acenode.bench.measure import Cost, Report, cost_of, cpu_seconds, descendants, memory, progress, size, table
from acenode.bench.synthetic import synthetic_search
from acenode.config import Config
from acenode.config.groups import Training
from acenode.config.ranges import read_ranges
from acenode.data.folder import data_dir
from acenode.errors import UserError
from acenode.execution.cluster.changed_files import ChangedFiles, FileChange, apply_changes
from acenode.execution.cluster.contact import CONTACT_SECONDS
from acenode.execution.cluster.folder_keeper import FolderKeeper
from acenode.execution.cluster.own_folder import own_folder
from acenode.execution.cluster.ray_cluster import POLL_SECONDS, RayCluster, driver_environment
from acenode.execution.environment import describe
from acenode.execution.execute import create
from acenode.execution.launcher import Launcher
from acenode.files import json_bytes, write_atomic
from acenode.runs.catalogue import Catalogue
from acenode.runs.process import identity
from acenode.runs.questions import Search, SearchStore
from acenode.runs.store import Run, RunStore
from acenode.runs.writer import RunWriter
from acenode.search.journal import SearchJournal
from acenode.search.plan import trial_config
from acenode.search.results import importance, read_report
from acenode.search.run import SearchRun, TrialEvent
from acenode.search.sampling import load_optuna

Row = dict[str, Any]


def scale(options: Namespace) -> Report:
    """Measure the chosen parts."""
    parts = parts_of(options.parts)
    torch.set_num_threads(1)
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray would lower the priority of its workers
    load, found, texts = os.getloadavg()[0], Row(), list[str]()
    if load > 1:
        progress(f"the machine is busy (load {load:.1f}): compare numbers of this run with each other only")
    with tempfile.TemporaryDirectory() as folder:
        for part in parts:
            begun = time.monotonic()
            progress(f"{part} …")
            found[part], text = PARTS[part](Path(folder) / part)
            progress(f"{part}: {time.monotonic() - begun:.0f} s\n\n{text}\n")
            texts.append(text)
    return Report({"environment": describe(torch.device("cpu")), "cores": os.cpu_count(), "load": load, **found},
                  "\n\n".join(texts))


def parts_of(names: str) -> list[str]:
    """Return the parts that `rates,head` names."""
    found = [name.strip() for name in names.split(",")]
    if unknown := [name for name in found if name not in PARTS]:
        raise UserError(f"bench scale has no part {unknown[0]!r}: choose some of {','.join(PARTS)}")
    return found


# Runs an hour -------------------------------------------------------------------------------------------------------


def rates(folder: Path, workers: Sequence[int] = (1, 2, 4, 8), ways: Sequence[str] = ("threads", "processes", "ray"),
          runs: int = 4) -> tuple[list[Row], str]:
    """Train whole short runs on the digits with one torch thread each; the ways take turns at each number of workers.

    The time until every worker has trained a first run, which starts its process and loads torch, is apart.
    """
    def train(launcher: Launcher, count: int) -> float:
        begun = time.monotonic()
        started = [launcher.start(experiments.get("mnist").configure(
            "odenet", seed=seed, epochs=2, device="cpu", analysis=False, snapshots=2, solver="euler", step_size=0.5))
            for seed in range(count)]
        launcher.wait()
        for one in started:
            if (status := one.status())["state"] != "finished":
                raise UserError(f"a run {status['state']}: {status['error']}")
        return time.monotonic() - begun

    found = list[Row]()
    for count in workers:
        for way in ways:
            cluster = RayCluster(threads=1, cpus=count) if way == "ray" else None
            launcher = Launcher(RunStore(folder / f"{way}-{count}"), data_dir(),
                                {"cpu": "thread" if way == "threads" else "process"}, cluster)
            try:
                launcher.set_workers("ray" if cluster is not None else "cpu", count)
                starting, seconds = train(launcher, count), train(launcher, max(runs, count))
            finally:
                launcher.close()
            found.append({"way": way, "workers": count, "runs": max(runs, count), "seconds": seconds,
                          "starting": starting, "an_hour": 3600 * max(runs, count) / seconds})
            progress(f"  {count} at a time, {way}: {max(runs, count)} runs in {seconds:.1f} s")
    cells = [[str(count), *(f"{one['an_hour']:,.0f} ({one['starting']:.1f} s)" for one in found
                            if one["workers"] == count)] for count in workers]
    return found, (f"runs an hour, {os.cpu_count()} cores, one torch thread a run (seconds until every worker has "
                   f"trained its first run):\n{table(('at a time', *ways), cells)}")


# The head: the launcher, the folder keeper, and Ray's own processes -------------------------------------------------


class _IdleCluster(RayCluster):
    """A cluster on which nothing is trained: with `workers`, its runs wait there; without, in the launcher's queue."""

    def __init__(self, workers: int) -> None:
        super().__init__()
        self.workers = workers

    def slots(self) -> int:
        return self.workers

    def train(self, run: Run, data_root: Path, stop: threading.Event) -> None:
        while not stop.wait(POLL_SECONDS):
            pass
        run.set_state("stopped")


def head(folder: Path, queued: int = 200, streaming: int = 20, seconds: float = 30.0) -> tuple[Row, str]:
    """Measure a head with runs in its queue and others that stream their files to it, in processes of its own."""
    store, mnist = RunStore(folder), experiments.get("mnist")
    launcher = Launcher(store, data_dir(), cluster=_IdleCluster(0))
    try:
        for seed in range(queued):
            launcher.start(mnist.configure("odenet", seed=seed))
        runs = [create(store, mnist.configure("ace", seed=seed)) for seed in range(streaming)]
        progress(f"  {queued} runs are queued")
        command = [sys.executable, "-P", "-m", "acenode.bench.scale", *(str(run.path) for run in runs)]
        with tempfile.TemporaryFile() as messages:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=messages,
                                       env=driver_environment(local=True))
            try:
                assert process.stdout is not None
                pids = [int(word) for word in process.stdout.readline().split()]
                if not pids:
                    messages.seek(0)
                    lines = messages.read().decode(errors="replace").strip().splitlines() or ["no message"]
                    raise UserError(f"the streaming runs could not be started ({lines[-1]}): "
                                    "try again when the machine is less busy")
                progress(f"  {streaming} runs are streaming")
                found = {"queued": queued, "streaming": streaming,
                         **_measure_head(process.pid, pids[0], pids[1:], Catalogue(store), runs, seconds)}
            finally:
                process.communicate()  # the end of its input ends it
    finally:
        launcher.close()
    cells = [(f"launcher, with a list of all runs each second (at most {1000 * found['listing']:.0f} ms)",
              f"{found['launcher']:.1%}", ""),
             ("folder keeper", f"{found['keeper']:.1%}", size(found["keeper_memory"] / 1e6)),
             ("Ray's own processes", f"{found['ray']:.1%}", size(found["ray_memory"] / 1e6))]
    return found, (f"head with {queued} runs queued and {streaming} streaming ({found['bytes_a_second'] / 1e3:.0f} kB "
                   f"of metrics a second):\n{table(('', 'share of a core', 'memory'), cells)}\n"
                   f"the newest line of a run is at most {found['delay']:.2f} s old; one is written every {PAUSE} s")


def _measure_head(driver: int, keeper: int, workers: list[int], catalogue: Catalogue, runs: list[Run],
                  seconds: float) -> Row:
    ray = [pid for pid in [driver, *descendants(driver)] if pid not in (keeper, *workers)]
    catalogue.entries()

    def used() -> tuple[float, ...]:
        return time.process_time(), cpu_seconds([keeper]), cpu_seconds(ray), _bytes(runs)

    before, begun, delay, listing = used(), time.monotonic(), 0.0, 0.0
    while time.monotonic() - begun < seconds:
        time.sleep(1)
        listing = max(listing, cost_of(catalogue.entries).seconds)
        newest = [records[-1]["time"] for run in runs if (records := run.metrics()[0])]
        delay = max(delay, time.time() - min(newest, default=time.time()))
    launcher, kept, spent, written = ((after - earlier) / (time.monotonic() - begun)
                                      for after, earlier in zip(used(), before, strict=True))
    return {"launcher": launcher, "listing": listing, "keeper": kept, "keeper_memory": memory([keeper]), "ray": spent,
            "ray_memory": memory(ray), "delay": delay, "bytes_a_second": written}


def _bytes(runs: list[Run]) -> int:
    return sum((run.path / "metrics.jsonl").stat().st_size for run in runs)


STEPS, PAUSE = 5, 0.5  # of a quick run: records in one append, and seconds between two
CHECKPOINT_BYTES, CHECKPOINT_SECONDS = 2_000_000, 20.0
PROCESSES = 2  # that play all workers


def _step(i: int) -> Row:
    return {"kind": "step", "step": i, "L_h": 0.5, "L_a": 0.5, "grad_h": 0.1, "grad_a": 0.1, "nfe_forward": 20,
            "seconds": 0.1, "time": time.time()}


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
                writer.append([_step(step + i) for i in range(STEPS)])
                step += STEPS
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


class _Keeper(FolderKeeper):
    def pid(self) -> int:
        return os.getpid()


def stream_runs(paths: list[str]) -> None:
    """Stream runs to a folder keeper on a local Ray, as workers on other machines do, until the standard input ends.

    When all have begun, print the ids of the keeper's process and of the workers.
    """
    import ray

    with own_folder("acenode-ray") as place:
        ray.init(address="local", num_cpus=PROCESSES, include_dashboard=False, log_to_driver=False,
                 _temp_dir=str(place))
        keeper: Any = ray.remote(_Keeper).options(num_cpus=0, max_concurrency=8).remote()
        actors: list[Any] = [ray.remote(_Workers).options(num_cpus=1).remote() for _ in range(PROCESSES)]
        started = ray.get([actor.start.remote(paths[i::PROCESSES], keeper) for i, actor in enumerate(actors)])
        while not all((Path(path) / "metrics.jsonl").exists() for path in paths):
            time.sleep(0.2)
        print(ray.get(keeper.pid.remote()), *started, flush=True)
        sys.stdin.read()
        ray.get([actor.end.remote() for actor in actors])
        ray.shutdown()


# A search -----------------------------------------------------------------------------------------------------------


def search(folder: Path, trials: int = 200, workers: int = 2, epochs: int = 4) -> tuple[Row, str]:
    """Conduct a search on the digits with pruning, on a local Ray."""
    store, ended = SearchStore(RunStore(folder)), Counter[str]()
    held = {"epochs": epochs, "solver": "euler", "step_size": 1.0, "analysis": False, "snapshots": 2}
    made = Search("rates", "mnist", "odenet", read_ranges(["learning_rate=log:1e-3..1, momentum=0..0.95"]), trials,
                  held=held, device="cpu")
    store.write(made)

    def event(found: TrialEvent) -> None:
        ended[found.kind] += 1
        if found.kind != "started" and (ended.total() - ended["started"]) % 20 == 0:
            progress(f"  {ended['finished']} finished, {ended['pruned']} pruned")

    launcher = Launcher(store.runs, data_dir(), cluster=RayCluster(threads=1, cpus=workers))
    try:
        launcher.set_workers("ray", workers)
        seconds = cost_of(SearchRun(store, made, launcher, workers=lambda: workers, on_event=event).run).seconds
    finally:
        launcher.close()
    report, runs = read_report(store, "rates"), list(store.runs)
    trained = sum(record["kind"] == "epoch" for run in runs for record in run.metrics()[0])
    training = sum(float(run.status().get("seconds") or 0) for run in runs)
    best, default = (one.value if one else None for one in (report.best, report.default))
    values = [f"{100 * value:.2f}%" if value is not None else "none" for value in (best, default)]
    counts = ", ".join(f"{count} {state}" for state, count in report.counts.items())
    return ({"trials": trials, "workers": workers, "seconds": seconds, "training": training, "epochs": trained,
             "counts": dict(report.counts), "best": best, "default": default},
            f"search of {trials} trials of {epochs} epochs on {workers} local Ray workers: {seconds:.0f} s, "
            f"{3600 * trials / seconds:,.0f} trials an hour ({counts})\n"
            f"  pruning saved {1 - trained / (epochs * trials):.0%} of the epochs; the workers trained "
            f"{training / (workers * seconds):.0%} of the time\n"
            f"  best validation accuracy {values[0]}, of the defaults {values[1]}")


# Many trials and workers without training ---------------------------------------------------------------------------

MORE, EPOCHS = 30, 4  # trials that are conducted on top of the recorded ones, and their epochs


def trials(folder: Path, sizes: Sequence[int] = (100, 1_000, 10_000), workers: int = 100) -> tuple[Row, str]:
    """Measure the scheduler at several numbers of recorded trials, then what many workers cost it.

    Times have the processor time beside them, which other work on the machine hardly changes.
    """
    found = {count: _measure_trials(folder / str(count), count, workers) for count in sizes}
    last = found[sizes[-1]]
    lines = [table(("recorded trials; time (processor time)", *(f"{count:,}" for count in sizes)),
                   [(name, *(str(one[name]) for one in found.values())) for name in last])]
    slowest = {name: workers * cost.cpu for name, cost in last.items()
               if name.startswith("one trial") and isinstance(cost, Cost)}
    lines.append(f"{workers} workers wait for the scheduler at {sizes[-1]:,} trials if a trial takes less than "
                 + ", ".join(f"{seconds:.1f} s ({name})" for name, seconds in slowest.items()))
    share, receiving = _measure_workers(folder / "workers", workers)
    lines.append(f"{workers} workers: launcher {share:.1%} of a core; folder keeper {receiving} for what one worker "
                 f"sends at a time, {workers * receiving.cpu / CONTACT_SECONDS:.0%} of a core if all send files; full "
                 f"at {CONTACT_SECONDS / receiving.cpu:,.0f} workers, without Ray's transport")
    return ({"sizes": {count: {name: [cost.seconds, cost.cpu] if isinstance(cost, Cost) else cost
                               for name, cost in one.items()} for count, one in found.items()},
             "workers": workers, "launcher": share, "receiving": [receiving.seconds, receiving.cpu]}, "\n".join(lines))


def _measure_trials(root: Path, count: int, workers: int) -> dict[str, Cost | str]:
    store = SearchStore(RunStore(root))
    made = synthetic_search(store, "many", count)
    for trial in read_report(store, "many").trials:
        _write_run(root / trial.run, made, trial.params, trial.number)
    catalogue, before = Catalogue(store.runs), _memory()
    found: dict[str, Cost | str] = {"list all runs, at first": cost_of(catalogue.entries),
                                    "list all runs again": cost_of(catalogue.entries)}
    found["memory of that list"] = size((_memory() - before) / 1e6)
    journal = SearchJournal(store.journal("many"), made.ranges)
    found["read the journal, at first"] = cost_of(journal.refresh)
    summary = cost_of(lambda: (read_report(store, "many", journal).ranked(),
                               importance(made.ranges, journal.trials, True)))
    ways = {f"one trial of {EPOCHS} epochs: {sampler}, pruner {pruner}": _conduct(
        store, replace(made, sampler=sampler, pruner=pruner), journal, workers)
        for sampler, pruner in (("tpe", "median"), ("random", "none"))}
    return found | {"read what is new in it": max(one[1] for one in ways.values()),
                    "best trials and importance": summary,
                    "open the journal with Optuna, once": max(one[2] for one in ways.values()),
                    "memory of Optuna's study": size(max(one[3] for one in ways.values()) / 1e6),
                    **{name: one[0] for name, one in ways.items()}}


def _write_run(path: Path, search: Search, params: Mapping[str, Any], number: int) -> None:
    """Write the folder of a trial as training leaves it; no result, because trials are not tested."""
    config = trial_config(search, lambda one: params[one.key]).to_dict()
    path.mkdir()
    (path / "config.json").write_text(json.dumps({
        "format": 1, "id": path.name, "created": 1_750_000_000.0 + number, "config": config, "params": 31_690,
        "search": search.name, "trial": number}))
    (path / "status.json").write_text(json.dumps({
        "state": "finished", "error": None, "progress": 1.0, "phase": "training", "epoch": 12, "epochs": 12,
        "seconds": 30.0, "best": 0.95, "last": 0.94, "heartbeat": 1_750_000_000.0 + number, "process": identity()}))


class _Reporting:
    """A launcher that trains nothing: every run has another epoch whenever `advance` is called."""

    def __init__(self, store: RunStore) -> None:
        self.store, self.epochs = store, dict[str, int]()
        self.runs: dict[str, Run] = {}
        self.spent = Cost()  # here, which is not the scheduler's

    @contextmanager
    def aside(self) -> Iterator[None]:
        begun = Cost.now()
        yield
        self.spent += Cost.now() - begun

    def start(self, config: Config, extra: Mapping[str, Any] | None = None) -> Run:
        run = self.store.create(config, dict(extra or {}))
        self.runs[run.id], self.epochs[run.id] = run, 0
        return run

    def resume(self, run: Run) -> None:
        raise NotImplementedError

    def stop(self, run: Run) -> None:
        if self.runs.pop(run.id, None):
            run.set_state("stopped")

    def advance(self) -> None:
        with self.aside():
            for name, run in list(self.runs.items()):
                self.epochs[name] += 1
                rate = run.config().get("learning_rate")
                value = 0.97 - 0.05 * (math.log10(rate) + 0.8) ** 2 - 0.3 / self.epochs[name]
                with open(run.path / "metrics.jsonl", "ab") as file:
                    file.write(json_bytes({"kind": "epoch", "epoch": self.epochs[name], "validation_accuracy": value,
                                           "best": True}) + b"\n")
                if self.epochs[name] == run.config().part(Training).epochs:
                    run.set_state("finished")
                    del self.runs[name]


class _Turns(threading.Event):
    """An event that is never set: instead of waiting between two looks, let the runs report another epoch."""

    def __init__(self, turn: Callable[[], None]) -> None:
        super().__init__()
        self.turn = turn

    def wait(self, timeout: float | None = None) -> bool:
        self.turn()
        return False


def _conduct(store: SearchStore, search: Search, journal: SearchJournal, workers: int) -> tuple[Cost, Cost, Cost, int]:
    """Conduct some trials more than are recorded, at most `workers` at a time, and time the scheduler.

    Returns its costs for one trial, for reading what is new, and for opening the journal, and its memory in bytes.
    """
    load_optuna()
    more = replace(search, trials=len(journal.refresh()) + MORE, held={"epochs": EPOCHS})
    launcher, following, ready = _Reporting(store.runs), Cost(), list[Cost]()
    before, grown = _memory(), 0

    def at_a_time() -> int:
        if not ready:
            ready.append(Cost.now())
        return workers

    def event(found: TrialEvent) -> None:
        nonlocal following, grown
        with launcher.aside():
            if found.kind != "started":
                following = max(following, cost_of(journal.refresh))
                grown = max(grown, _memory() - before)

    begun = Cost.now()
    SearchRun(store, more, launcher, workers=at_a_time, on_event=event).run(_Turns(launcher.advance))
    return (Cost.now() - ready[0] - launcher.spent) / MORE, following, ready[0] - begun, grown


def _memory() -> int:
    gc.collect()
    return memory([os.getpid()])


def _measure_workers(folder: Path, workers: int, seconds: float = 5.0, rounds: int = 10) -> tuple[float, Cost]:
    """Return the share of a core that the launcher needs for so many workers, and what the folder keeper spends on one
    exchange with one of them: some steps and a status."""
    mnist = experiments.get("mnist")
    launcher = Launcher(RunStore(folder / "launcher"), data_dir(), cluster=_IdleCluster(1))
    try:
        launcher.set_workers("ray", workers)
        for seed in range(workers):
            launcher.start(mnist.configure("odenet", seed=seed))
        while len(launcher.active()) < workers:
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

    spent = cost_of(send)
    for run in runs:
        keeper.end(str(run.path))
        run.set_state("stopped")
    return waited.cpu / waited.seconds, spent / (rounds * len(runs))


PARTS: dict[str, Callable[[Path], tuple[Any, str]]] = {"rates": rates, "head": head, "search": search, "trials": trials}

if __name__ == "__main__":
    stream_runs(sys.argv[1:])
