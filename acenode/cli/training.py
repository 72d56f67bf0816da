"""Commands that train: train, resume, stop, demo."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from acenode.cli.cluster_option import announce, cluster_of
from acenode.cli.common import data_words, print_json, run_store
from acenode.cli.training_seeds import seeds_of, train_seeds
from acenode.config import parse
from acenode.config.vocabulary import PRESET
from acenode.errors import UserError

if TYPE_CHECKING:
    from acenode.execution.cluster.ray_cluster import RayCluster
    from acenode.runs.store import Run


def train(options: Namespace) -> int:
    """Create a run and train it."""
    from acenode import experiments
    from acenode.execution.execute import create

    experiment = experiments.get(options.experiment)
    given = _given_settings(options, experiment.method(options.method).uses)
    config, *others = (experiment.configure(options.method, options.data, seed=seed, device=options.device, **given)
                       for seed in seeds_of(options))
    if others:
        return train_seeds([config, *others], options)
    with _started(options) as cluster:
        run = create(run_store(options), config, elsewhere=cluster is not None)
        try:
            return _execute(run, options, cluster)
        except UserError:  # training never started, so there is nothing to keep
            with suppress(FileNotFoundError):
                run.delete()
            raise


@contextmanager
def _started(options: Namespace) -> Iterator[RayCluster | None]:
    """Start the cluster of --on for the block, if there is one."""
    cluster = cluster_of(options)
    if cluster is None:
        yield None
        return
    announce(cluster, options)
    with cluster:
        yield cluster


def _given_settings(options: Namespace, uses: frozenset[str]) -> dict[str, Any]:
    """Read --epochs and every --set KEY=VALUE."""
    given: dict[str, Any] = {} if options.epochs is None else {"epochs": options.epochs}
    for text in options.set:
        key, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--set takes KEY=VALUE, not {text!r}")
        if key in given:
            raise UserError(f"{key} is given twice: leave one out")
        given[key] = value if key == PRESET else parse(key, value, uses, f"{options.method} in {options.experiment}")
    return given


def resume(options: Namespace) -> int:
    """Continue a run from its last checkpoint."""
    from acenode.execution.execute import refuse_finished

    run = run_store(options).open(options.run_id)
    run.refuse_recorded("resumed")
    device = options.device
    if device is not None and options.on is not None:
        raise UserError("--device chooses a device of this machine: leave it out with --on")
    refuse_finished(run)
    run.cancel_stop()
    options.device = device or run.config().device
    with _started(options) as cluster:
        return _execute(run, options, cluster, device)


def _execute(run: Run, options: Namespace, cluster: RayCluster | None = None, device: str | None = None) -> int:
    """Train a run with a progress bar and print its result; return the exit code.

    Args:
        run: not finished yet.
        options: of the command.
        cluster: trains the run, if given.
        device: where this machine trains it, if not where its configuration says.
    """
    from acenode.cli.progress import Bar, brief
    from acenode.data.folder import data_dir
    from acenode.execution.cluster.follow import execute_elsewhere
    from acenode.execution.execute import execute
    from acenode.execution.interrupt import stop_on_interrupt
    from acenode.runs.writer import json_value

    config = run.config()
    quiet = getattr(options, "json", False)
    start = time.monotonic()
    title = f"{run.id}: {config.method} on {config.experiment} ({data_words(config)}), seed {config.seed}"
    fallback: str | None = None

    def show(status: dict[str, Any]) -> None:
        nonlocal fallback
        bar.show(status)
        if config.get("engine") == "graph" and status["fallback"] != fallback:
            fallback = status["fallback"]
            bar.write(str(fallback))

    with Bar(title, quiet) as bar, stop_on_interrupt() as stop:
        if cluster is None:
            outcome = execute(run, data_dir(), stop=stop, progress=show, device=device)
        else:
            outcome = execute_elsewhere(cluster.train, run, data_dir(), stop=stop, progress=show)
    if quiet:
        print_json({"run": run.id, "state": outcome.state, "metrics": json_value(outcome.metrics),
                     "seconds": round(outcome.seconds, 3), "params": outcome.params,
                     **({"error": outcome.error} if outcome.error else {})})
    elif outcome.state == "finished":
        shown = ", ".join(f"{k} {brief(v)}" if k != "nfe" else f"NFE {v:.0f}" for k, v in outcome.metrics.items())
        took = f"{outcome.seconds:.1f} s of training, {time.monotonic() - start:.0f} s in all"
        tested = f"test {shown}" if outcome.metrics else "not tested, since it is a trial of a search"
        print(f"finished in {took}: {tested}; {outcome.params:,} parameters")
        print(run.path)
    if outcome.state == "stopped":
        where = f" --runs {options.runs}" if options.runs is not None else ""
        print(f"stopped; continue with `acenode resume {run.id}{where}`", file=sys.stderr)
    if outcome.state == "failed":
        print(f"acenode: {run.id} failed: {outcome.error}", file=sys.stderr)
        return 1
    return 0 if outcome.state == "finished" else 130


def stop(options: Namespace) -> int:
    """Request a running run to stop."""
    from acenode.runs.store import BUSY

    run = run_store(options).open(options.run_id)
    run.refuse_recorded("stopped")
    state = run.status()["state"]
    if state not in BUSY:
        raise UserError(f"{run.id} is {state}: only a running run can be stopped")
    run.request_stop()
    print(f"{run.id} will stop after its current iteration")
    return 0


def demo(options: Namespace) -> int:
    """Train ACE on the bundled digits and print the table."""
    from acenode import experiments
    from acenode.cli.runs import table
    from acenode.execution.execute import create

    mnist = experiments.get("mnist")
    print("ACE-ODE-Net on scikit-learn's digits: h(t) and its attention a(t) evolve together and train in turns.")
    run = create(run_store(options), mnist.configure("ace"))
    code = _execute(run, Namespace(json=False, runs=options.runs))
    if code == 0:
        print()
        table(Namespace(experiment="mnist", runs=options.runs, json=False))
        folder = f" --runs {options.runs}" if options.runs is not None else ""
        print(f"\nCreate a report of this run with `acenode export {run.id} --to html{folder}`.")
    return code
