"""Load a trained run and predict new inputs: images, a series with missing values, and prices in their own units.

    python examples/load_a_run.py [RUN]
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import acenode
from acenode import experiments
from acenode.execution.execute import create, execute
from acenode.runs.store import RunStore


def train_briefly(folder: str, experiment: str, method: str, **settings: object) -> Path:
    """Train for one epoch on the bundled sample, for something to load."""
    config = experiments.get(experiment).configure(method, epochs=1, **settings)
    run = create(RunStore(folder), config)
    execute(run, Path(folder))
    return run.path


def show(run: acenode.LoadedRun) -> None:
    parameters = sum(p.numel() for p in run.module.parameters())
    print(f"{run.id}: {run.config.method} on {run.config.experiment}, {parameters:,} parameters")


def main() -> tuple[list[str], np.ndarray, np.ndarray]:
    if len(sys.argv) > 1:
        show(acenode.load(sys.argv[1]))
    with TemporaryDirectory() as folder:
        digits = acenode.load(train_briefly(folder, "mnist", "resnet", batch_size=256, analysis=False))
        climate = acenode.load(train_briefly(folder, "ushcn", "gru-simple"))
        stocks = acenode.load(train_briefly(folder, "stocks", "ace", snapshots=2))
    show(digits)
    blank = np.zeros((2, 8, 8), np.uint8)
    labels = digits.predict(blank).labels
    print("two blank images:", labels)

    show(climate)
    variables = len(climate.task.data.arrays.names)  # type: ignore[attr-defined]
    t = np.array([1.0, 2.0, 5.0, 8.0])
    x = np.full((4, variables), np.nan)
    x[0, 0], x[1, 1:], x[2, 0] = 0.3, -0.1, 0.2  # the last row has no values: it is forecast
    (forecast,) = climate.predict([(t, x)])
    print("forecast at", forecast.t, "is", forecast.x.round(2), "±", forecast.deviation.round(2))

    show(stocks)
    weeks = np.arange(16.0)
    prices = np.full((16, 6), np.nan)
    prices[:12] = 1 + 0.01 * weeks[:12, None]  # twelve weeks of six companies; the last four rows are forecast
    (ahead,) = stocks.predict([(weeks, prices)])
    print("prices in weeks", ahead.t, "are", ahead.x.round(2))
    return labels, forecast.x, ahead.x


if __name__ == "__main__":
    main()
