"""Forecasting models on a GPU: the same numbers as on the CPU, by whichever implementation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from irregular_batches import filled
from problems import FailingKernel, relative
from sporadic_batches import STEP, D, H, evolving, objective, series, times
from torch import Tensor

from acenode import experiments
from acenode.accelerate import triton_support
from acenode.accelerate.gru_ode_bayes import attention_cuda, integrate
from acenode.backend import ACCELERATED, Backend
from acenode.data.points import Points, pad
from acenode.data.schedule import ScheduledPoints, SporadicBatch, make_schedule
from acenode.execution.execute import create, execute
from acenode.models.forecast.gru_ode_bayes import GRUODEBayes
from acenode.runs.store import RunStore

pytestmark = pytest.mark.cuda
CUDA = torch.device("cuda")


def single(points: Points) -> Points:
    return Points(points.t.float(), points.x.float(), points.m.float(), points.valid)


def batch(forecast: bool, lengths: tuple[int, ...] = (4, 9, 1, 6)) -> SporadicBatch:
    seen = [series(times(n, i), i) for i, n in enumerate(lengths)]
    after = [series(np.array([4.25, 5.0][:1 + i % 2]), 9 + i) for i in range(len(lengths))]
    points = single(pad(seen))
    target = single(pad(after)) if forecast else points
    return SporadicBatch(points, target, 5.0, 1, make_schedule(points, target if forecast else None, STEP))


@pytest.mark.parametrize("attentive", [False, True])
@pytest.mark.parametrize("forecast", [False, True])
def test_loss_and_gradients_are_those_of_the_cpu(attentive: bool, forecast: bool) -> None:
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


@pytest.mark.parametrize("attentive", [False, True])
def test_trajectories_are_those_of_the_cpu(attentive: bool) -> None:
    frames, found = [0.0, 0.25, 1.0, 2.5, 5.0], []
    for device in ("cpu", "cuda"):
        attention = evolving() if attentive else None
        model: Any = filled(GRUODEBayes(D, H, 4, 2, step=STEP, attention=attention)).to(device).eval()
        of = batch(True).to(torch.device(device))
        with torch.no_grad():
            around = model.predict_around_jumps(of, frames)[:3]
            found.append([*(v.cpu() for v in model.trajectory(of, frames) if v is not None),
                          *(forecast.mean.cpu() for forecast in around)])
    assert len(found[0]) == 4 + attentive
    assert all(relative(mine, exact) < 1e-5 for exact, mine in zip(*found, strict=True))


@dataclass(frozen=True)
class Pass:
    """Inputs of one integration: five series, one of them without any point, each with its own h(0) and a(0)."""

    H: int
    every: int = 4
    own_feedback: bool = False
    detach: bool = False
    own_steps: bool = False
    observations: bool = True
    reads: bool = True
    dropout: bool = False
    frozen: tuple[str, ...] = ()
    when: str = "any"  # together: read points at the observations, the first at 0; start: all points at 0, in one row
    broken: int | None = None  # the index of a series whose observations are NaN
    attentive: bool = True
    g: str = "rows"
    backend: Backend = ACCELERATED

    def records(self, counts: tuple[int, ...], seed: int) -> Points:
        rng, found = np.random.default_rng(seed), []
        for n in counts:
            t = np.sort(rng.choice(np.arange(60), n, replace=False)) / 10
            t = t + rng.uniform(0, 0.05, n) * self.own_steps
            t = t[:1] * 0 if self.when == "start" else t * (np.arange(n) > 0) if self.when == "together" else t
            record = series(t, int(rng.integers(99)))
            if self.broken == len(found):
                record.x[record.m > 0] = np.nan
            found.append(record)
        return pad(found)

    def run(self, device: str, dtype: torch.dtype) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return outputs and gradients, in double precision on the CPU."""
        seen = self.records((11, 0, 5, 20, 1) if self.observations else (0,) * 5, 1)
        targets = seen if self.when == "together" else self.records((3, 0, 9, 1, 6), 2)
        schedule = make_schedule(seen, targets if self.reads else None, 0.1)
        assert schedule.dt.shape[1] == (5 if self.own_steps else 1)
        assert (schedule.rows == 1) == (self.when == "start")
        at = schedule.observations
        x, m = (v[at.series, at.point].to(device, dtype) for v in (seen.x, seen.m))
        attention = None
        if self.attentive:
            attention = evolving(self.every, "dense", self.H, self.g, own_feedback=self.own_feedback)
        model = filled(GRUODEBayes(D, self.H, 7, 4, attention=attention, backend=self.backend),
                       size=0.8 / self.H**0.5).to(device, dtype)
        assert isinstance(model, GRUODEBayes)
        for name, p in model.named_parameters():
            p.requires_grad_(not name.startswith(self.frozen or "nothing"))
        generator = torch.Generator().manual_seed(0)

        def drawn(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator).to(device, dtype)

        h0 = torch.tanh(drawn(5, self.H)).requires_grad_()
        a0 = drawn(5, self.H, self.H).requires_grad_() if self.attentive else None
        dropout = (drawn(len(x), 7) > -0.5).to(x) / 0.7 if self.dropout else None
        schedule = replace(schedule, dt=schedule.dt.to(device, dtype), observations=sent(schedule.observations, device),
                           reads=sent(schedule.reads, device))
        out = model._integrate(schedule, h0, a0, x, m, 5.0, dropout=dropout, detach=self.detach)
        outputs = out.predicted, out.updated, out.read
        torch.autograd.backward(outputs, [drawn(*y.shape) for y in outputs])
        gradients = {"h0": h0.grad, "a0": None if a0 is None else a0.grad}
        gradients |= {k: p.grad for k, p in model.named_parameters()}
        names = "predicted", "updated", "read"
        return ({name: y.detach().cpu().double() for name, y in zip(names, outputs, strict=True)},
                {k: d.cpu().double() for k, d in gradients.items() if d is not None})

    def check(self) -> None:
        found, exact = self.run("cuda", torch.float32), self.run("cpu", torch.float64)
        for mine, right, tolerance in zip(found, exact, (1e-5, 1e-4), strict=True):
            assert mine.keys() == right.keys()
            for name, y in right.items():
                assert torch.equal(mine[name].isnan(), y.isnan()), name
                mine[name], y = mine[name].nan_to_num(), y.nan_to_num()
                assert torch.linalg.vector_norm(mine[name] - y) <= tolerance * torch.linalg.vector_norm(y), name


def sent(points: ScheduledPoints, device: str) -> ScheduledPoints:
    return ScheduledPoints(points.offsets, *(v.to(device) for v in (points.row, points.series, points.point)))


@pytest.fixture
def by_kernels(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Record for each pass on a GPU whether kernels integrated it."""
    found: list[bool] = []
    original = integrate.integrate_by_kernels

    def watched(*args: Any) -> Any:
        outputs = original(*args)
        found.append(outputs is not None)
        return outputs

    monkeypatch.setattr(integrate, "integrate_by_kernels", watched)
    return found


@pytest.mark.parametrize("attentive", [False, True])
def test_kernels_are_used(attentive: bool, by_kernels: list[bool]) -> None:
    model = filled(GRUODEBayes(D, H, 4, 2, step=STEP, attention=evolving() if attentive else None)).to(CUDA)
    objective(model, batch(False).to(CUDA)).backward()  # type: ignore[arg-type]
    with torch.no_grad():
        objective(model, batch(True).to(CUDA))  # type: ignore[arg-type]
    assert by_kernels == [True, True]


@pytest.mark.parametrize("g", ["rows", "matrix"])
@pytest.mark.parametrize("own_feedback", [False, True])
@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize("own_steps", [False, True])
def test_kernels_with_attention_match_the_cpu(own_feedback: bool, detach: bool, own_steps: bool, g: str,
                                               by_kernels: list[bool]) -> None:
    Pass(5, own_feedback=own_feedback, detach=detach, own_steps=own_steps, g=g).check()
    assert by_kernels == [True]


@pytest.mark.parametrize("of", [
    Pass(50, every=10), Pass(50, every=7, own_feedback=True, own_steps=True), Pass(20, every=3, observations=False),
    Pass(20, every=100, reads=False, dropout=True), Pass(5, every=1), Pass(40, every=60, own_steps=True, detach=True),
    Pass(50, every=10, g="matrix"), Pass(20, every=100, g="matrix", dropout=True),
    Pass(20, every=3, g="matrix", frozen=("f", "p", "jump", "start")), Pass(50, every=1, g="matrix", own_steps=True)])
def test_kernels_with_attention_of_several_sizes(of: Pass, by_kernels: list[bool]) -> None:
    of.check()
    assert by_kernels == [True]


@pytest.mark.parametrize("of", [
    Pass(5, when="together"), Pass(5, when="together", own_steps=True, dropout=True), Pass(5, when="start"),
    Pass(5, when="start", reads=False), Pass(5, every=3, broken=3), Pass(5, when="together", broken=0)])
@pytest.mark.parametrize("attentive", [False, True])
def test_kernels_with_coinciding_points_or_nan(of: Pass, attentive: bool, by_kernels: list[bool]) -> None:
    replace(of, attentive=attentive).check()
    assert by_kernels == [True]


@pytest.mark.parametrize("which", ["forward", "backward"])
@pytest.mark.parametrize("attentive", [False, True])
def test_torch_replaces_a_kernel_that_does_not_run(attentive: bool, which: str, by_kernels: list[bool],
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    from acenode.accelerate.gru_ode_bayes import attention_scan_kernels, kernels

    monkeypatch.setattr(triton_support, "_failures", {})
    monkeypatch.setattr(attention_scan_kernels if attentive else kernels, which, FailingKernel())
    lines: list[str] = []
    backend = Backend(log=lines.append)
    for _ in range(2):
        Pass(5, attentive=attentive, backend=backend).check()
    assert by_kernels == [False, False]
    assert lines == ["GPU kernels do not run here: RuntimeError: out of resource: registers",
                     "series are integrated by torch's operations, row by row"]


@pytest.mark.parametrize("frozen", [("attention.g",), ("f", "p", "jump"), ("f",), ("p", "attention.g.new_in")])
def test_frozen_parameters_have_no_gradient(frozen: tuple[str, ...], by_kernels: list[bool]) -> None:
    Pass(5, frozen=frozen).check()
    assert by_kernels == [True]


def test_torch_replaces_kernels_without_memory_or_for_wide_layers(by_kernels: list[bool],
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_cuda, "MEMORY_SHARE", 0)
    Pass(5).check()
    Pass(70).check()
    assert by_kernels == [False, False]


def test_kernels_with_attention_are_deterministic() -> None:
    first = Pass(50, every=10).run("cuda", torch.float32)
    for _ in range(3):
        for mine, right in zip(Pass(50, every=10).run("cuda", torch.float32), first, strict=True):
            assert all(torch.equal(mine[name], y) for name, y in right.items())


@pytest.mark.parametrize("method", ["node-vae-mask", "seq-vae", "gru-d", "t-lstm", "gru-ode-bayes", "augmented", "ace"])
def test_every_method_trains(method: str, tmp_path: Path) -> None:
    config = experiments.get("ushcn").configure(method, device="cuda", epochs=1, batch_size=400)
    outcome = execute(create(RunStore(tmp_path), config), tmp_path)
    assert outcome.state == "finished", outcome.error
    assert outcome.metrics["mse"] > 0
