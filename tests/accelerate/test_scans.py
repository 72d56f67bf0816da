"""Recurrences as one autograd node, on a CPU, by kernels run on a CPU, and on a GPU, compared with the plain loops."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import sporadic_batches
import torch
from irregular_batches import batch, filled, records
from problems import FailingKernel
from torch import Tensor, nn
from triton_on_cpu import triton_on_cpu

from acenode.accelerate import dispatch, triton_support
from acenode.accelerate.recurrence import scan
from acenode.backend import ACCELERATED, GPU_KERNELS, PLAIN, TORCH_OPERATIONS, Backend
from acenode.bench.workloads import latent_task, ushcn_task
from acenode.data.passes import EncoderRows
from acenode.data.points import Points
from acenode.models.forecast.baselines import GRUSimple, RecurrentForecaster, TimeLSTM, gru_d
from acenode.models.latent import ODERNN, Drift
from acenode.models.layers import GRUCell, MissingDataGRU, MLPField, run_recurrence

CELLS = ["gru", "gru one decay", "gru full decay", "lstm"]
Run = Callable[[Backend], Tensor]
on_gpu = pytest.mark.cuda


@dataclass
class Problem:
    """One recurrence over points, of which the first series reads none and the second all."""

    run: Run  # the states after every point
    leaves: list[Tensor]  # all that gets a gradient
    mask: Tensor  # (B, T)
    start: Tensor

    def solve(self, backend: Backend = ACCELERATED) -> list[Tensor]:
        """Return the states and all gradients of a weighted sum of them."""
        states = self.run(backend)
        weighing = torch.linspace(-1, 1, states.numel(), dtype=torch.float64).view_as(states).to(states)
        return [states.detach(), *torch.autograd.grad((states * weighing).sum(), self.leaves,
                                                       allow_unused=True, materialize_grads=True)]


def make(name: str, B: int, T: int, size: int, *, units: int = 5, layers: int = 3, device: str = "cpu",
         dtype: torch.dtype = torch.float64) -> Problem:
    """Draw a problem of B series with T points."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(device, dtype)

    mask = torch.rand(B, T, generator=generator) > 0.4
    mask[:1], mask[1:2] = False, True
    mask = mask.to(device)
    if name.startswith("ode-rnn"):
        f, backwards = MLPField(size, size, units, layers), mask.t().unsqueeze(-1)
        model = filled(ODERNN(4, size, units, Drift(f), PLAIN), size=0.2).to(device, dtype)
        rows = EncoderRows(draw(B, T, 4), torch.arange(T, device=device)[:, None].expand(T, B), 0.1 * draw(T, B, 1),
                           backwards)

        def encode(backend: Backend) -> Tensor:
            of_f = [(x.weight, x.bias) for x in f.layers.linear_layers()]
            fast = dispatch.ode_rnn(backend, rows, model.cell.layers(), of_f)
            return model.integrate(rows) if fast is None else fast

        return Problem(encode, list(model.parameters()), mask, draw(B, 2 * size) * 0)
    if name.startswith("gru"):
        gru, width = GRUCell(2, size, PLAIN).to(device, dtype), size
        decay = None if name == "gru" else torch.sigmoid(draw(B, T, 1 if "one" in name else size)).requires_grad_()
        given = (draw(B, T, 3 * size), torch.ones(B, T, size).to(device, dtype) if decay is None else decay)
        weights = [gru.hidden.weight, gru.hidden.bias]
        step: Callable[..., Tensor] = lambda h, x, decay=1.0: gru(x, decay * h)  # noqa: E731
    else:
        lstm, width = TimeLSTM(2, size, PLAIN).to(device, dtype), 2 * size
        given, step = (draw(B, T, 4 * size), -torch.sigmoid(draw(B, T, 1))), lstm.step
        weights = [lstm.hidden.weight, lstm.hidden.bias, lstm.short.weight, lstm.short.bias]
    for w in weights:
        w.data.copy_((1.0 if w.dim() == 1 else size ** -0.5) * draw(*w.shape))
    given[0].requires_grad_()
    start = draw(B, width).requires_grad_()

    def recur(backend: Backend) -> Tensor:
        rows = tuple(row.expand(-1, -1, size) if name.startswith("gru") and row.shape[2] == 1 else row for row in given)
        fast = dispatch.recurrence(backend, name.split()[0], mask, start, rows, weights)
        return run_recurrence(step, rows, mask, start) if fast is None else fast

    return Problem(recur, [start, *(x for x in given if x.requires_grad), *weights], mask, start)


single = partial(make, device="cuda", dtype=torch.float32)


def assert_close(found: list[Tensor], exact: list[Tensor], most: float = 1e-4) -> None:
    for n, (a, b) in enumerate(zip(found, exact, strict=True)):
        assert (a.double() - b).norm() <= (0.1 * most if n == 0 else most) * b.norm(), n


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the kernels on the CPU."""
    monkeypatch.setattr(triton_support, "_failures", {})
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(scan, "kernels_support", lambda *_: True)
    with triton_on_cpu():
        yield


@pytest.mark.parametrize("name", [*CELLS, "ode-rnn"])
@pytest.mark.parametrize(("B", "T", "size"), [(5, 9, 4), (1, 1, 3), (3, 6, 1)])
def test_states_and_gradients_equal_those_of_the_plain_loop(name: str, B: int, T: int, size: int) -> None:
    problem = make(name, B, T, size)
    assert_close(problem.solve(), problem.solve(PLAIN), 1e-9)


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("name", [*CELLS, "ode-rnn"])
@pytest.mark.parametrize(("B", "T", "size", "units", "layers"), [(3, 4, 5, 17, 4), (2, 3, 1, 4, 2)])
def test_kernels_equal_the_plain_loop(name: str, B: int, T: int, size: int, units: int, layers: int) -> None:
    problem = make(name, B, T, size, units=units, layers=layers)
    found = problem.solve()
    assert "acenode.accelerate.recurrence.kernels" in sys.modules  # the kernels ran
    assert_close(found, problem.solve(PLAIN), 1e-9)
    assert list(triton_support._failures.values()) == [""]


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("wrong", ["gru_forward", "gru_backward"])
def test_kernels_with_wrong_numbers_are_not_used(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, launch = make("gru full decay", 3, 4, 5), scan._launch

    def broken(name: str, cell: Any, x: Any, tensors: list[Tensor]) -> None:
        launch(name, cell, x, tensors)
        tensors[-1][0] += name == wrong

    monkeypatch.setattr(scan, "_launch", broken)
    assert_close(problem.solve(), problem.solve(PLAIN), 1e-9)
    (reason,) = triton_support._failures.values()
    assert "differ from torch" in reason


@pytest.mark.parametrize("name", CELLS)
def test_the_state_stays_where_the_mask_is_false(name: str) -> None:
    problem = make(name, 4, 6, 3)
    states = problem.solve()[0]
    before = torch.cat((problem.start.detach()[:, None], states[:, :-1]), 1)
    assert torch.equal(states[~problem.mask], before[~problem.mask])
    assert not torch.isclose(states[problem.mask], before[problem.mask]).any()


# Models ---------------------------------------------------------------------------------------------------------------

D, H = 3, 4
FORECASTERS: dict[str, Callable[[Backend], nn.Module]] = {
    "gru-simple": lambda backend: RecurrentForecaster(GRUSimple(D, H, backend), D, 5),
    "gru-d": lambda backend: RecurrentForecaster(gru_d(D, H, backend), D, 5),
    "t-lstm": lambda backend: RecurrentForecaster(TimeLSTM(D, H, backend), D, 5)}


def assert_scanned(run: Callable[[Backend], list[Tensor]], count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare with the plain loop, and count the scans."""
    scans, forward = list[str](), scan._forward
    monkeypatch.setattr(scan, "_forward", lambda cell, *rest: (scans.append(cell.name), forward(cell, *rest))[1])
    exact = run(PLAIN)
    assert scans == []
    assert_close(run(ACCELERATED), exact, 1e-9)
    assert len(scans) == count


@pytest.mark.parametrize("impute", [False, True])
def test_gru_d_and_rnn_decay_equal_the_plain_loop(impute: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = sporadic_batches.double(batch(records()).seen)

    def run(backend: Backend) -> list[Tensor]:
        model = filled(MissingDataGRU(D, H, gap=False, impute=impute, decay=True, backend=backend).double())
        h = model(seen)
        (h * torch.linspace(-1, 1, h.numel()).view_as(h)).sum().backward()
        return [h, *(p.grad for p in model.parameters() if p.grad is not None)]

    assert_scanned(run, 1, monkeypatch)


@pytest.mark.parametrize("kind", FORECASTERS)
@pytest.mark.parametrize("trains", [True, False])
def test_forecasts_equal_those_of_the_plain_loop(kind: str, trains: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    given = sporadic_batches.batch(sporadic_batches.several())
    if not trains:
        later = Points(given.seen.t + sporadic_batches.END, *(getattr(given.seen, k) for k in ("x", "m", "valid")))
        given = replace(given, target=later)

    def run(backend: Backend) -> list[Tensor]:
        model = filled(FORECASTERS[kind](backend).double()).train(trains)
        forecast = model(given)
        weighing = torch.linspace(-1, 1, forecast.mean.numel()).view_as(forecast.mean)
        loss = (forecast.mean * weighing + forecast.logvar * weighing.flip(1)).sum()
        (loss if forecast.extra is None else loss + forecast.extra).backward()
        return [forecast.mean, forecast.logvar, *(p.grad for p in model.parameters() if p.grad is not None)]

    assert_scanned(run, 1 if trains else 2, monkeypatch)


# On a GPU -------------------------------------------------------------------------------------------------------------


@on_gpu
@pytest.mark.parametrize(("name", "B", "T", "size", "units", "layers"), [
    *[(name, *sizes, 3) for name in CELLS for sizes in ((50, 121, 20, 20), (300, 60, 50, 50), (1, 7, 64, 33),
                                                        (3, 1, 1, 2), (3, 5, 65, 5))],
    ("ode-rnn", 50, 150, 40, 50, 4), ("ode-rnn", 7, 31, 40, 50, 4), ("ode-rnn", 131, 5, 4, 6, 3),
    ("ode-rnn", 2, 12, 100, 60, 3), ("ode-rnn", 2, 1, 16, 16, 2), ("ode-rnn", 3, 5, 130, 5, 3)])
def test_kernels_on_a_gpu_equal_the_plain_loop(name: str, B: int, T: int, size: int, units: int, layers: int) -> None:
    """Wide states are left to torch's operations."""
    names = list[str]()
    found = single(name, B, T, size, units=units, layers=layers).solve(Backend(on_series_by=names.append))
    assert names == [TORCH_OPERATIONS if size in (65, 130) else GPU_KERNELS]
    assert_close(found, make(name, B, T, size, units=units, layers=layers, device="cuda").solve(PLAIN))


@on_gpu
@pytest.mark.parametrize("name", ["gru", "ode-rnn"])
@pytest.mark.parametrize("which", ["forward", "backward"])
def test_a_failing_kernel_is_replaced_by_torch_operations(name: str, which: str,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    from acenode.accelerate.recurrence import kernels

    monkeypatch.setattr(triton_support, "_failures", {})
    monkeypatch.setattr(kernels, f"{name.replace('-', '_')}_{which}", FailingKernel())
    lines = list[str]()
    found = single(name, 3, 5, 4).solve(Backend(log=lines.append))
    assert_close(found, make(name, 3, 5, 4, device="cuda").solve(PLAIN))
    assert lines == ["GPU kernels do not run here: RuntimeError: out of resource: registers",
                     "series are integrated by torch's operations, row by row"]


@on_gpu
@pytest.mark.parametrize("name", [*CELLS, "ode-rnn"])
def test_kernels_are_deterministic_in_concurrent_threads(name: str) -> None:
    problem = single(name, 40, 50, 50)
    first = problem.solve()

    def run(_: int) -> list[Tensor]:
        with torch.cuda.stream(torch.cuda.Stream()):
            found = problem.solve()
            torch.cuda.current_stream().synchronize()
            return found

    torch.cuda.synchronize()
    with ThreadPoolExecutor(4) as pool:
        for each in pool.map(run, range(4)):
            assert torch.equal(each[0], first[0])
            assert_close(each, [x.double() for x in first])


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
        assert b.is_cuda
        assert a.dtype == b.dtype
        assert torch.equal(a, b.cpu())
