"""Every accelerated function has the values and gradients of its plain twin in double precision, on every engine."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from irregular_batches import filled
from named_models import batch_of, build
from problems import FailingKernel
from sporadic_batches import evolving
from torch import Tensor
from triton_on_cpu import triton_on_cpu

from acenode.accelerate import dispatch, layers, named_midpoint, triton_support
from acenode.accelerate.gru_ode_bayes import compiled, cuda
from acenode.accelerate.recurrence import scan
from acenode.backend import ACCELERATED, COMPILED_C, GPU_KERNELS, PLAIN, TORCH_OPERATIONS, Backend
from acenode.bench.workloads import latent_task, ushcn_task
from acenode.data.passes import EncoderRows
from acenode.data.points import Points, TimeSeries, pad
from acenode.data.schedule import ScheduledPoints, make_schedule
from acenode.models.forecast.baselines import TimeLSTM
from acenode.models.forecast.gru_ode_bayes import GRUODEBayes
from acenode.models.image import Conv3x3, TimeConv
from acenode.models.latent import ODERNN, Drift
from acenode.models.layers import GRUCell, LinearLayer, MLPField

native = pytest.mark.skipif(not compiled.KERNEL.allowed(ACCELERATED), reason="no working C compiler")
on_gpu = pytest.mark.cuda
Found = dict[str, Tensor]  # outputs and gradients, in double precision on the CPU


class Problem(NamedTuple):
    """A call of an accelerated function or, if the backend is plain, of its twin."""

    run: Callable[[], dict[str, Tensor]]
    leaves: dict[str, Tensor]  # all that can get a gradient


class Draw:
    """Draws numbers that depend on the order of the calls alone, not on device or precision."""

    def __init__(self, device: str, dtype: torch.dtype) -> None:
        self.generator, self.device, self.dtype = torch.Generator().manual_seed(0), device, dtype

    def __call__(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator).to(self.device, self.dtype)


def linear(backend: Backend, device: str, dtype: torch.dtype) -> Problem:
    draw, layer = Draw(device, dtype), filled(LinearLayer(3, 4, backend=backend)).to(dtype)
    x = draw(5, 1, 3)
    return Problem(lambda: {"y": layer(x)}, {"x": x, **dict(layer.named_parameters())})


def convolution(backend: Backend, device: str, dtype: torch.dtype, *, kind: str, sizes: tuple[int, ...]) -> Problem:
    """With time, of a map with one more channel."""
    (B, inputs, outputs, *size), draw = sizes, Draw(device, dtype)
    layer: Any = (TimeConv(inputs, outputs, backend) if kind == "time" else
                  Conv3x3(inputs, outputs, kind == "bias", backend))
    filled(layer).to(dtype)
    x, t = draw(B, inputs, *size), (torch.tensor(0.7, dtype=dtype),) if kind == "time" else ()
    return Problem(lambda: {"y": layer(x, *t)}, {"x": x, **dict(layer.named_parameters())})


def recurrence(backend: Backend, device: str, dtype: torch.dtype, *, cell: str, B: int, T: int, size: int,
               units: int = 5, maps: int = 3) -> Problem:
    """Points of which the first series reads none and the second all."""
    draw, mask = Draw(device, dtype), torch.rand(B, T, generator=torch.Generator().manual_seed(1)) > 0.4
    mask[:1], mask[1:2] = False, True
    mask = mask.to(device)
    if cell == "ode-rnn":
        f = MLPField(size, size, units, maps)
        model: Any = filled(ODERNN(4, size, units, Drift(f), backend), size=0.2).to(device, dtype)
        order = torch.arange(T, device=device)[:, None].expand(T, B)
        rows = EncoderRows(draw(B, T, 4), order, 0.1 * draw(T, B, 1), mask.t().unsqueeze(-1))

        def encode() -> dict[str, Tensor]:
            of_f = [(x.weight, x.bias) for x in f.layers.linear_layers()]
            fast = dispatch.ode_rnn(backend, rows, model.cell.layers(), of_f)
            return {"states": model.integrate(rows) if fast is None else fast}

        return Problem(encode, dict(model.named_parameters()))
    if cell == "lstm":
        lstm, start = filled(TimeLSTM(2, size, backend), size=size ** -0.5).to(device, dtype), draw(B, 2 * size)
        x, lost = draw(B, T, 4 * size), -torch.sigmoid(draw(B, T, 1))
        weights = {k: p for k, p in lstm.named_parameters() if not k.startswith("input")}
        return Problem(lambda: {"states": lstm.run((x, lost), mask, start)}, {"x": x, "start": start, **weights})
    gru = filled(GRUCell(2, size, backend), size=size ** -0.5).to(device, dtype)
    x, start, given = draw(B, T, 3 * size), draw(B, size), {}
    if cell != "gru":
        given = {"decay": torch.sigmoid(draw(B, T, 1 if "one" in cell else size))}
    leaves = {"x": x, "start": start, **given, "weight": gru.hidden.weight, "bias": gru.hidden.bias}
    return Problem(lambda: {"states": gru.run(x, mask, start, **given)}, leaves)


def sporadic_points(counts: Sequence[int], seed: int, D: int, rows: int, own_steps: bool, when: str,
                    broken: int | None) -> Points:
    rng, found = np.random.default_rng(seed), []
    for n in (min(n, rows) for n in counts):
        t = np.sort(rng.choice(np.arange(rows), n, replace=False)) / 10 + rng.uniform(0, 0.05, n) * own_steps
        t = t[:1] * 0 if when == "start" else t * (np.arange(n) > 0) if when == "together" else t
        m = (rng.random((len(t), D)) < 0.6).astype(np.float32)
        x = rng.normal(size=m.shape).astype(np.float32) * m
        x[(m > 0) & (broken == len(found))] = np.nan
        found.append(TimeSeries(t.astype(np.float32), x, m))
    return pad(found)


def gru_ode_bayes(backend: Backend, device: str, dtype: torch.dtype, *, H: int = 5, D: int = 3, attentive: bool = True,
                  every: int = 4, own_feedback: bool = False, detach: bool = False, own_steps: bool = False,
                  counts: tuple[int, ...] = (11, 0, 5, 20, 1), reads: tuple[int, ...] | None = (3, 0, 9, 1, 6),
                  rows: int = 60, dropout: bool = False, when: str = "any", broken: int | None = None,
                  factor: float = 1.0) -> Problem:
    """Series of which some have no points, each with its own h(0) and a(0).

    Args:
        counts, reads: observations and read points of each series.
        when: together: read points at the observations, the first at 0; start: all points at 0, in one row.
        broken: the index of a series whose observations are NaN.
        factor: of the weights of gates.
    """
    seen = sporadic_points(counts, 1, D, rows, own_steps, when, broken)
    B, points = len(counts), None if reads is None else (reads * 7)[:len(counts)]
    targets = seen if when == "together" else None if points is None else sporadic_points(
        points, 2, D, rows, own_steps, when, broken)
    schedule = make_schedule(seen, targets, 0.1)
    assert schedule.dt.shape[1] == (B if own_steps else 1)
    at = schedule.observations
    x, m = (v[at.series, at.point].to(device, dtype) for v in (seen.x, seen.m))
    attention = evolving(every, "dense", H, own_feedback=own_feedback) if attentive else None
    model: Any = filled(GRUODEBayes(D, H, 7, 4, attention=attention, backend=backend),
                        size=0.8 / H**0.5).to(device, dtype)
    for name, p in model.named_parameters():
        p.data *= factor if name.startswith(("f", "jump.cell")) else 1.0
    draw = Draw(device, dtype)
    state = {"h0": torch.tanh(draw(B, H)), **({"a0": draw(B, H, H)} if attentive else {})}
    mask = (draw(len(x), 7) > -0.5).to(x) / 0.7 if dropout else None

    def sent(points: ScheduledPoints) -> ScheduledPoints:
        return ScheduledPoints(points.offsets, *(v.to(device) for v in (points.row, points.series, points.point)))

    schedule = replace(schedule, dt=schedule.dt.to(device, dtype), observations=sent(schedule.observations),
                       reads=sent(schedule.reads))

    def integrate() -> dict[str, Tensor]:
        out = model._integrate(schedule, state["h0"], state.get("a0"), x, m, 5.0, dropout=mask, detach=detach)
        return {"predicted": out.predicted, "updated": out.updated, "read": out.read}

    return Problem(integrate, state | dict(model.named_parameters()))


TASKS = {"regular": ("forecast", False), "irregular": ("forecast", True), "fill": ("fill", True),
         "classify": ("classify", True)}


def named(backend: Backend, device: str, dtype: torch.dtype, *, kind: str, detach: bool = False,
          **given: Any) -> Problem:
    task, gaps = TASKS[kind]
    model, batch = build(task=task, dtype=dtype, backend=backend, **given), batch_of(task, gaps, range(8), dtype)

    def predict() -> dict[str, Tensor]:
        found = model(batch, detach_attention=detach)
        return {"y": found.logits if found.x is None else found.x * batch.target.m}

    return Problem(predict, dict(model.named_parameters()))


@dataclass(frozen=True)
class Case:
    """One row of the table: a function with its settings, what runs it, and which parts of it are frozen."""

    make: Callable[..., Problem]
    engines: tuple[str, ...]
    settings: tuple[tuple[str, Any], ...] = ()
    frozen: tuple[str, ...] = ()

    def __str__(self) -> str:
        words = [f"{k}={v}" for k, v in self.settings] + [f"without {name}" for name in self.frozen]
        return " ".join([self.make.__name__, *words])

    def of(self, **settings: Any) -> Case:
        return replace(self, settings=tuple((dict(self.settings) | settings).items()))

    def without(self, *frozen: str) -> Case:
        return replace(self, frozen=frozen)

    def solve(self, backend: Backend = ACCELERATED, device: str = "cpu", dtype: torch.dtype = torch.float32, *,
              node: str = "") -> Found:
        """Return outputs and the gradients of a weighted sum of them, which must be computed by such a node."""
        problem = self.make(backend, device, dtype, **dict(self.settings))
        for name, leaf in problem.leaves.items():
            leaf.requires_grad_(not name.startswith(self.frozen or "nothing"))
        outputs, draw = problem.run(), Draw(device, dtype)
        assert any(node in name for name in nodes(outputs.values()))
        sum((y * draw(*y.shape)).sum() for y in outputs.values()).backward()  # type: ignore[union-attr]
        found = outputs | {f"∂{k}": leaf.grad for k, leaf in problem.leaves.items() if leaf.grad is not None}
        return {k: y.detach().cpu().double() for k, y in found.items()}

    def exact(self) -> Found:
        return self.solve(PLAIN, dtype=torch.float64)


def nodes(outputs: Any) -> set[str]:
    """Return the names of the nodes of the autograd graph."""
    waiting, found = [y.grad_fn for y in outputs if y.grad_fn is not None], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found.add(node)
            waiting += [following for following, _ in node.next_functions]
    return {node.name() for node in found}


def assert_close(found: Found, exact: Found, value: float, gradient: float, least: float = 0.0) -> None:
    assert {k for k, y in found.items() if y.any()} <= exact.keys()
    for name, y in exact.items():
        mine, tolerance = found.get(name, torch.zeros_like(y)), gradient if name.startswith("∂") else value
        assert torch.equal(mine.isnan(), y.isnan()), name
        error = torch.linalg.vector_norm((mine - y).nan_to_num())
        assert error <= tolerance * torch.linalg.vector_norm(y.nan_to_num()) + least, name


def same(one: Found, other: Found) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], y) for name, y in other.items())


# device, precision and tolerances of each engine, what it reports, and the autograd node of each function
TORCH, SINGLE = ("cpu", torch.float64, (1e-9, 1e-9, 0.0)), (1e-5, 1e-4, 1e-6)
ENGINES: dict[str, tuple[str, torch.dtype, tuple[float, float, float]]] = {
    "torch": TORCH, "flipped": TORCH, "arm": TORCH, "kernels on a cpu": TORCH, "c": ("cpu", torch.float32, SINGLE),
    "cuda": ("cuda", torch.float32, SINGLE)}
REPORTED = {"c": [COMPILED_C], "cuda": [GPU_KERNELS]}
MARKS = {"c": [native], "cuda": [on_gpu]}
NODES = {"linear": "SmallLinear", "convolution": "FunctionBackward", "recurrence": "Scan", "gru_ode_bayes": "Pass",
         "named": "CompiledSolve"}


@contextmanager
def engine(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[Hashable, str]]:
    """Compute by this implementation; yield the failures of kernels, by kind."""
    monkeypatch.setattr(layers, "flipped", lambda x: name == "flipped")
    monkeypatch.setattr(dispatch, "ARM", name == "arm")
    if name != "kernels on a cpu":
        yield {}
        return
    failures: dict[Hashable, str] = {}
    monkeypatch.setattr(triton_support, "_failures", failures)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(scan, "kernels_support", lambda *_: True)
    monkeypatch.setattr(cuda, "supports", lambda *_: True)
    monkeypatch.setattr(dispatch, "gru_ode_bayes", lambda backend, inputs: cuda.integrate(backend, inputs))
    with triton_on_cpu():
        yield failures


LAYERS, CELLS = ("torch", "flipped"), ("torch", "kernels on a cpu", "cuda")
BAYES = Case(gru_ode_bayes, ("c", "kernels on a cpu", "cuda"))
CONV, CELL, NAMED = Case(convolution, LAYERS), Case(recurrence, CELLS), Case(named, ("c",))
NAMES = ["gru", "gru one decay", "gru full decay", "lstm", "ode-rnn"]
MANY = (5, 0, 9, 1, 6, 12, 3) * 5
CASES = [
    Case(linear, ("arm",)), Case(linear, ("arm",)).without("x"), Case(linear, ("arm",)).without("weight", "bias"),
    *[CONV.of(kind=kind, sizes=sizes) for kind in ("time", "bias", "no bias")
      for sizes in ((5, 3, 4, 6, 6), (2, 4, 2, 3, 5), (1, 2, 2, 1, 1))],
    *[CONV.of(kind=kind, sizes=(3, 2, 2, 4, 4)).without(*parts) for kind in ("time", "bias")
      for parts in (("x",), ("weight",), ("weight", "bias", "time"))],
    *[CELL.of(cell=cell, B=B, T=T, size=size, units=units, maps=maps) for cell in NAMES
      for B, T, size, units, maps in ((5, 9, 4, 17, 4), (1, 1, 3, 5, 3), (3, 6, 1, 4, 2))],
    *[CELL.of(cell=cell, B=3, T=4, size=5).without(part) for cell in NAMES
      for part in ("x", "hidden", "weight", "drift")],
    *[replace(CELL, engines=("cuda",)).of(cell=cell, B=B, T=T, size=size, units=size) for cell in NAMES[:4]
      for B, T, size in ((50, 121, 20), (300, 60, 50), (1, 7, 64), (3, 1, 1))],
    *[replace(CELL, engines=("cuda",)).of(cell="ode-rnn", B=B, T=T, size=size, units=units, maps=maps)
      for B, T, size, units, maps in ((50, 150, 40, 50, 4), (7, 31, 40, 50, 4), (131, 5, 4, 6, 3), (2, 12, 100, 60, 3),
                                      (2, 1, 16, 16, 2))],
    BAYES, BAYES.of(own_feedback=True, own_steps=True), BAYES.of(detach=True, dropout=True),
    BAYES.of(H=7, D=1, every=1), BAYES.of(H=12, every=7, reads=None, dropout=True),
    BAYES.of(H=1, D=2, every=100, own_steps=True), BAYES.of(H=18, counts=(0,) * 5, every=3),
    BAYES.of(counts=(0,) * 5, reads=None),
    BAYES.of(H=7, D=5, every=9, detach=True, own_feedback=True, counts=(9,)),
    *[BAYES.of(counts=(2, 4), reads=(1, 1), rows=rows) for rows in (2, 4, 5, 6, 9)],
    *[BAYES.of(attentive=attentive, when=when, own_steps=own, broken=broken) for attentive in (False, True)
      for when, own, broken in (("together", False, None), ("together", True, 0), ("start", False, None),
                                ("any", False, 3))],
    BAYES.of(attentive=False), BAYES.of(H=7, D=1, attentive=False, own_steps=True, dropout=True, counts=(3,)),
    BAYES.of(H=12, D=5, attentive=False, reads=None), BAYES.of(attentive=False, counts=(0,) * 5),
    *[BAYES.without(*parts) for parts in (("attention.g",), ("f", "p", "jump"), ("f",), ("p", "attention.g.new_in"),
                                          ("f", "p", "jump", "attention.g"))],
    *[BAYES.of(attentive=False).without(*parts) for parts in (("f",), ("p", "jump"))],
    *[replace(BAYES, engines=("c", "cuda")).of(**given) for given in (
        {"H": 7, "D": 1, "counts": MANY}, {"H": 18, "D": 5, "attentive": False, "counts": MANY, "own_steps": True},
        {"H": 50, "every": 10}, {"H": 50, "every": 7, "own_feedback": True, "own_steps": True},
        {"H": 40, "every": 60, "own_steps": True, "detach": True}, {"H": 50, "attentive": False, "dropout": True})],
    *[NAMED.of(kind=kind, attention=attention, detach=detach) for kind in TASKS
      for attention in ("evolving", "fixed", "none") for detach in (False, True)],
    *[NAMED.of(kind="fill", **size) for size in ({"block": 1, "units": 8}, {"block": 5, "units": 33, "embedding": 3})],
    NAMED.of(kind="irregular", gradient="checkpointed"),
    NAMED.of(kind="irregular").without("ode.g"), NAMED.of(kind="irregular").without("ode.f", "ode.q", "enc", "emb"),
]


@pytest.mark.parametrize(("case", "by"), [pytest.param(case, by, marks=MARKS.get(by, ()), id=f"{case} by {by}")
                                          for case in CASES for by in case.engines])
def test_values_and_gradients_are_those_of_the_plain_twin(case: Case, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given, names = dict(case.settings), list[str]()
    if case.make is gru_ode_bayes and by == "kernels on a cpu":
        counts, reads = given.get("counts", (5, 20, 1)), given.get("reads", (3, 0, 9))
        case = case.of(counts=counts[-3:], reads=reads and reads[:3], rows=min(given.get("rows", 60), 12))
    exact, (device, dtype, tolerances) = case.exact(), ENGINES[by]
    with engine(by, monkeypatch) as failures:
        found = case.solve(Backend(on_series_by=names.append), device, dtype, node=NODES[case.make.__name__])
    assert_close(found, exact, *tolerances)
    assert by not in REPORTED or names == REPORTED[by]
    if by == "kernels on a cpu" and case.make is recurrence:  # otherwise torch computed it
        assert list(failures.values()) == [""]


@pytest.mark.parametrize("wrong", ["gru_forward", "gru_backward"])
def test_kernels_with_wrong_numbers_are_not_used(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case, launch = CELL.of(cell="gru full decay", B=3, T=4, size=5), scan._launch

    def broken(name: str, cell: Any, x: Any, tensors: list[Tensor]) -> None:
        launch(name, cell, x, tensors)
        tensors[-1][0] += name == wrong

    monkeypatch.setattr(scan, "_launch", broken)
    with engine("kernels on a cpu", monkeypatch):
        assert_close(case.solve(dtype=torch.float64), case.exact(), 1e-9, 1e-9)
    (reason,) = triton_support._failures.values()
    assert "differ from torch" in reason


# In C -----------------------------------------------------------------------------------------------------------------


@native
@pytest.mark.parametrize("case", [BAYES.of(H=7, every=3, counts=MANY[:19], reads=None),
                                  BAYES.of(H=7, counts=MANY, reads=None, attentive=False),
                                  *[NAMED.of(kind=kind) for kind in TASKS]], ids=str)
def test_nothing_depends_on_what_is_saved_on_threads_or_on_concurrent_passes(case: Case,
                                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    expected, threads = case.solve(), torch.get_num_threads()
    try:
        torch.set_num_threads(3 - min(threads, 2))
        with ThreadPoolExecutor(3) as pool:
            assert all(same(found, expected) for found in pool.map(lambda _: case.solve(), range(3)))
        monkeypatch.setattr(compiled, "SAVE_LIMIT", 0.0)
        monkeypatch.setattr(named_midpoint, "SAVE_LIMIT", 0.0)
        assert same(case.solve(), expected)
    finally:
        torch.set_num_threads(threads)


@native
@pytest.mark.parametrize("case", [BAYES, NAMED.of(kind="fill")], ids=str)
def test_a_second_backward_pass_gives_the_same_gradients(case: Case) -> None:
    problem = case.make(ACCELERATED, "cpu", torch.float32, **dict(case.settings))
    leaves = [leaf.requires_grad_() for leaf in problem.leaves.values()]
    total = sum(y.sum() for y in problem.run().values())
    first, second = (torch.autograd.grad(total, leaves, retain_graph=True, allow_unused=True) for _ in range(2))
    assert all(a is b is None or torch.equal(a, b) for a, b in zip(first, second, strict=True))


@native
def test_large_values_saturate() -> None:
    case = BAYES.of(H=7, attentive=False, factor=40.0)
    found = case.solve()
    assert all(y.isfinite().all() for y in found.values())
    assert torch.allclose(found["updated"], case.solve(PLAIN)["updated"], atol=1e-3)


# On a GPU -------------------------------------------------------------------------------------------------------------

SMALL = [CELL.of(cell="gru", B=3, T=5, size=4), CELL.of(cell="ode-rnn", B=3, T=5, size=4), BAYES,
         BAYES.of(attentive=False)]
WITHOUT = "series are integrated by torch's operations, row by row"


@on_gpu
@pytest.mark.parametrize("case", SMALL, ids=str)
@pytest.mark.parametrize("which", ["forward", "backward"])
def test_a_failing_kernel_is_replaced_by_torch_operations(case: Case, which: str,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    from acenode.accelerate.gru_ode_bayes import kernels
    from acenode.accelerate.recurrence import kernels as of_cells

    monkeypatch.setattr(triton_support, "_failures", {})
    for module, name in ((kernels, which), (of_cells, f"gru_{which}"), (of_cells, f"ode_rnn_{which}")):
        monkeypatch.setattr(module, name, FailingKernel())
    lines = list[str]()
    backend = Backend(log=lines.append)
    for _ in range(2):
        assert_close(case.solve(backend, "cuda"), case.exact(), *SINGLE)
    assert lines == ["GPU kernels do not run here: RuntimeError: out of resource: registers", WITHOUT]


@on_gpu
@pytest.mark.parametrize("case", [
    CELL.of(cell="gru", B=3, T=5, size=65), CELL.of(cell="lstm", B=3, T=5, size=65),
    CELL.of(cell="ode-rnn", B=3, T=5, size=130), BAYES.of(H=70), BAYES.of(H=70, attentive=False), *SMALL[2:]], ids=str)
def test_torch_replaces_kernels_for_wide_layers_or_without_memory(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    names = list[str]()
    if case in SMALL:
        monkeypatch.setattr(cuda, "MEMORY_SHARE", 0)
    assert_close(case.solve(Backend(on_series_by=names.append), "cuda"), case.exact(), *SINGLE)
    assert names == [TORCH_OPERATIONS]


@on_gpu
@pytest.mark.parametrize("case", [*[CELL.of(cell=cell, B=40, T=50, size=50) for cell in NAMES],
                                  *[BAYES.of(H=50, every=10, attentive=attentive) for attentive in (False, True)]],
                         ids=str)
def test_kernels_are_deterministic_in_concurrent_threads(case: Case) -> None:
    first = case.solve(device="cuda")

    def run(_: int) -> Found:
        with torch.cuda.stream(torch.cuda.Stream()):
            return case.solve(device="cuda")

    torch.cuda.synchronize()
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(run, range(4)):
            assert all(torch.equal(found[name], y) for name, y in first.items() if not name.startswith("∂"))
            assert_close(found, first, *SINGLE)


@on_gpu
@pytest.mark.parametrize(("method", "make_task"), [
    ("latent-ode", latent_task), ("gru-d", latent_task), ("gru-d", partial(ushcn_task, dropout=0.0)),
    ("t-lstm", partial(ushcn_task, dropout=0.0))])
def test_loss_and_gradients_at_the_papers_size_agree_with_the_cpu(method: str, make_task: Callable[..., Any]) -> None:
    found = []
    for device in ("cpu", "cuda"):
        made = make_task(method, device)
        loss = made.loss(made.batch(0, 0), detach_attention=False).task
        loss.backward()
        grads = [p.grad.flatten().cpu() for p in made.model.parameters() if p.grad is not None]
        found.append((loss.detach().cpu(), torch.cat(grads)))
    for (a, b), most in zip(zip(*found, strict=True), (1e-4, 1e-2), strict=True):
        assert (a - b).norm() <= most * a.norm()


@on_gpu
def test_a_batch_is_copied_to_the_gpu_unchanged() -> None:
    here, there = (latent_task("latent-ode", device).batch(0, 0) for device in ("cpu", "cuda"))
    assert there.seen is there.target
    pairs = [(here.label, there.label), (here.noise, there.noise)]
    pairs += [(getattr(a, k), getattr(b, k)) for a, b in ((here.seen, there.seen), (here.schedule, there.schedule))
              for k in vars(a)]
    for a, b in pairs:
        assert (b.is_cuda, b.dtype) == (True, a.dtype)
        assert torch.equal(a, b.cpu())
