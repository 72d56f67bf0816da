"""Write synthetic runs and searches for benchmarks and tests, without training."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from acenode import experiments
from acenode.config import Config
from acenode.config.groups import Training
from acenode.config.ranges import read_ranges
from acenode.files import json_bytes
from acenode.runs.process import identity
from acenode.runs.questions import Search, SearchStore
from acenode.runs.store import Run, RunStore
from acenode.search.journal import CREATE, DEFAULT, PARAM, REASON, RUN, STATE, USER_ATTR
from acenode.search.sampling import distribution

CREATED = 1_750_000_000.0
RESULT_BYTES = 100_000  # of a result.json with t-SNE points


def write_run(path: Path, config: Mapping[str, Any], created: float, extra: Mapping[str, Any],
              status: Mapping[str, Any]) -> None:
    """Write the folder of a finished run."""
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"format": 1, "id": path.name, "created": created, "config": config,
                                                  "params": 31_690, **extra}))
    (path / "status.json").write_text(json.dumps({"state": "finished", "error": None, "progress": 1.0,
                                                  "heartbeat": created, "process": identity(), **status}))


def finished_runs(root: Path, count: int, *, experiment: str = "mnist", seconds: float = 30.0, old: bool = False,
                  **given: Any) -> list[Run]:
    """Write `count` finished ACE runs, oldest first; `old` ones have no test metrics in their status."""
    config = experiments.get(experiment).configure("ace", **{"device": "cpu", **given}).to_dict()
    points = np.random.default_rng(0).uniform(-50, 50, (RESULT_BYTES // 42, 2)).tolist()
    environment = {"device": "cpu (x86_64)", "threads": 1, "python": "3.12.3",
                   "versions": {"acenode": "0.1.0", "torch": "2.13.0"}}
    runs = [Run(root / f"{experiment}-ace-{i:05d}") for i in range(count)]
    for i, run in enumerate(runs):
        test, began = {"accuracy": 0.9 + i % 100 / 1000, "loss": 0.3, "nfe": 20.0}, CREATED + i
        found = {"test": test, "metric": "accuracy", "test_last": test, "best_epoch": 7}
        result = json.dumps({**found, "validation": 0.95, "seconds": seconds, "steps": 276, "tsne": points})
        known = {} if old else {**found, "result_bytes": len(result), "began": began, "last": 0.94}
        write_run(run.path, {**config, "seed": i}, began, {"environment": environment},
                  {"phase": "testing", "epoch": config["epochs"], "epochs": config["epochs"], "step": 276,
                   "seconds": seconds, "seconds_left": 0.0, "best": 0.95, **known, "heartbeat": began + seconds})
        (run.path / "result.json").write_text(result)
    return runs


# Searches: the journal of trials as Optuna writes it ----------------------------------------------------------------

OVER = "learning_rate=log:1e-3..1, penalty_weight=0,1e-4,1e-3,1e-2, f_layers=1..2"
TIME = "2026-01-01T00:00:00.000000+00:00"
EPOCHS = 12
CREATE_STUDY, REPORT = 0, 7
FINISHED, PRUNED = 1, 2


def value_of(learning_rate: float) -> float:
    """Return the validation accuracy that a learning rate leads to."""
    return 0.97 - 0.05 * (math.log10(learning_rate) + 0.8) ** 2


def synthetic_search(store: SearchStore, name: str, trials: int, *, running: int = 0) -> Search:
    """Write a finished search with so many trials, a third of them pruned, and return it.

    Args:
        store: where it is written.
        name: its name.
        trials: in all.
        running: so many of the last ones have not ended.
    """
    from optuna.distributions import distribution_to_json

    search = Search(name, "mnist", "ace", read_ranges([OVER]), trials)
    store.write(search)
    numbers = random.Random(0)
    distributions = {one.key: distribution_to_json(distribution(one)) for one in search.ranges}
    lines = [_line(CREATE_STUDY, study_name="search", directions=[2])]
    for number in range(trials):
        lines += _trial(distributions, number, numbers, ended=number < trials - running)
    store.journal(name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    store.write_status(name, "running" if running else "finished")
    return search


def _trial(distributions: Mapping[str, str], number: int, numbers: random.Random, *, ended: bool) -> Iterator[str]:
    yield _line(CREATE, study_id=0, datetime_start=TIME, **({"user_attrs": {DEFAULT: True}} if number == 0 else {}))
    rate = math.exp(numbers.uniform(math.log(1e-3), 0.0))
    values = {"learning_rate": rate, "penalty_weight": numbers.randrange(4), "f_layers": float(numbers.randint(1, 2))}
    for key, limits in distributions.items():
        yield _line(PARAM, trial_id=number, param_name=key, param_value_internal=values[key], distribution=limits)
    yield _line(USER_ATTR, trial_id=number, user_attr={RUN: f"mnist-ace-20260101-000000-{number:04x}"})
    best = value_of(rate) + numbers.gauss(0, 0.004)
    pruned = ended and number > 5 and number % 3 == 0
    for epoch in range(1, 1 + (3 if pruned else EPOCHS if ended else 2)):
        yield _line(REPORT, trial_id=number, step=epoch, intermediate_value=best - 0.3 / epoch)
    if pruned:
        yield _line(USER_ATTR, trial_id=number, user_attr={REASON: "pruned after epoch 3"})
    if ended:
        yield _line(STATE, trial_id=number, state=PRUNED if pruned else FINISHED,
                    values=[best - 0.1 if pruned else best], datetime_complete=TIME)


def _line(operation: int, **values: Any) -> str:
    return json.dumps({"op_code": operation, "worker_id": "5f0f8bd2-140042", **values}, separators=(",", ":"))


class EpochLauncher:
    """A launcher that trains nothing: it adds one epoch to each started run at every call of `advance`.

    Args:
        store: where runs are created.
        value: the validation accuracy of a configuration after an epoch.
    """

    def __init__(self, store: RunStore, value: Callable[[Config, int], float]) -> None:
        self.store, self.value = store, value
        self.active: dict[str, tuple[Run, Config]] = {}
        self.epochs = 0  # in all

    def start(self, config: Config, extra: Mapping[str, Any] | None = None) -> Run:
        run = self.store.create(config, dict(extra or {}))
        self.active[run.id] = (run, config)
        return run

    def resume(self, run: Run) -> None:
        run.set_state("queued", error=None)
        self.active[run.id] = (run, run.config())

    def stop(self, run: Run) -> None:
        if self.active.pop(run.id, None):
            run.set_state("stopped")

    def advance(self) -> None:
        for run, config in list(self.active.values()):
            self.epochs += 1
            values = [r["validation_accuracy"] for r in run.metrics()[0]]
            epoch, value = len(values) + 1, self.value(config, len(values) + 1)
            with open(run.path / "metrics.jsonl", "ab") as file:
                file.write(json_bytes({"kind": "epoch", "epoch": epoch, "validation_accuracy": value,
                                       "best": value > max(values, default=-math.inf)}) + b"\n")
            ended = epoch == config.part(Training).epochs
            run.set_state("finished" if ended else "running")
            if ended:
                del self.active[run.id]
