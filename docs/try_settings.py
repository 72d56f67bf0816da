"""Train a method with settings to choose between, and compare them on validation data.

    python docs/try_settings.py physionet default penalty_weight=0 penalty_weight=0.1,learning_rate=0.001 --seeds 0-2

Every choice is trained with every seed, in --workers processes. With --together, one process trains all seeds of a
choice: image models as one computation, others one after another on a CPU and in threads on a GPU. The test set is
never read. What was finished before in the folder is not trained again. `acenode search` does the same for ranges of
settings; this needs no Optuna.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from acenode import experiments
from acenode.compare import metric_records
from acenode.config import Config
from acenode.config.seeds import read_seeds
from acenode.data.folder import data_dir
from acenode.errors import UserError
from acenode.execution.execute import create
from acenode.execution.together import execute_together
from acenode.runs.store import Run, RunStore

FOLDER = Path(__file__).parent.parent / "build" / "tried"
TRIAL = {"search": "tried", "trial": 0}  # marks runs that are never tested


def settings(text: str) -> dict[str, Any]:
    """Return the settings in a text such as `penalty_weight=0,attention_in=both`; `default` has none."""
    found: dict[str, Any] = {}
    for part in text.split(",") if text != "default" else ():
        key, _, value = part.partition("=")
        found[key] = value
        with contextlib.suppress(ValueError):  # a word
            found[key] = json.loads(value)
    return found


@dataclass(frozen=True, order=True)
class Best:
    """The best epoch of a run, and the validation value that selected it."""

    seed: int
    value: float
    epoch: int


def train(configs: Sequence[Config], folder: Path) -> list[Best]:
    """Train the runs that are not finished, without testing them, and return the best epoch of each."""
    store = RunStore(folder)
    runs = [next((run for run in store if run.config() == config), None) or create(store, config, TRIAL)
            for config in configs]
    if left := [run for run in runs if run.status()["state"] != "finished"]:
        for outcome in execute_together(left, data_dir()):
            if outcome.state != "finished":
                raise UserError(f"{outcome.run.id}: {outcome.error or outcome.state}")
    return [best_of(run) for run in runs]


def best_of(run: Run) -> Best:
    """Return the best epoch of a run."""
    config = run.config()
    best = [record for record in metric_records.read(run).epochs if record["best"]][-1]
    return Best(config.seed, float(best[f"validation_{measure(config.experiment)}"]), int(best["epoch"]))


def measure(experiment: str) -> str:
    """Return the measure that selects the best epoch of an experiment."""
    metric = experiments.get(experiment).metric
    return metric.selection or metric.name


def jobs(given: argparse.Namespace) -> Iterator[tuple[str, list[Config]]]:
    """Yield each choice with the configurations that one process trains."""
    experiment = experiments.get(given.experiment)
    numbered = ("seed", "fold") if given.folds else ("seed",)
    shared = {"device": given.device, "snapshots": 2}
    if given.epochs is not None:
        shared["epochs"] = given.epochs
    for choice in dict.fromkeys(given.choices):
        chosen = settings(choice)
        for key in numbered:
            if key in chosen:
                raise UserError(f"{choice}: {key} comes from --seeds")
        configs = [experiment.configure(given.method, given.data, **(shared | chosen | dict.fromkeys(numbered, seed)))
                   for seed in given.seeds]
        if given.together:
            yield choice, configs
        else:
            for config in configs:
                yield choice, [config]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment")
    parser.add_argument("choices", nargs="+", help="KEY=VALUE,..., or default")
    parser.add_argument("--method", default="ace")
    parser.add_argument("--data", choices=("sample", "full"), default="full")
    parser.add_argument("--seeds", default="0", type=read_seeds)
    groups = parser.add_mutually_exclusive_group()
    groups.add_argument("--folds", action="store_true", help="the numbers of --seeds are folds too, as on USHCN")
    groups.add_argument("--together", action="store_true", help="one process trains the seeds of a choice")
    parser.add_argument("--epochs", type=int, help="instead of the default number")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1, help="processes that train at the same time")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the runs (default: build/tried)")
    given = parser.parse_args(arguments)
    planned = list(jobs(given))  # before anything is trained: bad settings end here
    found: dict[str, list[Best]] = {choice: [] for choice, _ in planned}
    with ProcessPoolExecutor(given.workers, multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(train, configs, given.folder): choice for choice, configs in planned}
        for done in as_completed(futures):
            for best in done.result():
                found[futures[done]].append(best)
                print(f"{futures[done]}, seed {best.seed}: {best.value:.4f} in epoch {best.epoch}", flush=True)
    print(f"\n| settings | mean validation {measure(given.experiment)} | seed: value (epoch) |\n|---|---|---|")
    for choice, runs in found.items():
        each = ", ".join(f"{best.seed}: {best.value:.4f} ({best.epoch})" for best in sorted(runs))
        print(f"| {choice} | {mean(best.value for best in runs):.4f} | {each} |")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(str(error))
