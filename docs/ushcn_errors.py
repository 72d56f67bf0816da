"""Print the tables on USHCN's errors in results.md: python docs/ushcn_errors.py

Forecasts are computed again from the recorded runs' parameters (runs/paper), so this needs the data set that they were
trained on (`acenode data build ushcn`) and a minute or two on a CPU.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from acenode import experiments
from acenode.config import Config
from acenode.data import ushcn
from acenode.data.folder import data_dir
from acenode.experiments.forecast_task import ForecastTask, ObservedTargets, error_report, measures

RECORDED = Path(__file__).parent.parent / "runs" / "paper"
METHODS = {"ace": "ACE", "gru-ode-bayes": "GRU-ODE-Bayes", "augmented": "Augmented"}
SNOW = [ushcn.VARIABLES.index(name) for name in ("SNOW", "SNWD")]
YEAR = 365.25 / ushcn.DAYS  # in the data set's unit of time
NEAR = 1.0  # days of the year that count as the same, in that unit
DRAWS = 500
FOLDS = range(5)


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a Markdown table."""
    head = list(head)
    cells = [[f"{v:.3f}" if isinstance(v, float) else str(v) for v in row] for row in rows]
    print("\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *cells)), end="\n\n")


def recorded_tasks() -> dict[tuple[str, int], ForecastTask]:
    """Return the tasks of the recorded runs with their best parameters, by method and fold; ablations are left out."""
    found, experiment = {}, experiments.get("ushcn")
    for folder in sorted(RECORDED.glob("ushcn-*")):
        description = json.loads((folder / "config.json").read_text())
        config = Config.from_dict({**description["config"], "device": "cpu"})
        parameters = folder / "checkpoints" / "best.safetensors"
        whole = config.get("attention") in (None, "evolving") and config.get("initial") in (None, "correlation")
        if config.method in METHODS and whole and parameters.exists():
            task = experiment.make(config, data_dir(), torch.device("cpu"))
            assert isinstance(task, ForecastTask)
            if ushcn.rebuilt_note(task.data.arrays) != (trained_on := description.get("data_note", "")):
                raise SystemExit(f"the recorded runs were trained on another set: {trained_on}")
            task.model.load_state_dict(load_file(parameters))
            key = config.method, int(config.get("fold"))
            assert key not in found, f"{folder.name}: a second run of {key}"
            found[key] = task
    return found


# Forecasts without a model --------------------------------------------------------------------------------------------


def constant(task: ForecastTask, at: ObservedTargets) -> np.ndarray:
    """Forecast the training stations' mean of each variable."""
    return task.data.observed_mean()[at.variable]


def last_value(task: ForecastTask, at: ObservedTargets) -> np.ndarray:
    """Forecast the station's last value of the variable before the cut; the mean if it has none."""
    data, mean = task.data, constant(task, at)
    records = data.records(data.parts.test)
    for k, (series, variable) in enumerate(zip(at.series, at.variable, strict=True)):
        r = records[series]
        seen = np.flatnonzero((r.t <= data.cut) & (r.m[:, variable] > 0))
        mean[k] = r.x[seen[-1], variable] if len(seen) else mean[k]
    return mean


def climatology(task: ForecastTask, at: ObservedTargets) -> np.ndarray:
    """Forecast the training stations' mean of the variable around the same day in earlier years."""
    train = task.data.arrays.take(task.data.parts.train)
    before = train.t <= task.data.cut
    mean = constant(task, at)
    for k, (t, variable) in enumerate(zip(at.t, at.variable, strict=True)):
        apart = np.abs((train.t - t + YEAR / 2) % YEAR - YEAR / 2)
        same = before & (apart <= NEAR) & (train.m[:, variable] > 0)
        mean[k] = train.x[same, variable].mean()
    return mean


SIMPLE: dict[str, Callable[[ForecastTask, ObservedTargets], np.ndarray]] = {
    "constant": constant, "last value": last_value, "same days of earlier years": climatology}


# Other draws of the targets -------------------------------------------------------------------------------------------


def redraw(at: ObservedTargets, among: int, draws: int = DRAWS, each: int = 3, seed: int = 0) -> np.ndarray:
    """Return the mean squared error of random draws: `each` of the first `among` times of every series."""
    times, own = np.unique(np.stack((at.series, np.round(10 * at.t)), 1), axis=0, return_inverse=True)
    sums, counts = np.bincount(own.ravel(), at.squared), np.bincount(own.ravel())
    first = np.searchsorted(times[:, 0], np.unique(times[:, 0]))
    stops, rng, found = np.append(first[1:], len(times)), np.random.default_rng(seed), []
    for _ in range(draws):
        chosen = np.concatenate([lo + rng.permutation(min(among, hi - lo))[:each]
                                 for lo, hi in zip(first, stops, strict=True)])
        found.append(sums[chosen].sum() / counts[chosen].sum())
    return np.array(found)


def drawn_stations(tasks: dict[tuple[str, int], ForecastTask], test: dict[tuple[str, int], ObservedTargets],
                   draws: int = 4_000) -> dict[str, np.ndarray]:
    """Return the mean of the five folds' errors when the stations are drawn with replacement, the same for all methods.

    A station counts in every fold that tests it, since the test sets of two folds overlap.
    """
    n = len(next(iter(tasks.values())).data.arrays)
    weight = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), draws).astype(float)
    found = {}
    for method in METHODS:
        folds = []
        for fold in FOLDS:
            at = test[method, fold]
            station = tasks[method, fold].data.parts.test[at.series]
            sums, counts = np.bincount(station, at.squared, n), np.bincount(station, minlength=n)
            folds.append(weight @ sums / (weight @ counts))
        found[method] = np.mean(folds, 0)
    return found


def interval(values: np.ndarray) -> str:
    low, high = np.percentile(values, (2.5, 97.5))
    return f"{low:.3f} to {high:.3f}"


def spread(values: Iterable[float]) -> str:
    """Write mean ± sample standard deviation."""
    values = list(values)
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"


def without(at: ObservedTargets, variables: list[int]) -> float:
    """Return the mean squared error of the other variables."""
    return float(at.squared[~np.isin(at.variable, variables)].mean())


def main() -> None:
    tasks = recorded_tasks()
    test = {key: task.targets("test", 3) for key, task in tasks.items()}
    later = {key: task.targets("test", None) for key, task in tasks.items()}
    reports = {key: error_report(at, ushcn.VARIABLES) for key, at in test.items()}

    print("### Each fold, ACE\n")
    rows = []
    for fold in FOLDS:
        r, at = reports["ace", fold], test["ace", fold]
        rows.append([fold, r["count"], r["mse"], f"{r['mse_low']:.2f} to {r['mse_high']:.2f}",
                     f"{round(0.01 * r['count'])}", f"{100 * r['largest']:.0f}%", without(at, SNOW), r["winsorised"],
                     r["mae"], r["median"]])
    table(["fold", "targets", "MSE", "95% interval", "largest 1%", "their share", "without snow", "winsorised", "MAE",
           "median squared error"], rows)

    print("### Means over the five folds\n")
    rows = []
    for method, title in METHODS.items():
        own = [reports[method, fold] for fold in FOLDS]
        rows.append([title, spread(r["mse"] for r in own), spread(r["winsorised"] for r in own),
                     spread(without(test[method, fold], SNOW) for fold in FOLDS), spread(r["mae"] for r in own),
                     spread(r["median"] for r in own)])
    for name, forecast in SIMPLE.items():
        made = []
        for fold in FOLDS:
            at = test["ace", fold]
            made.append(ObservedTargets(at.series, at.variable, at.t, at.x, forecast(tasks["ace", fold], at)))
        own = [measures(at) for at in made]
        rows.append([name, spread(r["mse"] for r in own), spread(r["winsorised"] for r in own),
                     spread(without(at, SNOW) for at in made), spread(r["mae"] for r in own),
                     spread(r["median"] for r in own)])
    table(["forecast", "MSE", "winsorised", "MSE without snow", "MAE", "median squared error"], rows)

    print("### 95% intervals of the five folds' mean, drawing stations\n")
    drawn = drawn_stations(tasks, test)
    rows = [[title, interval(drawn[method]), interval(drawn[method] - drawn["gru-ode-bayes"])]
            for method, title in METHODS.items()]
    table(["method", "MSE", "difference to GRU-ODE-Bayes"], rows)

    print("### Mean squared error by variable, and its share of the whole (means over the folds)\n")
    rows = []
    for method, title in METHODS.items():
        by = [[reports[method, fold]["by_variable"][j] for fold in FOLDS] for j in range(len(ushcn.VARIABLES))]
        mse, share = (np.array([[v[key] for v in own] for own in by]).mean(1) for key in ("mse", "share"))
        rows.append([title, *(f"{m:.2f} ({100 * s:.0f}%)" for m, s in zip(mse, share, strict=True))])
    table(["method", *ushcn.VARIABLES], rows)

    print("### Other draws of three times a station\n")
    rows = []
    for among, words in ((6, "of the first 6"), (12, "of the first 12"), (10_000, "of all")):
        ace, host = (np.stack([redraw(later[method, fold], among) for fold in FOLDS])
                     for method in ("ace", "gru-ode-bayes"))
        means, gap = ace.mean(0), (ace - host).mean(0)
        rows.append([words, f"{ace.std(1).min():.2f} to {ace.std(1).max():.2f}", spread(means),
                     f"{means.min():.2f} to {means.max():.2f}", spread(host.mean(0)), spread(gap)])
    table(["three times", "deviation within a fold", "ACE, five folds", "range", "GRU-ODE-Bayes", "ACE − it"], rows)

    print("### Mean squared error by time (the cut is at 150), all folds together\n")
    edges, rows = np.arange(150, 201, 10), []
    for method, title in METHODS.items():
        t, squared = (np.concatenate([getattr(later[method, fold], k) for fold in FOLDS]) for k in ("t", "squared"))
        rows.append([title, *(float(squared[(t > lo) & (t <= lo + 10)].mean()) for lo in edges[:-1])])
    table(["method", *(f"{lo} to {lo + 10}" for lo in edges[:-1])], rows)


if __name__ == "__main__":
    main()
