"""Train a method with settings to choose between, and compare them on validation data.

    python docs/try_settings.py physionet default penalty_weight=0 penalty_weight=0.1,learning_rate=0.001 --seeds 0-2

Every choice is trained on the full data, once a seed, several at a time; with --together, the seeds of a choice are one
computation where the method allows it. The test set is never read. What was finished before in the folder is not
trained again. `acenode search` does the same for ranges of settings; this needs no Optuna.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from statistics import mean
from typing import Any

from acenode import experiments
from acenode.config import Config
from acenode.config.seeds import read_seeds
from acenode.data.folder import data_dir
from acenode.execution.execute import create
from acenode.execution.together import execute_together
from acenode.results import metric_records
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


def best_values(configs: Sequence[Config], folder: Path) -> list[tuple[int, float, int]]:
    """Train what is not finished; return each seed, the validation value that selects its best epoch, that epoch."""
    store = RunStore(folder)
    runs = [next((run for run in store if run.config() == config), None) or create(store, config, TRIAL)
            for config in configs]
    if left := [run for run in runs if run.status()["state"] != "finished"]:
        for outcome in execute_together(left, data_dir()):
            if outcome.error is not None:
                raise RuntimeError(f"{outcome.run.id}: {outcome.error}")
    return [(run.config().seed, *best_of(run)) for run in runs]


def best_of(run: Run) -> tuple[float, int]:
    """Return the validation value of a run's best epoch, and that epoch."""
    best = [record for record in metric_records.read(run).epochs if record["best"]][-1]
    return float(best[f"validation_{measure(run.config().experiment)}"]), int(best["epoch"])


def measure(experiment: str) -> str:
    """Return the measure that selects the best epoch of an experiment."""
    metric = experiments.get(experiment).metric
    return metric.selection or metric.name


def work(given: argparse.Namespace) -> Iterator[tuple[str, list[Config]]]:
    """Yield the choices, each with the configurations that one process trains."""
    experiment, shared = experiments.get(given.experiment), {"device": given.device, "snapshots": 2}
    if given.epochs is not None:
        shared["epochs"] = given.epochs
    for choice in given.choices:
        configs = []
        for seed in given.seeds:
            own = {**shared, **settings(choice), "seed": seed, **({"fold": seed} if given.folds else {})}
            configs.append(experiment.configure(given.method, given.data, **own))
        yield from [(choice, configs)] if given.together else ((choice, [config]) for config in configs)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment")
    parser.add_argument("choices", nargs="+", help="KEY=VALUE,..., or default")
    parser.add_argument("--method", default="ace")
    parser.add_argument("--data", choices=("sample", "full"), default="full")
    parser.add_argument("--seeds", default="0", type=read_seeds)
    parser.add_argument("--folds", action="store_true", help="the numbers of --seeds are folds too, as on USHCN")
    parser.add_argument("--together", action="store_true", help="the seeds of a choice as one computation")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    given = parser.parse_args(arguments)
    found: dict[str, list[tuple[int, float, int]]] = {choice: [] for choice in given.choices}
    with ProcessPoolExecutor(given.workers, multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(best_values, configs, given.folder): choice for choice, configs in work(given)}
        for done in as_completed(futures):
            for seed, value, epoch in done.result():
                found[futures[done]].append((seed, value, epoch))
                print(f"{futures[done]}, seed {seed}: {value:.4f} in epoch {epoch}", flush=True)
    print(f"\n| settings | mean validation {measure(given.experiment)} | seed: value (epoch) |\n|---|---|---|")
    for choice, values in found.items():
        each = ", ".join(f"{seed}: {value:.4f} ({epoch})" for seed, value, epoch in sorted(values))
        print(f"| {choice} | {mean(value for _, value, _ in values):.4f} | {each} |")


if __name__ == "__main__":
    main()
