"""GRU-ODE-Bayes in C, by kernels run on a CPU, and on a GPU, compared with the plain model in double precision."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from irregular_batches import filled
from problems import FailingKernel
from sporadic_batches import batch, evolving, several
from torch import Tensor
from triton_on_cpu import triton_on_cpu

from acenode import experiments
from acenode.accelerate import dispatch, triton_support
from acenode.accelerate.gru_ode_bayes import compiled, cuda
from acenode.backend import ACCELERATED, COMPILED_C, GPU_KERNELS, PLAIN, TORCH_OPERATIONS, Backend
from acenode.data.points import Points, TimeSeries, pad
from acenode.data.schedule import ScheduledPoints, SporadicBatch, make_schedule
from acenode.execution.execute import create, execute
from acenode.models.forecast.gru_ode_bayes import GRUODEBayes
from acenode.runs.store import RunStore

native = pytest.mark.skipif(not compiled.KERNEL.allowed(ACCELERATED), reason="no working C compiler")
ENGINES = [pytest.param("c", marks=native), "kernels on a cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
Found = tuple[dict[str, Tensor], dict[str, Tensor]]  # outputs and gradients


@dataclass(frozen=True)
class Pass:
    """One integration of series of which some have no points, each with its own h(0) and a(0)."""

    H: int = 5
    D: int = 3
    attentive: bool = True
    every: int = 4
    own_feedback: bool = False
    detach: bool = False
    own_steps: bool = False
    counts: tuple[int, ...] = (11, 0, 5, 20, 1)  # observations of each series
    reads: tuple[int, ...] | None = (3, 0, 9, 1, 6)
    rows: int = 60
    dropout: bool = False
    frozen: tuple[str, ...] = ()
    when: str = "any"  # together: read points at the observations, the first at 0; start: all points at 0, in one row
    broken: int | None = None  # the index of a series whose observations are NaN
    factor: float = 1.0  # of the weights of gates
    backend: Backend = field(default=ACCELERATED, repr=False)

    def __str__(self) -> str:
        """Name what is not as usual."""
        return " ".join(f"{f.name}={v}" for f in fields(self) if f.repr and (v := getattr(self, f.name)) != f.default)

    def records(self, counts: tuple[int, ...], seed: int) -> Points:
        rng, found = np.random.default_rng(seed), []
        for n in (min(n, self.rows) for n in counts):
            t = np.sort(rng.choice(np.arange(self.rows), n, replace=False)) / 10
            t = t + rng.uniform(0, 0.05, n) * self.own_steps
            t = t[:1] * 0 if self.when == "start" else t * (np.arange(n) > 0) if self.when == "together" else t
            m = (rng.random((len(t), self.D)) < 0.6).astype(np.float32)
            x = rng.normal(size=m.shape).astype(np.float32) * m
            x[(m > 0) & (self.broken == len(found))] = np.nan
            found.append(TimeSeries(t.astype(np.float32), x, m))
        return pad(found)

    def run(self, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Found:
        """Return outputs and gradients, in double precision on the CPU."""
        seen = self.records(self.counts, 1)
        B, reads = len(self.counts), None if self.reads is None else (self.reads * 7)[:len(self.counts)]
        targets = seen if self.when == "together" else None if reads is None else self.records(reads, 2)
        schedule = make_schedule(seen, targets, 0.1)
        assert schedule.dt.shape[1] == (B if self.own_steps else 1)
        at = schedule.observations
        x, m = (v[at.series, at.point].to(device, dtype) for v in (seen.x, seen.m))
        attention = evolving(self.every, "dense", self.H, own_feedback=self.own_feedback) if self.attentive else None
        model = filled(GRUODEBayes(self.D, self.H, 7, 4, attention=attention, backend=self.backend),
                       size=0.8 / self.H**0.5).to(device, dtype)
        assert isinstance(model, GRUODEBayes)
        for name, p in model.named_parameters():
            p.requires_grad_(not name.startswith(self.frozen or "nothing"))
            p.data *= self.factor if name.startswith(("f", "jump.cell")) else 1.0
        generator = torch.Generator().manual_seed(0)

        def drawn(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator).to(device, dtype)

        h0 = torch.tanh(drawn(B, self.H)).requires_grad_()
        a0 = drawn(B, self.H, self.H).requires_grad_() if self.attentive else None
        dropout = (drawn(len(x), 7) > -0.5).to(x) / 0.7 if self.dropout else None
        schedule = replace(schedule, dt=schedule.dt.to(device, dtype), observations=sent(schedule.observations, device),
                           reads=sent(schedule.reads, device))
        out = model._integrate(schedule, h0, a0, x, m, 5.0, dropout=dropout, detach=self.detach)
        outputs = {"predicted": out.predicted, "updated": out.updated, "read": out.read}
        sum((y * drawn(*y.shape)).sum() for y in (h0, *outputs.values())).backward()  # type: ignore[union-attr]
        gradients = {"h0": h0.grad, "a0": None if a0 is None else a0.grad}
        gradients |= {k: p.grad for k, p in model.named_parameters()}
        return ({k: y.detach().cpu().double() for k, y in outputs.items()},
                {k: d.cpu().double() for k, d in gradients.items() if d is not None})

    def check(self, device: str = "cpu", dtype: torch.dtype = torch.float32, scale: float = 1.0) -> None:
        exact = replace(self, backend=PLAIN).run("cpu", torch.float64)
        for mine, right, tolerance in zip(self.run(device, dtype), exact, (1e-5, 1e-4), strict=True):
            assert {k for k, y in mine.items() if y.any()} <= right.keys()
            for name, y in right.items():
                found = mine.get(name, torch.zeros_like(y))
                assert torch.equal(found.isnan(), y.isnan()), name
                found, y = found.nan_to_num(), y.nan_to_num()
                assert torch.linalg.vector_norm(found - y) <= scale * tolerance * torch.linalg.vector_norm(y), name


def sent(points: ScheduledPoints, device: str) -> ScheduledPoints:
    return ScheduledPoints(points.offsets, *(v.to(device) for v in (points.row, points.series, points.point)))


def same(one: Found, other: Found) -> bool:
    return all(torch.equal(a[name], y) for a, b in zip(one, other, strict=True) for name, y in b.items())


@pytest.fixture
def used() -> tuple[Backend, list[str]]:
    """A backend, and what it reports to have integrated the series."""
    names = list[str]()
    return Backend(on_series_by=names.append), names


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str, torch.dtype]]:
    """Return what the backend reports, the device and the type of numbers."""
    if request.param == "c":
        yield COMPILED_C, "cpu", torch.float32
    elif request.param == "cuda":
        yield GPU_KERNELS, "cuda", torch.float32
    else:
        monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
        monkeypatch.setattr(cuda, "supports", lambda *_: True)
        fast = lambda backend, inputs: cuda.integrate(backend, inputs) if backend.accelerated else None  # noqa: E731
        monkeypatch.setattr(dispatch, "gru_ode_bayes", fast)
        with triton_on_cpu():
            yield GPU_KERNELS, "cpu", torch.float64


MANY = (5, 0, 9, 1, 6, 12, 3) * 5
PASSES = [
    Pass(), Pass(own_feedback=True, own_steps=True), Pass(detach=True, dropout=True), Pass(7, 1, every=1),
    Pass(12, every=7, reads=None, dropout=True), Pass(1, 2, every=100, own_steps=True),
    Pass(18, counts=(0,) * 5, every=3),
    Pass(counts=(0,) * 5, reads=None), Pass(7, 5, every=9, detach=True, own_feedback=True, counts=(9,)),
    *[Pass(counts=(2, 4), reads=(1, 1), rows=rows) for rows in (2, 4, 5, 6, 9)],
    *[Pass(attentive=attentive, when=when, own_steps=own, broken=broken) for attentive in (False, True)
      for when, own, broken in (("together", False, None), ("together", True, 0), ("start", False, None),
                                ("any", False, 3))],
    Pass(attentive=False), Pass(7, 1, attentive=False, own_steps=True, dropout=True, counts=(3,)),
    Pass(12, 5, attentive=False, reads=None), Pass(attentive=False, counts=(0,) * 5),
    Pass(frozen=("attention.g",)), Pass(frozen=("f", "p", "jump")), Pass(frozen=("f",)),
    Pass(frozen=("p", "attention.g.new_in")), Pass(frozen=("f", "p", "jump", "attention.g")),
    Pass(attentive=False, frozen=("f",)), Pass(attentive=False, frozen=("p", "jump"))]
LARGE = [Pass(7, 1, counts=MANY), Pass(18, 5, attentive=False, counts=MANY, own_steps=True), Pass(50, every=10),
         Pass(50, every=7, own_feedback=True, own_steps=True), Pass(40, every=60, own_steps=True, detach=True),
         Pass(50, attentive=False, dropout=True)]


@pytest.mark.parametrize("of", PASSES, ids=str)
def test_outputs_and_gradients_are_those_of_the_plain_model(of: Pass, engine: tuple[str, str, torch.dtype],
                                                            used: tuple[Backend, list[str]]) -> None:
    name, device, dtype = engine
    if dtype == torch.float64:  # by kernels that are run on a CPU
        of = replace(of, counts=of.counts[-3:], reads=of.reads and of.reads[:3], rows=min(of.rows, 12))
    replace(of, backend=used[0]).check(device, dtype)
    assert used[1] == [name]


@pytest.mark.parametrize("device", [pytest.param("cpu", marks=native), pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("of", LARGE, ids=str)
def test_outputs_and_gradients_of_large_passes(of: Pass, device: str) -> None:
    of.check(device)


# In C -----------------------------------------------------------------------------------------------------------------


@native
def test_gates_of_attention_are_saved_or_recomputed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both give the same numbers to the last bit, and so does a second backward pass."""
    of = Pass(7, every=3, counts=MANY[:19], reads=None)
    saved = of.run()
    monkeypatch.setattr(compiled, "SAVE_LIMIT", 0.0)
    assert same(of.run(), saved)
    model = filled(GRUODEBayes(3, 5, 4, 2, attention=evolving())).float()
    seen = Points(*(v.float() if v.is_floating_point() else v for v in vars(pad(several())).values()))
    loss = model(SporadicBatch(seen, seen, 5.0)).mean.sum()
    first, second = (torch.autograd.grad(loss, [*model.f.parameters()], retain_graph=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@native
def test_large_values_saturate() -> None:
    of = Pass(7, attentive=False, factor=40.0)
    assert all(torch.isfinite(y).all() for part in of.run() for y in part.values())
    found, exact = of.run()[0]["updated"], replace(of, backend=PLAIN).run()[0]["updated"]
    assert torch.allclose(found, exact, atol=1e-3)


@native
def test_results_do_not_depend_on_the_number_of_threads_or_concurrent_passes() -> None:
    each, threads = [Pass(7, counts=MANY, reads=None, attentive=n > 0) for n in range(2)], torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = [of.run() for of in each]
        torch.set_num_threads(3)
        with ThreadPoolExecutor(4) as pool:
            beside = list(pool.map(Pass.run, each * 3))
    finally:
        torch.set_num_threads(threads)
    assert all(same(one, other) for one, other in zip(alone * 3, beside, strict=True))


@pytest.mark.parametrize("why", ["double precision", "no compiler", "no C allowed", "reference", "matrix"])
def test_the_plain_model_is_used_instead(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = list[str]()
    backend = Backend(why != "reference", why != "no C allowed", on_series_by=names.append)
    if why == "no compiler":
        monkeypatch.setattr(compiled.KERNEL, "load", lambda: None)
    model = filled(GRUODEBayes(3, 5, 4, 2, attention=evolving(g="matrix" if why == "matrix" else "rows"),
                               backend=backend))
    of = batch(several())
    if why == "double precision":
        model = model.double()
    else:
        seen = Points(*(v.float() if v.is_floating_point() else v for v in vars(of.seen).values()))
        of = replace(of, seen=seen, target=seen)
    found = model(of).mean
    assert names == [TORCH_OPERATIONS]
    for module in model.modules():
        if hasattr(module, "backend"):
            module.backend = PLAIN
    assert torch.equal(found, model(of).mean)


# On a GPU -------------------------------------------------------------------------------------------------------------


@pytest.mark.cuda
@pytest.mark.parametrize("which", ["forward", "backward"])
@pytest.mark.parametrize("attentive", [False, True])
def test_torch_replaces_a_kernel_that_does_not_run(attentive: bool, which: str,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    from acenode.accelerate.gru_ode_bayes import kernels

    monkeypatch.setattr(triton_support, "_failures", {})
    monkeypatch.setattr(kernels, which, FailingKernel())
    lines = list[str]()
    backend = Backend(log=lines.append)
    for _ in range(2):
        Pass(attentive=attentive, backend=backend).check("cuda")
    assert lines == ["GPU kernels do not run here: RuntimeError: out of resource: registers",
                     "series are integrated by torch's operations, row by row"]


@pytest.mark.cuda
@pytest.mark.parametrize("attentive", [False, True])
def test_torch_replaces_kernels_without_memory_or_for_wide_layers(attentive: bool, used: tuple[Backend, list[str]],
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    Pass(70, attentive=attentive, backend=used[0]).check("cuda")
    monkeypatch.setattr(cuda, "MEMORY_SHARE", 0)
    Pass(attentive=attentive, backend=used[0]).check("cuda")
    assert used[1] == [TORCH_OPERATIONS]


@pytest.mark.cuda
@pytest.mark.parametrize("attentive", [False, True])
def test_kernels_are_deterministic_in_concurrent_threads(attentive: bool) -> None:
    of = Pass(50, every=10, attentive=attentive)
    first = of.run("cuda")

    def run(_: int) -> Found:
        with torch.cuda.stream(torch.cuda.Stream()):
            return of.run("cuda")

    with ThreadPoolExecutor(4) as pool:
        assert all(same((each[0], {}), (first[0], {})) for each in pool.map(run, range(4)))


@pytest.mark.cuda
@pytest.mark.parametrize("method", ["node-vae-mask", "seq-vae", "gru-d", "t-lstm", "gru-ode-bayes", "augmented", "ace"])
def test_every_method_trains(method: str, tmp_path: Path) -> None:
    config = experiments.get("ushcn").configure(method, device="cuda", epochs=1, batch_size=400)
    outcome = execute(create(RunStore(tmp_path), config), tmp_path)
    assert outcome.state == "finished", outcome.error
    assert outcome.metrics["mse"] > 0
