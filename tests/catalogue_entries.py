"""Catalogue entries of finished runs, without run folders."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from acenode import experiments
from acenode.runs.catalogue import Entry


def entry(method: str = "ace", value: float | None = 0.9, *, experiment: str = "mnist", data: str = "sample",
          seed: int = 0, created: float = 0.0, metric: str = "accuracy", **given: Any) -> Entry:
    """Return a finished run with this value of the metric on the test set."""
    config = experiments.get(experiment).configure(method, data, seed=seed, **given).to_dict()
    config.pop("format")
    name = f"{experiment}-{method}-{seed}-{created}"
    return Entry(id=name, path=Path(name), state="finished", experiment=experiment, method=method, data=data, seed=seed,
                 config=config, created=created, value=value, metric=metric,
                 test={} if value is None else {metric: value})


full = partial(entry, data="full")
