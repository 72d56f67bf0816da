"""Forecasting models on a GPU: the same numbers as on the CPU, whatever path they take there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from problems import relative
from series_problems import filled
from sporadic_problems import STEP, D, H, evolving, objective, series, times

from acenode import experiments
from acenode.data.course import course_of
from acenode.data.points import Points, pad
from acenode.data.sporadic import Sporadic
from acenode.execute import create, execute
from acenode.models.gru_bayes import GRUODEBayes
from acenode.runs import RunStore

pytestmark = pytest.mark.cuda
CUDA = torch.device("cuda")


def single(points: Points) -> Points:
    return Points(points.t.float(), points.x.float(), points.m.float(), points.there)


def batch(forecast: bool, lengths: tuple[int, ...] = (4, 9, 1, 6)) -> Sporadic:
    seen = [series(times(n, i), i) for i, n in enumerate(lengths)]
    after = [series(np.array([4.25, 5.0][:1 + i % 2]), 9 + i) for i in range(len(lengths))]
    points = single(pad(seen))
    target = single(pad(after)) if forecast else points
    return Sporadic(points, target, 5.0, 1, course_of(points, target if forecast else None, STEP))


@pytest.mark.parametrize("attentive", [False, True])
@pytest.mark.parametrize("forecast", [False, True])
def test_a_model_is_the_same_on_both(attentive: bool, forecast: bool) -> None:
    found: dict[str, Any] = {}
    for device in ("cpu", "cuda"):
        attention = evolving() if attentive else None
        model = filled(GRUODEBayes(D, H, 4, 2, step=STEP, mixing=1e-3, attention=attention)).to(device)
        loss = objective(model, batch(forecast).to(torch.device(device)))  # type: ignore[arg-type]
        loss.backward()
        found[device] = loss.detach().cpu(), {k: p.grad.cpu() for k, p in model.named_parameters()
                                              if p.grad is not None}
    assert relative(found["cuda"][0], found["cpu"][0]) < 1e-5
    assert found["cuda"][1].keys() == found["cpu"][1].keys()
    for name, exact in found["cpu"][1].items():
        if exact.any():
            assert relative(found["cuda"][1][name], exact) < 1e-4, name


def test_the_kernels_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    launched = GRUODEBayes._launched

    def watched(self: GRUODEBayes, *given: Any) -> Any:
        taken.append(launched(self, *given))
        return taken[-1]

    monkeypatch.setattr(GRUODEBayes, "_launched", watched)
    model = filled(GRUODEBayes(D, H, 4, 2, step=STEP)).to(CUDA)
    objective(model, batch(False).to(CUDA))  # type: ignore[arg-type]
    assert len(taken) == 1
    assert taken[0] is not None


@pytest.mark.parametrize("method", ["node-vae-mask", "seq-vae", "gru-d", "t-lstm", "gru-ode-bayes", "augmented", "ace"])
def test_every_kind_trains(method: str, tmp_path: Path) -> None:
    config = experiments.get("ushcn").configure(method, device="cuda", epochs=1, batch_size=400)
    outcome = execute(create(RunStore(tmp_path), config), tmp_path)
    assert outcome.state == "finished", outcome.error
    assert outcome.metrics["mse"] > 0
