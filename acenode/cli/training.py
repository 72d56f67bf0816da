"""Commands that train: one run, several seeds, or a queue of runs with checkpoints at Ctrl-C or a limit of minutes."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import torch

from acenode import experiments
from acenode.cli.common import TrainingBar, brief, data_words, given_settings, print_json, run_store
from acenode.config import Config, parse, read_seeds
from acenode.config.vocabulary import PRESET
from acenode.data.folder import data_dir
from acenode.errors import UserError
from acenode.execution.cluster.ray_cluster import (
    GPU_SHARE,
    QUEUE_THREADS,
    START_SECONDS,
    RayCluster,
    address_of,
    check_address,
    check_device,
)
from acenode.execution.devices import default_workers, device_names, matches, own_cores
from acenode.execution.engine_choice import separate_reason
from acenode.execution.environment import device_of
from acenode.execution.execute import Outcome, create, execute, refuse_finished
from acenode.execution.launcher import MAX_CLUSTER_WORKERS, Launcher
from acenode.execution.study_run import (
    Event,
    Outcomes,
    PlanTrainer,
    QueuedRun,
    execute_queued,
    launcher_for_seeds,
    stop_on_interrupt,
)
from acenode.runs.catalogue import Catalogue
from acenode.runs.entry import Entry, read_entry, stamps_of
from acenode.runs.store import Run, RunStore
from acenode.runs.writer import json_value

PROGRESS_SECONDS = 60.0  # between lines of progress where there is no terminal


def train(options: Namespace) -> int:
    """Create a run and train it; with --seeds, one for each seed."""
    experiment = experiments.get(options.experiment)
    uses, owner = experiment.method(options.method).uses, f"{options.method} in {options.experiment}"
    given = given_settings(options, lambda key, text: text if key == PRESET else parse(key, text, uses, owner))
    if options.seed is not None and options.seeds is not None:
        raise UserError("give either --seed or --seeds")
    if options.seeds is not None and options.on is not None:
        raise UserError("--seeds trains on this machine: leave --on out, or train each seed by itself")
    seeds = [options.seed or 0] if options.seeds is None else read_seeds(options.seeds)
    config, *others = (experiment.configure(options.method, options.data, seed=seed, device=options.device, **given)
                       for seed in seeds)
    if others:
        return _train_seeds([config, *others], options)
    cluster = cluster_of(options)
    with cluster or nullcontext():
        run = create(run_store(options), config, elsewhere=cluster is not None)
        try:
            return execute_run(run, options, cluster)
        except UserError:  # training never started, so there is nothing to keep
            with suppress(FileNotFoundError):
                run.delete()
            raise


def resume(options: Namespace) -> int:
    """Continue a run from its last checkpoint."""
    run = run_store(options).open(options.run_id)
    run.refuse_recorded("resumed")
    device = options.device
    if device is not None and options.on is not None:
        raise UserError("--device chooses a device of this machine: leave it out with --on")
    refuse_finished(run)
    run.cancel_stop()
    options.device = device or run.config().device
    cluster = cluster_of(options)
    with cluster or nullcontext():
        return execute_run(run, options, cluster, device)


def execute_run(run: Run, options: Namespace, cluster: RayCluster | None = None, device: str | None = None) -> int:
    """Train a run with a progress bar and print its result; return the exit code.

    It is trained on the cluster, if one is given, or else on `device`, or else where its configuration says.
    """
    config, start = run.config(), time.monotonic()
    title = f"{run.id}: {config.method} on {config.experiment} ({data_words(config)}), seed {config.seed}"
    fallback: str | None = None

    def show(status: dict[str, Any]) -> None:
        nonlocal fallback
        bar.show(status)
        if config.get("engine") == "graph" and status["fallback"] != fallback:
            fallback = status["fallback"]
            bar.bar.write(str(fallback), file=sys.stderr)

    with TrainingBar(title, options.json) as bar, stop_on_interrupt() as stop:
        if cluster is None:
            outcome = execute(run, data_dir(), stop=stop, progress=show, device=device)
        else:
            launcher = Launcher(RunStore(run.path.parent), data_dir(), cluster=cluster)
            (outcome,) = execute_queued(launcher, [run], stop=stop, progress=lambda _, status: show(status))
    if options.json:
        print_json(_values(outcome))
    tested = f"test {_metrics(outcome)}" if outcome.metrics else "not tested, since it is a trial of a search"
    return _print_ending(outcome, options, f"finished in {outcome.seconds:.1f} s of training, "
                         f"{time.monotonic() - start:.0f} s in all: {tested}; {outcome.params:,} parameters\n"
                         f"{run.path}")


def _train_seeds(configs: Sequence[Config], options: Namespace) -> int:
    """Create a run for each seed, train them together and print their results; return the exit code."""
    store, first, start = run_store(options), configs[0], time.monotonic()
    runs = [create(store, config) for config in configs]
    seeds = {run.id: config.seed for run, config in zip(runs, configs, strict=True)}
    launcher, size = launcher_for_seeds(first, store, data_dir())
    device, listed = str(device_of(first.device)), list(seeds.values())
    groups = [listed[at:at + size] for at in range(0, len(listed), size)]
    title = (f"{first.method} on {first.experiment} ({data_words(first)}), seeds {', '.join(map(str, listed))}"
             + " together" * (size > 1))
    with (TrainingBar(title, options.json, groups, together=separate_reason(first, device) is None) as bar,
          stop_on_interrupt() as stop):
        outcomes = execute_queued(launcher, runs, stop=stop,
                                  progress=lambda run, status: bar.show(status, seeds[run.id]))
    if options.json:
        print_json([_values(outcome) for outcome in outcomes])
    codes = [_print_ending(outcome, options, f"seed {seeds[outcome.run.id]} finished after {outcome.seconds:.1f} s of "
                           f"training: test {_metrics(outcome)}; {outcome.run.path}") for outcome in outcomes]
    if not options.json:
        print(f"{time.monotonic() - start:.0f} s in all")
    return 1 if 1 in codes else max(codes)


def _values(outcome: Outcome) -> dict[str, Any]:
    return {"run": outcome.run.id, "state": outcome.state, "metrics": json_value(outcome.metrics),
            "seconds": round(outcome.seconds, 3), "params": outcome.params,
            **({"error": outcome.error} if outcome.error else {})}


def _metrics(outcome: Outcome) -> str:
    return ", ".join(f"{k} {brief(v)}" if k != "nfe" else f"NFE {v:.0f}" for k, v in outcome.metrics.items())


def _print_ending(outcome: Outcome, options: Namespace, finished: str) -> int:
    """Print the result of a run, how to continue it, or why it failed; return the exit code."""
    run = outcome.run
    if outcome.state == "failed":
        print(f"acenode: {run.id} failed: {outcome.error}", file=sys.stderr)
        return 1
    if outcome.state == "finished":
        if not options.json:
            print(finished)
        return 0
    if outcome.state == "stopped":
        where = f" --runs {options.runs}" if options.runs is not None else ""
        print(f"stopped; continue with `acenode resume {run.id}{where}`", file=sys.stderr)
    return 130


# A queue of runs, on this machine or on a cluster -------------------------------------------------------------------


def cluster_of(options: Namespace, *, workers: int | None = None, several: bool = False) -> RayCluster | None:
    """Return the cluster that --on names, which is not started yet, or None without --on.

    Args:
        options: of the command.
        workers: how many runs to train at a time, if the user has chosen it.
        several: True if the command trains several runs.
    """
    if options.on is None:
        if options.threads is not None or options.gpu is not None:
            raise UserError("--threads and --gpu apply to runs on a cluster: add --on ray")
        return None
    address = address_of(options.on)
    check_device(options.device)
    if options.threads is not None and not 1 <= options.threads <= 1024:
        raise UserError(f"--threads takes a number from 1 to 1024, not {options.threads}")
    if options.gpu is not None and not 0 < options.gpu <= 1:
        raise UserError(f"--gpu takes a share above 0 and up to 1, not {options.gpu:g}")
    have = torch.get_num_threads()
    threads = options.threads or (have if not several else max(1, have // workers) if workers and address is None
                                  else min(QUEUE_THREADS, have))
    cpus = workers * threads if workers is not None else None
    if address is None and threads > (cpus or len(own_cores())):
        raise UserError(f"this machine has too few CPUs for a run with {threads} threads ({len(own_cores())}): use a "
                        "smaller --threads")
    cluster = RayCluster(address, threads=threads, gpu=options.gpu or GPU_SHARE, cpus=cpus)
    check_address(address)
    if not options.json:
        print("starting a local Ray" if address is None else f"joining {address} (waits up to {START_SECONDS:.0f} s)",
              file=sys.stderr, flush=True)
    return cluster


def open_launcher(options: Namespace, device_name: str, store: RunStore, root: Path) -> tuple[Launcher, int]:
    """Return a launcher for several runs, on this machine or on the cluster of --on, and how many train at a time."""
    cluster = cluster_of(options, workers=options.workers, several=True)
    if cluster is None:
        device = device_of(device_name)
        name, count = str(device), sum(matches(one, str(device)) for one in device_names())
        workers = options.workers or default_workers(device.type, count)
        if name == "cpu":  # runs side by side share the threads; each worker process takes over this number
            torch.set_num_threads(max(1, torch.get_num_threads() // workers))
    else:
        fits = cluster.start().runs
        name, count, workers = cluster.name, 1, options.workers or min(MAX_CLUSTER_WORKERS, fits)
    launcher = Launcher(store, root, cluster=cluster)
    launcher.set_workers(name, -(-workers // count))
    return launcher, workers


def train_queue(runs: Sequence[QueuedRun], options: Namespace, catalogue: Catalogue, root: Path,
                lines: ProgressLines) -> int:
    """Train the runs in order and print how it went; return 1 if a run failed and 130 after Ctrl-C."""
    outcomes, interrupted = Outcomes(), False
    if runs:
        launcher, workers = open_launcher(options, options.device, catalogue.store, root)
        try:
            lines.write(f"{len(runs)} runs to train, {workers} at a time")
            with stop_on_interrupt() as stop:
                outcomes = PlanTrainer(runs, launcher, catalogue, workers=workers, on_event=lines.event,
                                        seconds=None if options.minutes is None else 60 * options.minutes,
                                        on_progress=lines.progress).run(stop)
                interrupted = stop.is_set()
        finally:
            launcher.close()
        lines.end(outcomes)
    if options.json:
        print_json({"finished": outcomes.finished, "stopped": outcomes.stopped, "failed": outcomes.failed,
                    "elsewhere": outcomes.elsewhere, "left": len(outcomes.left)})
    return 130 if interrupted else 1 if outcomes.failed else 0


class ProgressLines:
    """Prints what happens to the runs: events as lines, progress as one line that is overwritten on a terminal.

    `result` writes the values that a finished run measured, `hint` what to do when something is left, `time_left` how
    much longer the runs take, if that is known. `quiet` prints to stderr, because stdout is for JSON.
    """

    def __init__(self, result: Callable[[QueuedRun, Entry], list[str]], hint: str, quiet: bool,
                 time_left: Callable[[], str] = lambda: "") -> None:
        self.result, self.hint, self.time_left = result, hint, time_left
        self.file = sys.stderr if quiet else sys.stdout
        self.terminal = self.file.isatty()
        self.shown = float("-inf")

    def write(self, line: str) -> None:
        print(f"\r\x1b[K{line}" if self.terminal else line, file=self.file, flush=True)

    def event(self, event: Event) -> None:
        """Print that a run was started, resumed, finished, stopped or failed."""
        name = f"{event.planned.title} ({event.run.id})" if event.run else event.planned.title
        if event.kind == "elsewhere":
            self.write(f"skipped   {name}: trained by another process")
        elif event.kind == "failed":
            self.write(f"failed    {name}: {event.detail}")
        elif event.kind == "finished" and event.run is not None:
            entry = read_entry(event.run, stamps_of(event.run.path)).entry
            values = dict.fromkeys([*self.result(event.planned, entry), f"{entry.seconds or 0:.0f} s of training"])
            self.write(f"finished  {name}: {', '.join(values)}")
        elif event.kind == "stopped" and event.run is not None:
            done = float(event.run.status().get("progress") or 0)
            self.write(f"stopped   {name} at {100 * done:.0f}%; the same command continues it")
        else:
            self.write(f"{event.kind:<9} {name}, {event.planned.config.get('epochs')} epochs")

    def progress(self, now: PlanTrainer) -> None:
        """Show how far the plan and the running runs are."""
        if time.monotonic() - self.shown < (1.0 if self.terminal else PROGRESS_SECONDS):
            return
        self.shown = time.monotonic()
        parts = [f"{len(now.outcomes.finished)} of {len(now.plan)} finished",
                 *(f"{planned.title} {_percent(run)}" for run, planned in now.running.values())]
        if left := self.time_left():
            parts.append(left)
        if now.deadline is not None:
            parts.append(f"{max(0.0, now.seconds_left()) / 60:.0f} min until it stops")
        line = " · ".join(parts)
        print(f"\r\x1b[K{line[:150]}" if self.terminal else line, end="" if self.terminal else "\n", file=self.file,
              flush=True)

    def end(self, outcomes: Outcomes) -> None:
        """Print the totals."""
        found = {"finished": outcomes.finished, "stopped": outcomes.stopped, "failed": outcomes.failed,
                 "not started": outcomes.left}
        self.write(", ".join(f"{len(runs)} {what}" for what, runs in found.items() if runs) or "nothing was trained")
        if outcomes.left or outcomes.stopped or outcomes.failed:
            self.write(f"the same command continues; {self.hint}")


def _percent(run: Run) -> str:
    try:
        return f"{100 * float(run.status().get('progress') or 0):.0f}%"
    except UserError:
        return "?"
