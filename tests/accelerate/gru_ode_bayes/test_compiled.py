"""The pass in C against the one in torch operations, and the fallback without a C compiler."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from problems import relative
from torch import Tensor

from acenode.accelerate.gru_ode_bayes import compiled
from acenode.accelerate.gru_ode_bayes.integrate import FusedPass
from acenode.accelerate.gru_ode_bayes.packed import PassPlan
from acenode.backend import ACCELERATED, PLAIN, Backend
from acenode.data.points import TimeSeries, pad
from acenode.data.schedule import make_schedule

UNITS, EACH = 5, 3  # units of p's hidden layer, and features per variable
native = pytest.mark.skipif(not compiled.available(ACCELERATED), reason="no working C compiler")


@dataclass(frozen=True)
class Problem:
    """Series and packed weights; the seed draws the weights of the outputs in the loss."""

    plan: PassPlan
    h0: Tensor
    weights: tuple[Tensor, ...]
    a0: Tensor | None = None
    seed: int = 0

    def double(self) -> Problem:
        plan = replace(self.plan, x=self.plan.x.double(), m=self.plan.m.double(),
                       dropout=None if self.plan.dropout is None else self.plan.dropout.double())
        return replace(self, plan=plan, h0=self.h0.double(), weights=tuple(w.double() for w in self.weights),
                       a0=None if self.a0 is None else self.a0.double())


def problem(B: int, H: int, D: int, *, own_steps: bool = False, dropout: bool = False, jumps: bool = True,
            reads: bool = True, attention: bool = False, every: int = 4, own_feedback: bool = False,
            detach: bool = False, rows: int = 60, seed: int = 0) -> Problem:
    rng = np.random.default_rng([B, H, D, seed])
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator) / shape[0] ** 0.5

    def series(n: int) -> TimeSeries:
        t = np.sort(rng.choice(np.arange(rows), min(n, rows), replace=False)) / 10
        if own_steps:
            t = t + rng.uniform(0, 0.05, n)
        m = rng.random((len(t), D)) < 0.6
        return TimeSeries(t.astype(np.float32), (rng.normal(size=m.shape) * m).astype(np.float32), m.astype(np.float32))

    seen = [series(int(rng.integers(4, 25)) if jumps else 0) for _ in range(B)]
    schedule = make_schedule(pad(seen), pad([series(6) for _ in range(B)]) if reads else None, 0.1)
    assert schedule.dt.shape[1] == (B if own_steps else 1)
    at = schedule.observations
    x, m = (v[at.series, at.point] for v in (pad(seen).x, pad(seen).m))
    mask = (torch.rand(len(x), UNITS, generator=generator) > 0.3).float() / 0.7 if dropout else None
    F = D * EACH
    weights = (drawn(H, H), drawn(H, H), drawn(H, H), drawn(H, UNITS), drawn(UNITS), drawn(UNITS, 4 * D), drawn(4 * D),
               drawn(4 * D, F), drawn(F), drawn(F + H, 4 * H), drawn(4 * H))
    h0 = torch.tanh(drawn(B, H))
    if not attention:
        return Problem(PassPlan(schedule, x, m, mask), h0, weights, seed=seed)
    weights += drawn(H, 2 * H), drawn(H, H), drawn(H, 2 * H), drawn(H, H)
    a0 = torch.rand(B, H, H, generator=generator) * 2 - 1
    return Problem(PassPlan(schedule, x, m, mask, every, own_feedback, detach), h0, weights, a0, seed)


def solved(of: Problem, needed: tuple[int, ...] | None = None) -> tuple[list[Tensor], list[Tensor]]:
    """Return the outputs and the gradients of their weighted sum: of h(0), a(0) and the weights `needed`, or all."""
    h0 = of.h0.clone().requires_grad_()
    a0 = None if of.a0 is None else of.a0.clone().requires_grad_()
    needed = tuple(range(len(of.weights))) if needed is None else needed
    weights = [w.clone().requires_grad_(i in needed) for i, w in enumerate(of.weights)]
    outputs = list(FusedPass.apply(of.plan, h0, a0, *weights))
    generator = torch.Generator().manual_seed(of.seed)
    total = sum((y * torch.randn(y.shape, generator=generator).to(y)).sum() for y in outputs)
    assert isinstance(total, Tensor)
    inputs = [h0, *([] if a0 is None else [a0]), *(weights[i] for i in needed)]
    return [y.detach() for y in outputs], list(torch.autograd.grad(total, inputs))


def assert_close(found: list[Tensor], exact: list[Tensor], tolerance: float) -> None:
    for one, other in zip(found, exact, strict=True):
        assert one.shape == other.shape
        if one.numel() and other.norm() > 0:
            assert relative(one, other) < tolerance
        else:
            assert torch.equal(one, other.to(one))


def in_torch(of: Problem) -> tuple[list[Tensor], list[Tensor]]:
    plan = replace(of.plan, backend=Backend(compile_c=False))
    assert not compiled.available(plan.backend)
    return solved(replace(of, plan=plan))


@native
@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("own_steps", [False, True])
@pytest.mark.parametrize(("B", "H", "D"), [(1, 7, 1), (5, 7, 3), (9, 7, 1), (19, 12, 3), (2, 1, 2), (34, 18, 5)])
def test_outputs_and_gradients_are_those_of_the_torch_pass(B: int, H: int, D: int, own_steps: bool,
                                                         dropout: bool) -> None:
    of = problem(B, H, D, own_steps=own_steps, dropout=dropout)
    assert compiled.supports(of.plan, of.h0, None, of.weights)
    found = solved(of)
    for exact, tolerance in ((in_torch(of), 1e-5), (solved(of.double()), 1e-5)):
        assert_close(found[0], exact[0], tolerance)
        assert_close(found[1], exact[1], 10 * tolerance)


@native
@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize("own_feedback", [False, True])
@pytest.mark.parametrize(("B", "H", "D", "every", "own_steps"), [
    (1, 7, 1, 10, False), (5, 7, 3, 4, True), (9, 6, 1, 1, False), (19, 12, 3, 7, False), (2, 1, 2, 100, True)])
def test_outputs_and_gradients_with_attention(B: int, H: int, D: int, every: int, own_steps: bool, own_feedback: bool,
                            detach: bool) -> None:
    of = problem(B, H, D, own_steps=own_steps, dropout=own_steps, attention=True, every=every,
                 own_feedback=own_feedback, detach=detach)
    assert compiled.supports(of.plan, of.h0, of.a0, of.weights)
    found = solved(of)
    for exact in (in_torch(of), solved(of.double())):
        assert_close(found[0], exact[0], 1e-5)
        assert_close(found[1], exact[1], 1e-4)


@native
@pytest.mark.parametrize("rows", [1, 2, 4, 5, 6, 9])
@pytest.mark.parametrize("B", [8, 17])
def test_schedules_that_end_anywhere_in_a_window(B: int, rows: int) -> None:
    of = problem(B, 7, 3, attention=True, every=4, rows=rows)
    assert of.plan.schedule.rows == rows
    found, exact = solved(of), in_torch(of)
    assert_close(found[0], exact[0], 1e-5)
    assert_close(found[1], exact[1], 1e-4)


@native
@pytest.mark.parametrize("B", [5, 19])
def test_gates_of_attention_are_saved_or_recomputed(B: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both give the same gradient to the last bit, also in a second backward pass."""
    of = problem(B, 7, 3, attention=True, every=3)
    found, saved = [], []
    for room in (2e9, 0.0):
        monkeypatch.setattr(compiled, "SAVE_LIMIT", room)
        weights = [w.clone().requires_grad_() for w in of.weights]
        outputs = FusedPass.apply(of.plan, of.h0, of.a0, *weights)
        saved.append("g_gates" in outputs[0].grad_fn.run.tensors)
        loss = torch.stack([y.square().sum() for y in outputs]).sum()
        found += [torch.autograd.grad(loss, weights, retain_graph=True) for _ in range(2)]
    assert saved == [True, False]
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@native
@pytest.mark.parametrize(("jumps", "reads"), [(False, True), (True, False), (False, False)])
@pytest.mark.parametrize("attention", [False, True])
def test_schedules_without_observations_or_read_points(jumps: bool, reads: bool, attention: bool) -> None:
    of = problem(5, 7, 3, jumps=jumps, reads=reads, attention=attention)
    found, exact = solved(of), in_torch(of)
    assert_close(found[0], exact[0], 1e-5)
    assert_close(found[1], exact[1], 1e-4)


@native
def test_frozen_weights_have_no_gradient_and_change_no_other() -> None:
    of, some = problem(5, 7, 3, attention=True), (1, 2, 6, 9, 13)
    everything = solved(of)[1]
    chosen = solved(of, some)[1]
    assert all(torch.equal(chosen[2 + k], everything[2 + i]) for k, i in enumerate(some))
    assert torch.equal(chosen[0], everything[0])


@native
@pytest.mark.parametrize("attention", [False, True])
def test_a_nan_stays_in_its_series(attention: bool) -> None:
    of = problem(30, 7, 3, attention=attention)
    x = of.plan.x.clone()
    x[of.plan.schedule.observations.series == 4] = float("nan")
    broken = replace(of, plan=replace(of.plan, x=x))
    found, exact = solved(broken), in_torch(broken)
    for one, other in zip(found[0] + found[1], exact[0] + exact[1], strict=True):
        assert torch.equal(one.isnan(), other.isnan())
    assert found[0][1][of.plan.schedule.observations.series == 4].isnan().all()
    assert not found[1][0][torch.arange(30) != 4].isnan().any()


@native
def test_large_values_saturate_as_in_torch() -> None:
    of = problem(5, 7, 3)
    big = replace(of, weights=tuple(w * (40.0 if i in (0, 1, 2, 9) else 1.0) for i, w in enumerate(of.weights)))
    found, exact = solved(big), in_torch(big)
    assert_close(found[0][:1], exact[0][:1], 1e-3)
    assert all(torch.isfinite(v).all() for v in found[0] + found[1])


@native
def test_results_do_not_depend_on_the_number_of_threads_or_concurrent_passes() -> None:
    all_of = [problem(40, 7, 3, attention=seed % 2 > 0, seed=seed) for seed in range(6)]
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = [solved(of) for of in all_of]
        torch.set_num_threads(3)
        with ThreadPoolExecutor(4) as pool:
            beside = list(pool.map(solved, all_of * 2))
    finally:
        torch.set_num_threads(threads)
    for one, other in zip(alone * 2, beside, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one[0] + one[1], other[0] + other[1], strict=True))


@native
def test_other_dtypes_and_devices_are_not_supported() -> None:
    of = problem(5, 7, 3)
    assert not compiled.supports(of.plan, of.h0.double(), None, of.weights)
    assert not compiled.supports(of.plan, of.h0.to("meta"), None, of.weights)


@native
def test_a_plain_backend_does_not_use_c() -> None:
    of = problem(5, 7, 3)
    assert compiled.supports(of.plan, of.h0, None, of.weights)
    plain = replace(of, plan=replace(of.plan, backend=PLAIN))
    assert not compiled.supports(plain.plan, of.h0, None, of.weights)
    found = solved(plain)
    exact = in_torch(of)
    assert all(torch.equal(a, b) for a, b in zip(found[0] + found[1], exact[0] + exact[1], strict=True))


def test_without_a_compiler_the_torch_pass_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = problem(5, 7, 3)
    exact = in_torch(of)
    monkeypatch.setattr(compiled.KERNEL, "load", lambda: None)
    assert not compiled.available(ACCELERATED)
    found = solved(of)
    assert all(torch.equal(a, b) for a, b in zip(found[0] + found[1], exact[0] + exact[1], strict=True))
