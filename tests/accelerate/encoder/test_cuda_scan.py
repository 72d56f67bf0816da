"""The CUDA kernels of the ODE-RNN encoder and of GRU-ODE-Bayes, compared with torch operations in double precision."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
import torch
from problems import FailingKernel, relative
from torch import Tensor

from acenode.accelerate import triton_support
from acenode.accelerate.encoder import cuda as scan_cuda
from acenode.accelerate.encoder.scan import EncoderScan
from acenode.backend import ACCELERATED, Backend
from acenode.bench.workloads import latent_task

pytestmark = pytest.mark.cuda

PAPER = (40, 50, 50, 4)  # r, u, units and layers of f


class Problem:
    """Inputs of a scan of S rows and B series: the first series starts late, the second has no observations."""

    def __init__(self, S: int, B: int, r: int, u: int, h: int, L: int, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)

        def draw(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64).cuda()

        self.dt = 0.1 * draw(S, B, 1)
        self.read = torch.rand(S, B, 1, generator=generator).cuda() > 0.4
        self.dt[:S // 2, 0], self.read[:S // 2, 0] = 0, False
        self.read[:, 1:2] = False
        self.read[-1, 0] = True
        sizes = [r, *[h] * (L - 1), r]
        shapes = [(2 * r, 2 * u), (2 * u, 2 * r), (2 * r,), (2 * r, u), (u, 2 * r), (2 * r,)]
        for a, b in pairwise(sizes):
            shapes += [(a, b), (b,)]
        self.tensors = [draw(S, B, 3 * u), *(0.2 * draw(*shape) for shape in shapes)]
        self.weighing = draw(S, B, 2 * r)

    def run(self, dtype: torch.dtype = torch.float32, backend: Backend = ACCELERATED) -> list[Tensor]:
        given, *weights = (x.to(dtype).requires_grad_() for x in self.tensors)
        y = EncoderScan.apply(backend, given, self.dt.to(dtype), self.read, *weights)
        return [y.detach(), *torch.autograd.grad((y * self.weighing.to(dtype)).sum(), (given, *weights))]

    def supported(self) -> bool:
        given, *weights = (x.float() for x in self.tensors)
        return scan_cuda.supports(ACCELERATED, given, weights)


def close(found: Sequence[Tensor], exact: Sequence[Tensor], outputs: int) -> None:
    for n, (a, b) in enumerate(zip(found, exact, strict=True)):
        assert (a.double() - b).norm() <= (1e-5 if n < outputs else 1e-4) * b.norm(), n


@pytest.mark.parametrize(("S", "B", "sizes"), [
    (150, 50, PAPER), (31, 7, PAPER), (20, 1, PAPER), (5, 131, (4, 5, 6, 3)), (9, 3, (20, 100, 30, 2)),
    (12, 2, (100, 60, 100, 3)), (1, 2, (16, 16, 16, 2))])
def test_the_scan_kernel_equals_torch_operations(S: int, B: int, sizes: tuple[int, int, int, int]) -> None:
    problem = Problem(S, B, *sizes)
    assert problem.supported()
    close(problem.run(), problem.run(torch.float64), 1)


def test_unsupported_sizes_and_devices_use_torch_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(6, 3, 5, 130, 6, 3)
    assert not problem.supported()
    close(problem.run(), problem.run(torch.float64), 1)
    problem = Problem(6, 3, 5, 4, 6, 3)
    monkeypatch.setattr(scan_cuda, "kernels_available", lambda *_: False)
    assert not problem.supported()
    close(problem.run(), problem.run(torch.float64), 1)


@pytest.mark.parametrize("which", ["forward", "backward"])
def test_a_failing_kernel_is_replaced_by_torch_operations(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from acenode.accelerate.encoder import kernels as scan_kernels

    monkeypatch.setattr(triton_support, "_failures", {})
    monkeypatch.setattr(scan_kernels, which, FailingKernel())
    problem, lines = Problem(6, 3, 5, 4, 6, 3), list[str]()
    close(problem.run(backend=Backend(log=lines.append)), problem.run(torch.float64), 1)
    assert lines == ["GPU kernels do not run here: RuntimeError: out of resource: registers",
                     "series are integrated by torch's operations, row by row"]


def test_padding_rows_do_not_change_the_state() -> None:
    problem = Problem(20, 4, *PAPER)
    y = problem.run()[0]
    assert torch.equal(y[:10, 0], torch.zeros_like(y[:10, 0]))
    assert torch.equal(y[:, 1, 40:], torch.zeros_like(y[:, 1, 40:]))  # s changes only at observations


def test_the_scan_is_deterministic() -> None:
    problem = Problem(60, 50, *PAPER)
    first = problem.run()
    assert all(torch.equal(a, b) for _ in range(3) for a, b in zip(first, problem.run(), strict=True))


def at_once(run: Callable[[], list[Tensor]], threads: int = 4) -> list[list[Tensor]]:
    """Call `run` in several threads at once, each on its own CUDA stream; return the result of each."""
    found: list[list[Tensor]] = [[] for _ in range(threads)]
    ready = threading.Barrier(threads)

    def go(n: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            ready.wait()
            for _ in range(5):
                found[n] = run()
            torch.cuda.current_stream().synchronize()

    each = [threading.Thread(target=go, args=(n,)) for n in range(threads)]
    for thread in each:
        thread.start()
    for thread in each:
        thread.join()
    return found


def test_concurrent_threads_and_streams_give_correct_results() -> None:
    problem = Problem(40, 17, 24, 33, 40, 3)  # sizes no other test has compiled
    torch.cuda.synchronize()
    found = at_once(problem.run)
    exact = problem.run(torch.float64)
    for each in found:
        close(each, exact, 1)


def test_loss_and_gradients_at_the_papers_size_agree_with_the_cpu() -> None:
    found = []
    for device in ("cpu", "cuda"):
        made = latent_task(device=device)
        loss = made.loss(made.batch(0, 0), detach_attention=False).task
        loss.backward()
        found.append((loss.detach().cpu(), torch.cat([p.grad.flatten().cpu() for p in made.model.parameters()])))
    assert relative(found[1][0], found[0][0]) < 1e-4
    assert relative(found[1][1], found[0][1]) < 1e-2


def test_a_batch_is_copied_to_the_gpu_unchanged() -> None:
    here, there = latent_task(device="cpu").batch(0, 0), latent_task(device="cuda").batch(0, 0)
    assert there.seen is there.target
    assert here.schedule is not None
    assert there.schedule is not None
    pairs = [(here.label, there.label), (here.noise, there.noise)]
    pairs += [(getattr(a, k), getattr(b, k)) for a, b in ((here.seen, there.seen), (here.schedule, there.schedule))
              for k in vars(a)]
    for a, b in pairs:
        assert b.is_cuda
        assert a.dtype == b.dtype
        assert torch.equal(a, b.cpu())
