"""Train a method with settings to choose between, and compare them on validation data.

    python docs/try_settings.py physionet default penalty_weight=0 penalty_weight=0.1,learning_rate=0.001 --seeds 0-2

Every choice is trained on the full data, once a seed, several at a time. The test set is never read. What was finished
before in the folder is not trained again. `acenode search` does the same for ranges of settings; this needs no Optuna.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from statistics import mean
from typing import Any

from acenode import experiments
from acenode.config import Config
from acenode.config.seeds import read_seeds
from acenode.data.folder import data_dir
from acenode.execution.execute import create, execute
from acenode.results import metric_records
from acenode.runs.store import RunStore

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


def best_value(config: Config, folder: Path) -> tuple[float, int]:
    """Return the validation value that selects the best epoch, and that epoch; train the run unless it is finished."""
    store = RunStore(folder)
    run = next((r for r in store if r.config() == config), None) or create(store, config, TRIAL)
    if run.status()["state"] != "finished":
        outcome = execute(run, data_dir())
        if outcome.error is not None:
            raise RuntimeError(f"{run.id}: {outcome.error}")
    best = [record for record in metric_records.read(run).epochs if record["best"]][-1]
    return float(best[f"validation_{measure(config.experiment)}"]), int(best["epoch"])


def measure(experiment: str) -> str:
    """Return the measure that selects the best epoch of an experiment."""
    metric = experiments.get(experiment).metric
    return metric.selection or metric.name


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment")
    parser.add_argument("choices", nargs="+", help="KEY=VALUE,..., or default")
    parser.add_argument("--method", default="ace")
    parser.add_argument("--data", choices=("sample", "full"), default="full")
    parser.add_argument("--seeds", default="0", type=read_seeds)
    parser.add_argument("--folds", action="store_true", help="the numbers of --seeds are folds too, as on USHCN")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    given = parser.parse_args(arguments)
    experiment, shared = experiments.get(given.experiment), {"device": given.device, "snapshots": 2}
    if given.epochs is not None:
        shared["epochs"] = given.epochs
    with ProcessPoolExecutor(given.workers, multiprocessing.get_context("spawn")) as pool:
        futures = {}
        for choice in given.choices:
            for seed in given.seeds:
                own = {**shared, **settings(choice), "seed": seed, **({"fold": seed} if given.folds else {})}
                config = experiment.configure(given.method, given.data, **own)
                futures[pool.submit(best_value, config, given.folder)] = choice, seed
        found: dict[str, list[tuple[int, float, int]]] = {choice: [] for choice in given.choices}
        for done in as_completed(futures):
            choice, seed = futures[done]
            value, epoch = done.result()
            found[choice].append((seed, value, epoch))
            print(f"{choice}, seed {seed}: {value:.4f} in epoch {epoch}", flush=True)
    print(f"\n| settings | mean validation {measure(given.experiment)} | seed: value (epoch) |\n|---|---|---|")
    for choice, values in found.items():
        each = ", ".join(f"{seed}: {value:.4f} ({epoch})" for seed, value, epoch in sorted(values))
        print(f"| {choice} | {mean(value for _, value, _ in values):.4f} | {each} |")


if __name__ == "__main__":
    main()
