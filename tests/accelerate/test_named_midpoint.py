"""Midpoint steps of named variables in C against the plain model, and where the plain model is used."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from named_models import batch_of, build
from torch import Tensor

from acenode.accelerate import named_midpoint as midpoint
from acenode.backend import ACCELERATED, COMPILED_C, PLAIN, Backend
from acenode.data.named_batches import NamedBatch
from acenode.errors import SolveError
from acenode.models.named import NamedModel

native = pytest.mark.skipif(not midpoint.KERNEL.allowed(ACCELERATED), reason="no working C compiler")
TASKS = {"regular": ("forecast", False), "irregular": ("forecast", True), "fill": ("fill", True),
         "classify": ("classify", True)}
SIZES = [{"block": 1, "units": 8}, {"block": 5, "units": 33, "embedding": 3}]


def passes(model: NamedModel, batch: NamedBatch, detach: bool = False) -> dict[str, Tensor]:
    """Return the outputs of a pass, and the gradients of a function of them."""
    model.zero_grad(set_to_none=True)
    found = model(batch, detach_attention=detach)
    out = found.logits if found.x is None else found.x * batch.target.m
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(5)).to(out)
    (out * weights).sum().backward()
    return {"outputs": out.detach(), **{name: p.grad for name, p in model.named_parameters() if p.grad is not None}}


def both(task: str, gaps: bool, **given: object) -> tuple[NamedModel, NamedModel, NamedBatch]:
    """Return the model in C, the same in double precision without, and a batch."""
    fast = build(task=task, dtype=torch.float32, backend=ACCELERATED, **given)
    return fast, build(task=task, **given), batch_of(task, gaps, range(8), torch.float32)


def doubled(batch: NamedBatch) -> NamedBatch:
    def cast(points):
        return replace(points, t=points.t.double(), x=points.x.double(), m=points.m.double())

    return replace(batch, seen=cast(batch.seen), target=cast(batch.target), reference=batch.reference.double(),
                   control=None if batch.control is None else batch.control.double())


def assert_close(found: dict[str, Tensor], exact: dict[str, Tensor]) -> None:
    for name, y in exact.items():
        if name in found:
            error = torch.linalg.vector_norm(found[name].double() - y)
            assert error <= 2e-5 * torch.linalg.vector_norm(y) + 1e-6, name
        else:
            assert not y.any(), name


@native
@pytest.mark.parametrize(("kind", "given", "detach"), [
    *[(kind, {"attention": attention}, detach) for kind in TASKS for attention in ("evolving", "fixed", "none")
      for detach in (False, True)], *[("fill", size, False) for size in SIZES]])
def test_outputs_and_gradients_match_the_plain_model(kind, given, detach):
    fast, exact, batch = both(*TASKS[kind], **given)
    assert_close(passes(fast, batch, detach), passes(exact, doubled(batch), detach))


@native
@pytest.mark.parametrize("kind", TASKS)
def test_nothing_depends_on_what_is_saved_or_on_threads(kind, monkeypatch):
    model, _, batch = both(*TASKS[kind])
    expected = passes(model, batch)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3 - min(threads, 2))
        monkeypatch.setattr(midpoint, "SAVE_LIMIT", 0)
        found = passes(model, batch)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(found[name], y) for name, y in expected.items())


@native
def test_each_phase_computes_the_gradients_that_it_trains():
    model, _, batch = both("forecast", True)
    every = passes(model, batch)
    g = {f"ode.g.{name}" for name, _ in model.ode.g.named_parameters()}
    for trained in (g, {name for name, _ in model.named_parameters()} - g):
        for name, p in model.named_parameters():
            p.requires_grad_(name in trained)
        found = passes(model, batch)
        assert set(found) == {"outputs", *trained}
        assert all(torch.equal(found[name], every[name]) for name in found)


@native
def test_checkpointed_gradients_recompute_the_hidden_layers():
    fast, exact, batch = both("forecast", True, gradient="checkpointed")
    exact.ode.solver = replace(exact.ode.solver, gradient="backprop")
    assert_close(passes(fast, batch), passes(exact, doubled(batch)))
    found = fast(batch)
    found.x.sum().backward()
    assert found.evaluations.backward == found.evaluations.forward == 2 * found.evaluations.accepted + 1


@native
def test_a_state_that_is_not_finite_is_an_error():
    """The first step that fails is named, with and without C."""
    messages = []
    for backend in (ACCELERATED, PLAIN):
        model = build(dtype=torch.float32, backend=backend)
        model.ode.f.layers[-1].bias.data.fill_(3e38)
        with pytest.raises(SolveError) as caught:
            model(batch_of(dtype=torch.float32))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@native
@pytest.mark.parametrize(("given", "dtype", "expected"), [
    ({}, torch.float32, [COMPILED_C]), ({}, torch.float64, []), ({"solver": "rk4"}, torch.float32, []),
    ({"method": "mixed"}, torch.float32, []), ({"gradient": "adjoint", "attention": "none"}, torch.float32, [])])
def test_what_c_does_not_support_is_left_to_the_plain_model(given, dtype, expected):
    names: list[str] = []
    build(**given, dtype=dtype, backend=Backend(on_series_by=names.append))(batch_of(dtype=dtype))
    assert names == expected


@pytest.mark.parametrize("backend", [Backend(compile_c=False), ACCELERATED])
def test_without_a_compiler_the_plain_model_is_used(backend, monkeypatch):
    monkeypatch.setattr(midpoint.KERNEL, "load", lambda: None)
    batch = batch_of(dtype=torch.float32)
    expected = build(dtype=torch.float32)(batch).x
    assert torch.equal(build(dtype=torch.float32, backend=backend)(batch).x, expected)
