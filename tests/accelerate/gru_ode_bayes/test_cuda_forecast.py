"""Forecasting models on a GPU: the same numbers as on the CPU, whatever path they take there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from problems import FailingKernel, relative
from series_problems import filled
from sporadic_problems import STEP, D, H, evolving, objective, series, times
from torch import Tensor

from acenode import experiments
from acenode.accelerate import kernel_check
from acenode.accelerate.gru_ode_bayes import attention_cuda as attend_scan_cuda
from acenode.backend import ACCELERATED, Backend
from acenode.data.points import Points, pad
from acenode.data.schedule import ScheduledPoints, make_schedule
from acenode.data.sporadic import SporadicBatch
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


@pytest.mark.parametrize("attentive", [False, True])
def test_what_is_looked_at_is_the_same_on_both(attentive: bool) -> None:
    frames, found = [0.0, 0.25, 1.0, 2.5, 5.0], []
    for device in ("cpu", "cuda"):
        attention = evolving() if attentive else None
        model: Any = filled(GRUODEBayes(D, H, 4, 2, step=STEP, attention=attention)).to(device).eval()
        of = batch(True).to(torch.device(device))
        with torch.no_grad():
            around = model.around(of, frames)[:3]
            found.append([*(v.cpu() for v in model.trajectory(of, frames) if v is not None),
                          *(said.mean.cpu() for said in around)])
    assert len(found[0]) == 4 + attentive
    assert all(relative(mine, exact) < 1e-5 for exact, mine in zip(*found, strict=True))


@dataclass(frozen=True)
class Pass:
    """What `GRUODEBayes.scan` is given: five series, one of them without any event, with h(0) and a(0) of their own."""

    H: int
    every: int = 4
    own_feedback: bool = False
    detach: bool = False
    own_steps: bool = False
    jumps: bool = True
    reads: bool = True
    drops: bool = False
    frozen: tuple[str, ...] = ()
    when: str = "any"  # together: reads at the jumps' own times, the first at 0; start: all at 0, in one row
    broken: int | None = None  # a series that observes what is no number
    attentive: bool = True
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
        """Outputs and gradients, in double precision on the CPU."""
        seen = self.records((11, 0, 5, 20, 1) if self.jumps else (0,) * 5, 1)
        looked = seen if self.when == "together" else self.records((3, 0, 9, 1, 6), 2)
        schedule = make_schedule(seen, looked if self.reads else None, 0.1)
        assert schedule.dt.shape[1] == (5 if self.own_steps else 1)
        assert (schedule.rows == 1) == (self.when == "start")
        at = schedule.observations
        x, m = (v[at.series, at.point].to(device, dtype) for v in (seen.x, seen.m))
        attention = None
        if self.attentive:
            attention = evolving(self.every, "dense", self.H, own_feedback=self.own_feedback)
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
        kept = (drawn(len(x), 7) > -0.5).to(x) / 0.7 if self.drops else None
        schedule = replace(schedule, dt=schedule.dt.to(device, dtype), observations=sent(schedule.observations, device),
                           reads=sent(schedule.reads, device))
        outputs = model.scan(schedule, h0, a0, x, m, kept, self.detach)
        torch.autograd.backward(outputs, [drawn(*y.shape) for y in outputs])
        gradients = {"h0": h0.grad, "a0": None if a0 is None else a0.grad}
        gradients |= {k: p.grad for k, p in model.named_parameters()}
        return ({name: y.detach().cpu().double() for name, y in zip(("said", "after", "reads"), outputs, strict=True)},
                {k: d.cpu().double() for k, d in gradients.items() if d is not None})

    def check(self) -> None:
        found, exact = self.run("cuda", torch.float32), self.run("cpu", torch.float64)
        for mine, right, tolerance in zip(found, exact, (1e-5, 1e-4), strict=True):
            assert mine.keys() == right.keys()
            for name, y in right.items():
                assert torch.equal(mine[name].isnan(), y.isnan()), name
                mine[name], y = mine[name].nan_to_num(), y.nan_to_num()
                assert torch.linalg.vector_norm(mine[name] - y) <= tolerance * torch.linalg.vector_norm(y), name


def sent(halts: ScheduledPoints, device: str) -> ScheduledPoints:
    return ScheduledPoints(halts.offsets, *(v.to(device) for v in (halts.row, halts.series, halts.point)))


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each pass on a GPU was the kernels'."""
    found: list[bool] = []
    launched = GRUODEBayes._launched

    def watched(self: GRUODEBayes, *given: Any) -> Any:
        outputs = launched(self, *given)
        found.append(outputs is not None)
        return outputs

    monkeypatch.setattr(GRUODEBayes, "_launched", watched)
    return found


@pytest.mark.parametrize("attentive", [False, True])
def test_the_kernels_are_taken(attentive: bool, taken: list[bool]) -> None:
    model = filled(GRUODEBayes(D, H, 4, 2, step=STEP, attention=evolving() if attentive else None)).to(CUDA)
    objective(model, batch(False).to(CUDA)).backward()  # type: ignore[arg-type]
    with torch.no_grad():
        objective(model, batch(True).to(CUDA))  # type: ignore[arg-type]
    assert taken == [True, True]


@pytest.mark.parametrize("own_feedback", [False, True])
@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize("own_steps", [False, True])
def test_attention_in_kernels_is_its_equations(own_feedback: bool, detach: bool, own_steps: bool,
                                               taken: list[bool]) -> None:
    Pass(5, own_feedback=own_feedback, detach=detach, own_steps=own_steps).check()
    assert taken == [True]


@pytest.mark.parametrize("of", [
    Pass(50, every=10), Pass(50, every=7, own_feedback=True, own_steps=True), Pass(20, every=3, jumps=False),
    Pass(20, every=100, reads=False, drops=True), Pass(5, every=1), Pass(40, every=60, own_steps=True, detach=True)])
def test_attention_in_kernels_of_any_size(of: Pass, taken: list[bool]) -> None:
    of.check()
    assert taken == [True]


@pytest.mark.parametrize("of", [
    Pass(5, when="together"), Pass(5, when="together", own_steps=True, drops=True), Pass(5, when="start"),
    Pass(5, when="start", reads=False), Pass(5, every=3, broken=3), Pass(5, when="together", broken=0)])
@pytest.mark.parametrize("attentive", [False, True])
def test_kernels_where_events_meet_or_are_no_numbers(of: Pass, attentive: bool, taken: list[bool]) -> None:
    replace(of, attentive=attentive).check()
    assert taken == [True]


@pytest.mark.parametrize("which", ["forward", "backward"])
@pytest.mark.parametrize("attentive", [False, True])
def test_a_kernel_that_does_not_run_is_left_to_the_operations(attentive: bool, which: str, taken: list[bool],
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    from acenode.accelerate.gru_ode_bayes import attention_scan_kernels as attend_scan_kernels
    from acenode.accelerate.gru_ode_bayes import kernels as jump_kernels

    monkeypatch.setattr(kernel_check, "_failures", {})
    monkeypatch.setattr(attend_scan_kernels if attentive else jump_kernels, which, FailingKernel())
    lines: list[str] = []
    backend = Backend(log=lines.append)
    for _ in range(2):
        Pass(5, attentive=attentive, backend=backend).check()
    assert taken == [False, False]
    assert lines == ["GPU kernels do not run here: RuntimeError: out of resource: registers",
                     "series are integrated by torch's operations, row by row"]


@pytest.mark.parametrize("frozen", [("attention.g",), ("f", "p", "jump"), ("f",), ("p", "attention.g.new_in")])
def test_what_is_not_trained_has_no_gradient(frozen: tuple[str, ...], taken: list[bool]) -> None:
    Pass(5, frozen=frozen).check()
    assert taken == [True]


def test_what_the_kernels_have_no_room_for_is_left_to_the_operations(taken: list[bool],
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attend_scan_cuda, "SHARE", 0)
    Pass(5).check()
    Pass(70).check()
    assert taken == [False, False]


def test_attention_in_kernels_is_the_same_every_time() -> None:
    first = Pass(50, every=10).run("cuda", torch.float32)
    for _ in range(3):
        for mine, right in zip(Pass(50, every=10).run("cuda", torch.float32), first, strict=True):
            assert all(torch.equal(mine[name], y) for name, y in right.items())


@pytest.mark.parametrize("method", ["node-vae-mask", "seq-vae", "gru-d", "t-lstm", "gru-ode-bayes", "augmented", "ace"])
def test_every_kind_trains(method: str, tmp_path: Path) -> None:
    config = experiments.get("ushcn").configure(method, device="cuda", epochs=1, batch_size=400)
    outcome = execute(create(RunStore(tmp_path), config), tmp_path)
    assert outcome.state == "finished", outcome.error
    assert outcome.metrics["mse"] > 0
