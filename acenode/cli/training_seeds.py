"""`acenode train --seeds`: several seeds of one configuration at once."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from acenode.cli.common import data_words, print_json, run_store
from acenode.config import read_seeds
from acenode.errors import UserError

if TYPE_CHECKING:
    from acenode.config import Config
    from acenode.execution.execute import Outcome
    from acenode.runs.store import Run


def seeds_of(options: Namespace) -> list[int]:
    """Read --seed or --seeds; without either it is seed 0."""
    if options.seed is not None and options.seeds is not None:
        raise UserError("give either --seed or --seeds")
    if options.seeds is not None and options.on is not None:
        raise UserError("--seeds trains on this machine: leave --on out, or train each seed by itself")
    return [options.seed or 0] if options.seeds is None else read_seeds(options.seeds)


def train_seeds(configs: Sequence[Config], options: Namespace) -> int:
    """Create a run for each seed, train them together and print their results; return the exit code."""
    from acenode.cli.progress import SeedsBar
    from acenode.data.folder import data_dir
    from acenode.execution.environment import device_of
    from acenode.execution.execute import create
    from acenode.execution.interrupt import stop_on_interrupt
    from acenode.execution.seed_group import separate_reason
    from acenode.execution.together import execute_together, seeds_at_a_time

    store, first, start = run_store(options), configs[0], time.monotonic()
    runs = [create(store, config) for config in configs]
    seeds = {run.id: config.seed for run, config in zip(runs, configs, strict=True)}
    device, listed = str(device_of(first.device)), list(seeds.values())
    together = separate_reason(first, device) is None
    size = seeds_at_a_time(first, device)
    groups = [listed[start:start + size] for start in range(0, len(listed), size)]
    title = (f"{first.method} on {first.experiment} ({data_words(first)}), seeds {', '.join(map(str, listed))}"
             + " together" * (size > 1))
    with SeedsBar(title, options.json, groups, together=together) as bar, stop_on_interrupt() as stop:

        def show(run: Run, status: dict[str, Any]) -> None:
            bar.show_seed(seeds[run.id], status)

        outcomes = execute_together(runs, data_dir(), stop=stop, progress=show)
    if options.json:
        print_json([_values(outcome) for outcome in outcomes])
    for outcome in outcomes:
        _print(outcome, options)
    if not options.json:
        print(f"{time.monotonic() - start:.0f} s in all")
    states = {outcome.state for outcome in outcomes}
    return 1 if "failed" in states else 130 if "stopped" in states else 0


def _values(outcome: Outcome) -> dict[str, Any]:
    from acenode.runs.writer import json_value

    return {"run": outcome.run.id, "state": outcome.state, "metrics": json_value(outcome.metrics),
            "seconds": round(outcome.seconds, 3), "params": outcome.params,
            **({"error": outcome.error} if outcome.error else {})}


def _print(outcome: Outcome, options: Namespace) -> None:
    """Print the result of a run, how to continue it, or why it failed."""
    from acenode.cli.progress import brief

    run = outcome.run
    if outcome.state == "failed":
        print(f"acenode: {run.id} failed: {outcome.error}", file=sys.stderr)
    elif outcome.state == "stopped":
        where = f" --runs {options.runs}" if options.runs is not None else ""
        print(f"stopped; continue with `acenode resume {run.id}{where}`", file=sys.stderr)
    elif not options.json:
        shown = ", ".join(f"{k} {brief(v)}" if k != "nfe" else f"NFE {v:.0f}" for k, v in outcome.metrics.items())
        print(f"seed {run.config().seed} finished after {outcome.seconds:.1f} s of training: test {shown}; {run.path}")
