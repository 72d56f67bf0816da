"""Recurrent models with the accelerated scan, compared with the plain loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import sporadic_batches
import torch
from irregular_batches import batch, filled, records
from torch import Tensor, nn

from acenode.accelerate.recurrence import scan
from acenode.backend import ACCELERATED, PLAIN, Backend
from acenode.data.points import Points
from acenode.models.forecast.baselines import GRUSimple, RecurrentForecaster, SequentialVAE, TimeLSTM, gru_d
from acenode.models.forecast.gaussian import Forecast
from acenode.models.recurrent import MissingDataGRU

D, H = 3, 4
FORECASTERS: dict[str, Callable[[Backend], nn.Module]] = {
    "gru-simple": lambda backend: RecurrentForecaster(GRUSimple(D, H, backend), D, 5),
    "gru-d": lambda backend: RecurrentForecaster(gru_d(D, H, backend), D, 5),
    "t-lstm": lambda backend: RecurrentForecaster(TimeLSTM(D, H, backend), D, 5),
    "seq-vae": lambda backend: SequentialVAE(D, H, 6, 7, 5, backend=backend)}


@pytest.fixture(autouse=True)
def scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the cells that were scanned."""
    found, forward = list[str](), scan._forward
    monkeypatch.setattr(scan, "_forward", lambda cell, *rest: (found.append(cell.name), forward(cell, *rest))[1])
    return found


def assert_equal(run: Callable[[Backend], list[Tensor]], scans: list[str], count: int) -> None:
    exact = run(PLAIN)
    assert scans == []
    found = run(ACCELERATED)
    assert len(scans) == count
    for a, b in zip(found, exact, strict=True):
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("impute", [False, True])
def test_gru_d_and_rnn_decay_equal_the_plain_loop(impute: bool, scans: list[str]) -> None:
    seen = sporadic_batches.double(batch(records()).seen)

    def run(backend: Backend) -> list[Tensor]:
        model = filled(MissingDataGRU(D, H, gap=False, impute=impute, decay=True, backend=backend).double())
        h = model(seen)
        (h * torch.linspace(-1, 1, h.numel()).view_as(h)).sum().backward()
        return [h, *(p.grad for p in model.parameters() if p.grad is not None)]

    assert_equal(run, scans, 1)


@pytest.mark.parametrize("kind", FORECASTERS)
@pytest.mark.parametrize("trains", [True, False])
def test_forecasts_equal_those_of_the_plain_loop(kind: str, trains: bool, scans: list[str]) -> None:
    series = sporadic_batches.several()
    given = sporadic_batches.batch(series)
    if not trains:
        later = Points(given.seen.t + sporadic_batches.END, *(getattr(given.seen, k) for k in ("x", "m", "valid")))
        given = replace(given, target=later)

    def run(backend: Backend) -> list[Tensor]:
        model = filled(FORECASTERS[kind](backend).double()).train(trains)
        forecast: Forecast = model(given)
        weighing = torch.linspace(-1, 1, forecast.mean.numel()).view_as(forecast.mean)
        loss = (forecast.mean * weighing + forecast.logvar * weighing.flip(1)).sum()
        (loss if forecast.extra is None else loss + forecast.extra).backward()
        return [forecast.mean, forecast.logvar, *(p.grad for p in model.parameters() if p.grad is not None)]

    assert_equal(run, scans, 1 if trains or kind == "seq-vae" else 2)
