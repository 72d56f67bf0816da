"""`solve` against closed forms and against torchdiffeq, its step sizes, and its errors."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from problems import TIGHT, Linear, relative
from torch import Tensor

from acenode import SolveError, Solver, UserError, solve
from acenode.ode.options import METHODS
from acenode.ode.runge_kutta import take_step
from acenode.ode.stepping import GROW, SAFETY, SHRINK, SharedSteps, first_step_size, next_step_size, trial_step_size
from acenode.ode.tableaus import TABLEAUS

ADAPTIVE = [name for name, tableau in TABLEAUS.items() if tableau.adaptive]
FIXED = [name for name, tableau in TABLEAUS.items() if not tableau.adaptive]
TIMES = [0.0, 0.13, 0.5, 1.0]


def linear(seed: int = 0) -> tuple[Linear, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    field = Linear(3, generator)
    h0, a0 = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64).unbind(0)
    return field, h0, a0


@pytest.mark.parametrize("method", METHODS)
def test_matches_the_matrix_exponential(method: str) -> None:
    field, h0, a0 = linear()
    loose = method in ("fehlberg2", "adaptive_heun")
    tolerances = {"rtol": 1e-6, "atol": 1e-8} if loose else TIGHT
    solver = Solver(method, **tolerances, max_steps=100_000, step_size=None if method in ADAPTIVE else 1e-3,
                    gradient="adjoint" if method == "scipy_solver" else "backprop")
    solution = solve(field, (h0, a0), TIMES, solver)
    error = max(relative(block[i], exact) for i, t in enumerate(TIMES)
                for block, exact in zip(solution.states, field.exact(h0, a0, t), strict=True))
    bound = {"euler": 1e-2, "midpoint": 1e-4, "heun2": 1e-4, "fehlberg2": 1e-4, "adaptive_heun": 1e-4, "dopri8": 1e-6}
    assert error < bound.get(method, 1e-7)


@pytest.mark.parametrize("name", TABLEAUS)
def test_convergence_order(name: str) -> None:
    """Halving the step divides the error by two to the order."""
    tableau = TABLEAUS[name]

    def F(t: float, y: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:  # noqa: N802
        return (y[0] * math.cos(t) + 0.3 * torch.sin(y[0]),)

    def end(n: int) -> torch.Tensor:
        y = (torch.tensor([0.7, -1.2], dtype=torch.float64),)
        for i in range(n):
            y = take_step(F, tableau, i * 2 / n, 2 / n, y).y1
        return y[0]

    coarse, fine, exact = end(8), end(16), end(128)
    order = math.log2(float((coarse - exact).norm() / (fine - exact).norm()))
    assert order > tableau.order - 0.35


@pytest.mark.parametrize("method", ["dopri5", "tsit5", "dopri8", "bosh3"])
def test_takes_the_steps_that_torchdiffeq_takes(method: str) -> None:
    field, h0, a0 = linear()
    native = solve(field, (h0, a0), [0.0, 3.0], Solver(method, 1e-6, 1e-6))
    reference = solve(field, (h0, a0), [0.0, 3.0], Solver(method, 1e-6, 1e-6, engine="reference"))
    ours, theirs = native.evaluations, reference.evaluations
    assert ours.accepted == theirs.accepted
    assert ours.forward == theirs.forward
    assert ours.step_sizes == pytest.approx(theirs.step_sizes, rel=1e-9)
    assert sum(ours.step_sizes) == pytest.approx(3.0)  # both end exactly at the last time
    assert relative(native.states[0][-1], field.exact(h0, a0, 3.0)[0]) < 2e-5
    assert relative(native.states[0][-1], reference.states[0][-1]) < 1e-9


@pytest.mark.parametrize("method", FIXED)
def test_fixed_steps_equal_torchdiffeq(method: str) -> None:
    field, h0, a0 = linear()
    for times, size in ((TIMES, None), ([0.0, 0.35, 1.0], 0.25)):
        ours = solve(field, (h0, a0), times, Solver(method, step_size=size))
        theirs = solve(field, (h0, a0), times, Solver(method, step_size=size, engine="reference"))
        assert relative(ours.states[0], theirs.states[0]) < 1e-12


def test_error_norm_is_the_larger_of_the_blocks() -> None:
    """A large block with a small error must not hide the error of a small block."""
    small, large = torch.full((4,), 3e-6), torch.zeros(10_000)
    ones = (torch.ones(4), torch.ones(10_000))
    assert SharedSteps().norm((small, large), ones, ones, Solver(rtol=1e-6, atol=1e-300)) == pytest.approx(3.0)


@pytest.mark.parametrize("times", [[0.0, 1 - 1e-13, 1.0], [0.0, 1e-15, 1.0], [1e6, 1e6 + 5e-10, 1e6 + 1e-9],
                                   [1.7e9, 1.7e9 + 1e-6, 1.7e9 + 2e-6, 1.7e9 + 3e-6], [1.0, 0.5, 0.5 - 1e-14, 0.0]])
@pytest.mark.parametrize("method", ["dopri5", "bosh3", "adaptive_heun", "rk4"])
@pytest.mark.parametrize("gradient", ["backprop", "checkpointed"])
def test_every_requested_time_gets_a_state(times: list[float], method: str, gradient: str) -> None:
    y = torch.ones(2, dtype=torch.float64, requires_grad=True)
    settings = {"step_size": (max(times) - min(times)) / 4} if method == "rk4" else {"rtol": 1e-6, "atol": 1e-6}
    solver = Solver(method, gradient=gradient, **settings)  # type: ignore[arg-type]
    found = solve(lambda t, s: (-s[0],), (y,), times, solver).states[0]
    exact = torch.exp(times[0] - torch.tensor(times, dtype=torch.float64))
    assert found.shape == (len(times), 2)
    assert torch.allclose(found[:, 0], exact, atol=1e-4)
    found.sum().backward()
    assert torch.allclose(y.grad, exact.sum().expand(2), atol=1e-3)


def test_an_assertion_error_of_the_field_is_raised_unchanged() -> None:
    def strict(t: Tensor, y: State) -> State:
        raise AssertionError("mine")

    with pytest.raises(AssertionError, match="mine"):
        solve(strict, (torch.ones(1),), [0.0, 1.0], Solver(gradient="adjoint"))


def test_requested_times_do_not_change_the_steps() -> None:
    field, h0, a0 = linear()
    few = solve(field, (h0, a0), [0.0, 1.0])
    many = solve(field, (h0, a0), torch.linspace(0, 1, 40))
    assert few.evaluations.forward == many.evaluations.forward
    assert torch.equal(few.states[0][-1], many.states[0][-1])


State = tuple[Tensor, ...]
ONE = (torch.ones(1, dtype=torch.float64),)


def squared(t: Tensor, y: State) -> State:
    """y' = y²: infinite at t = 1 when y(0) = 1."""
    return (y[0] ** 2,)


def nan_later(t: Tensor, y: State) -> State:
    """y' = 1 up to t = 0.5, NaN after."""
    return (torch.where(torch.as_tensor(t > 0.5), torch.nan, 1.0) * torch.ones_like(y[0]),)


@pytest.mark.parametrize("engine", ["auto", "reference"])
@pytest.mark.parametrize(("field", "most", "message"), [
    (nan_later, 10_000, r"NaN or infinity at t=0\.\d.*lower the learning rate"),
    (squared, 5, r"step limit of 5 was reached at t=0\.\d+ .*raise max_steps")])
def test_solve_error_names_time_and_remedy(field: Callable, most: int, message: str, engine: str) -> None:
    solver = Solver(rtol=1e-8, atol=1e-8, engine=engine, max_steps=most)  # type: ignore[arg-type]
    with pytest.raises(SolveError, match=message):
        solve(field, ONE, [0.0, 0.9], solver)


def test_failure_of_the_adjoint_solve_is_a_solve_error() -> None:
    """The forward pass succeeds; the gradient of the field is NaN."""

    class NaNGradient(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, y: torch.Tensor) -> torch.Tensor:
            return y.clone()

        @staticmethod
        def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return grad * torch.nan

    y = torch.ones(1, dtype=torch.float64, requires_grad=True)
    solution = solve(lambda t, s: (NaNGradient.apply(s[0]),), (y,), [0.0, 1.0], Solver(gradient="adjoint"))
    with pytest.raises(SolveError, match=r"at t=.*lower the learning rate"):
        solution.states[0][-1].sum().backward()


@pytest.mark.filterwarnings("ignore:Functional iteration did not converge")
@pytest.mark.parametrize("method", ["explicit_adams", "implicit_adams", "fixed_adams"])
@pytest.mark.parametrize("step", [0.05, 0.1, 0.2, 0.4])
def test_adams_methods_are_stable(method: str, step: float) -> None:
    """y' = -y; torchdiffeq's default order gives 1e25 and more."""
    y = torch.ones(1, dtype=torch.float64)
    end = solve(lambda t, s: (-s[0],), (y,), [0.0, 20.0], Solver(method, step_size=step)).states[0][-1]
    assert float(end) == pytest.approx(math.exp(-20.0), abs=1e-8)


@pytest.mark.parametrize(("returned", "message"), [
    (lambda y: -y[0], r"return \(slope,\), not a tensor"),
    (lambda y: (-y[0],), "gave 1 slopes for a state of 2 blocks"),
    (lambda y: (-y[0], -y[1], -y[0]), "gave 3 slopes for a state of 2 blocks"),
    (lambda y: (-y[0], y[1].sum(1)), r"slope of \(3,\) for block 1 of \(3, 2\)"),
    (lambda y: (-y[0], y[1].double()), "slope of torch.float64 for block 1 of torch.float32"),
])
@pytest.mark.parametrize(("settings", "per_sample"), [
    ({}, False), ({}, True), ({"gradient": "adjoint"}, False), ({"gradient": "checkpointed"}, False)])
def test_a_field_that_returns_something_else_is_refused(returned: Callable[..., Any], message: str, settings: dict,
                                                        per_sample: bool) -> None:
    y = tuple(torch.ones(3, 2, requires_grad=True) for _ in range(2))
    with pytest.raises(UserError, match=message):
        solve(lambda t, s: returned(s), y, [0.0, 1.0], Solver(**settings), per_sample=per_sample)


@pytest.mark.parametrize(("field", "state", "times", "solver", "message"), [
    (nan_later, ONE, [0.0, 1.0], Solver("rk4", step_size=0.1), r"NaN or infinite at t=0\.[45].*smaller step_size"),
    (squared, ONE, [0.0, 1.0], Solver("rk4", step_size=1e-8), "step limit of 1000 steps would be needed .* larger"),
    (squared, (ONE[0] * torch.nan,), [0.0, 1.0], Solver(), "the initial state is NaN"),
    *((squared, state, [0.0, 1.0], Solver(), "the state of a solve is empty: give it at least one block")
      for state in ((), (torch.ones(0, 3),), (torch.ones(2, 3), torch.ones(2, 0)))),
    *((squared, state, [0.0, 1.0], Solver(), "a tuple of floating-point tensors")
      for state in (torch.ones(1), (torch.ones(1, dtype=torch.int64),))),
    *((squared, ONE, times, Solver(), "times") for times in (
        [0.0], [], [0.0, 0.0], [0.0, 1.0, 0.5], [0.0, math.nan], 1.0, torch.zeros(2, 2),
        torch.tensor([0.0, 1.0], requires_grad=True))),
])
def test_what_cannot_be_solved_is_refused(field: Callable, state: Any, times: Any, solver: Solver,
                                          message: str) -> None:
    with pytest.raises((UserError, SolveError), match=message):
        solve(field, state, times, solver)


@pytest.mark.parametrize(("settings", "message"), [
    ({"method": "dopri6"}, "no solver 'dopri6': choose one of dopri5"), ({"gradient": "none"}, "no gradient 'none'"),
    ({"engine": "fast"}, "no engine 'fast'"), ({"rtol": 0.0}, "must be positive"), ({"atol": 0.0}, "must be positive"),
    ({"step_size": -1.0}, "step_size must be positive"), ({"step_size": 0.1}, "dopri5 chooses its own steps"),
    ({"max_steps": 0}, "max_steps must be at least 1"), ({"method": "scipy_solver"}, "use gradient adjoint"),
    ({"method": "implicit_adams", "gradient": "checkpointed"}, "use gradient adjoint")])
def test_wrong_settings_say_what_to_do(settings: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Solver(**settings)


NORMS = [0.0, 1e-16, 1e-6, 1e-5, 0.3, 1.0, 250.0, 1e8]


def double(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_first_step_grows_at_most_a_hundredfold_from_the_trial_step() -> None:
    assert first_step_size(1e-6, 1e-12, 0.0, order=5) == pytest.approx(1e-4)
    assert first_step_size(0.01, 0.0, 0.0, order=5) == pytest.approx(1e-5)  # a constant solution


@pytest.mark.parametrize("order", [2, 3, 5, 8])
def test_next_step_follows_the_error_within_its_bounds(order: int) -> None:
    assert next_step_size(0.1, 0.5, True, order) == pytest.approx(0.1 * max(1.0, SAFETY * 0.5 ** (-1 / order)))
    assert next_step_size(-0.1, 2.0, False, order) == pytest.approx(0.1 * SAFETY * 2.0 ** (-1 / order))
    assert next_step_size(0.1, 0.0, True, order) == pytest.approx(0.1 * GROW)
    assert next_step_size(0.1, 1e30, False, order) == pytest.approx(0.1 * SHRINK)
    assert next_step_size(0.1, math.nan, False, order) == pytest.approx(0.1 * SHRINK)
    assert next_step_size(0.1, 0.99, True, order) == pytest.approx(0.1)  # never smaller after an accepted step


def test_numbers_and_tensors_get_the_same_sizes() -> None:
    pairs = [(x, y) for x in NORMS for y in NORMS]
    x, y = double(*(a for a, _ in pairs)), double(*(b for _, b in pairs))
    h0 = trial_step_size(x, y)
    assert h0.tolist() == pytest.approx([trial_step_size(*pair) for pair in pairs], rel=1e-14)
    first = first_step_size(h0, y, x, 5)
    assert first.tolist() == pytest.approx(
        [first_step_size(h, b, a, 5) for h, (a, b) in zip(h0.tolist(), pairs, strict=True)], rel=1e-14)
    ratios = [*NORMS, math.inf, math.nan]
    sizes = next_step_size(torch.full((len(ratios),), -0.1, dtype=torch.float64), double(*ratios),
                           double(*ratios) <= 1, 5)
    assert sizes.tolist() == pytest.approx([next_step_size(-0.1, r, r <= 1, 5) for r in ratios], rel=1e-7)


def blow_up(t: Tensor, y: State) -> State:
    """y' = y² for one entry, infinite at t = 1/y(0) = 0.25, and y' = -y for the others."""
    grows = torch.zeros_like(y[0])
    grows[y[0] > 3] = 1.0
    return torch.where(grows > 0, y[0] ** 2, -y[0]), -y[1]


START = (torch.tensor([[0.1, 0.2, 0.3], [0.1, 0.2, 4.0]], dtype=torch.float64), torch.ones(2, 5, dtype=torch.float64))
REMEDIES = "loosen rtol and atol; then lower the learning rate; then use a fixed-step solver such as rk4"


@pytest.mark.parametrize("engine", ["auto", "reference"])
@pytest.mark.parametrize("per_sample", [False, True])
def test_underflow_names_time_sample_variable_evaluations_and_remedies(per_sample: bool, engine: str) -> None:
    solver = Solver(rtol=1e-4, atol=1e-4, max_steps=10_000, engine=engine)  # type: ignore[arg-type]
    with pytest.raises(SolveError) as caught:
        solve(blow_up, START, [0.0, 1.0], solver, per_sample=per_sample)
    error = caught.value
    assert error.t == pytest.approx(0.25, abs=1e-3)
    assert (error.sample, error.variable) == (1, "h[2]")
    assert error.evaluations is not None
    assert error.evaluations > 50
    assert str(error).endswith(f", in sample 1, in h[2], after {error.evaluations} evaluations: {REMEDIES}")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.sample, again.variable) == (str(error), 1, "h[2]")


@pytest.mark.parametrize("per_sample", [False, True])
def test_a_nan_names_the_entry_that_became_nan(per_sample: bool) -> None:
    def field(t: Tensor, y: State) -> State:
        bad = torch.zeros_like(y[1])
        bad[1 if len(bad) > 1 else 0, 3] = torch.nan
        return -y[0], torch.where(torch.as_tensor(t > 0.5), bad, 0.0) - y[1]

    with pytest.raises(SolveError, match="NaN or infinity at t=0.*in sample 1, in a.3., after") as caught:
        solve(field, START, [0.0, 1.0], Solver(rtol=1e-3, atol=1e-3), per_sample=per_sample)
    assert caught.value.variable == "a[3]"
