"""Small models of named variables and batches for them."""

from dataclasses import replace

import numpy as np
import torch

from acenode.backend import PLAIN
from acenode.config import resolve
from acenode.data.named_batches import ScaledSet
from acenode.data.named_set import NamedSet
from acenode.data.series import Record
from acenode.experiments.named import COMMON, METHODS
from acenode.models.layers import initialise
from acenode.models.named import NamedShape

V, K = 3, 2


def small_set(task: str = "forecast", gaps: bool = True) -> NamedSet:
    rng = np.random.default_rng(0)
    series = []
    for _ in range(8):
        x = np.cumsum(rng.normal(size=(9, V)), 0)
        if gaps:
            x[rng.random(x.shape) < 0.3] = np.nan
        series.append(Record.from_gaps(np.sort(rng.uniform(0, 8, 9)) if gaps else np.arange(9.0), x))
    return NamedSet(
        name="small", title="", note="", variables=tuple("uvw"), units=("",) * V, time_unit="h", time_origin="",
        ids=tuple(map(str, range(8))), series=tuple(series), task=task, given=4.0 if task == "forecast" else 0.0,
        parts={"train": np.arange(4), "validation": np.arange(4, 6), "test": np.arange(6, 8)},
        labels=np.arange(8) % 2 if task == "classify" else None, classes=("a", "b") if task == "classify" else ())


def build(method="ace", task="forecast", dtype=torch.float64, backend=PLAIN, **given):
    entry = METHODS[method]
    config = resolve("small", method, uses=entry.uses, defaults=COMMON, given={
        "block": K, "embedding": 2, "units": 5, "recognition": 4, "step_size": 0.25, **given})
    model = entry.build(NamedShape(V, 2 if task == "classify" else 0, task != "forecast"), config, backend)
    initialise(model, 3)
    if model.ode.q is not None:
        model.ode.q.B.data.normal_(generator=torch.Generator().manual_seed(1))
    return model.to(dtype)


def batch_of(task="forecast", gaps=True, index=(0, 1, 2), dtype=torch.float64):
    made = ScaledSet.of(small_set(task, gaps)).batch(list(index))

    def cast(points):
        return replace(points, t=points.t.to(dtype), x=points.x.to(dtype), m=points.m.to(dtype))

    return replace(made, seen=cast(made.seen), target=cast(made.target), reference=made.reference.to(dtype),
                   control=None if made.control is None else made.control.to(dtype))
