"""Solve by torchdiffeq: adjoint gradients, its multistep and SciPy methods, and everything with engine "reference"."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from acenode.errors import LOOSEN, RAISE_LIMIT, SolveError
from acenode.ode.options import Solver
from acenode.ode.runge_kutta import (
    Evaluations,
    State,
    VectorField,
    check_has_input,
    check_outside_tensors,
    no_second_derivatives,
    parameters_of,
    refuse_second_derivatives,
    slopes_of,
)
from acenode.ode.stepping import in_tolerances, step_failure
from acenode.ode.tableaus import TABLEAUS, TSIT5

ADAMS = ("explicit_adams", "implicit_adams", "fixed_adams")
ADAMS_ORDER = 4  # torchdiffeq's default, 12, diverges on y' = -y unless the steps are tiny


class _MonitoredField(nn.Module):
    """The field as passed to torchdiffeq: counts evaluations and steps through its callbacks.

    Raises:
        SolveError: before a step with a size or state that is not finite, a step that is too small to change t, or a
            step beyond the limit.
    """

    def __init__(self, field: VectorField, cost: Evaluations, solver: Solver, adaptive: bool) -> None:
        super().__init__()
        self.field, self.cost, self.solver, self.adaptive = field, cost, solver, adaptive
        self.in_backward, self.tried, self.limit = False, 0, solver.max_steps
        self.inputs_checked = False
        if solver.method != "scipy_solver":
            self.callback_step = self.callback_step_adjoint = self.check_step
        if adaptive:
            self.callback_accept_step = lambda t, y, dt: cost.step_sizes.append(float(dt.detach()))
            self.callback_reject_step = self.count_rejected

    def forward(self, t: Tensor, y: State) -> State:
        if self.in_backward:
            self.cost.backward += 1
        else:
            self.cost.forward += 1
        slopes = slopes_of(self.field, t, y)
        if self.in_backward and not self.inputs_checked and torch.is_grad_enabled():
            check_outside_tensors("adjoint", slopes, (t, *y, *parameters_of(self.field)))
            self.inputs_checked = True
        return slopes

    def check_step(self, t: Tensor, y: Any, dt: Tensor) -> None:
        self.tried += 1
        time, size = float(t.detach()), float(dt.detach())
        finite = size != 0 and math.isfinite(size) and all(
            bool(torch.isfinite(b).all()) for b in (y if isinstance(y, tuple) else (y,)))
        if not finite or time + size == time:
            raise self._failure(t, y, time, size, not finite)
        if not self.adaptive and not self.in_backward:
            self.cost.step_sizes.append(size)
        if self.tried > self.limit:
            raise SolveError(f"the step limit of {self.solver.max_steps} was reached", time, size, RAISE_LIMIT)

    def _failure(self, t: Tensor, y: Any, time: float, size: float, broken: bool) -> SolveError:
        """Name the entry of the largest slope; in the backward pass, whose state is another, only the time."""
        if self.in_backward or not isinstance(y, tuple):
            reason = "the field gave NaN or infinity" if broken else "underflow in dt"
            return SolveError(reason, time, size, LOOSEN, evaluations=self.cost.forward + self.cost.backward)
        with torch.no_grad():
            slopes = slopes_of(self.field, t, y)
        return step_failure(broken, time, size, in_tolerances(slopes, y, y, self.solver), self.cost)

    def count_rejected(self, t: Tensor, y: Any, dt: Tensor) -> None:
        self.cost.rejected += 1


def solve_torchdiffeq(field: VectorField, y: State, times: list[float], solver: Solver, cost: Evaluations) -> State:
    """Return every block (T, ...) at the times.

    Raises:
        SolveError: torchdiffeq or one of its steps failed.
    """
    import torchdiffeq  # slow to import: it imports SciPy

    register_missing_methods()
    tableau = TABLEAUS.get(solver.method)
    adaptive = tableau is not None and tableau.adaptive
    options: dict[str, Any] = {}
    if not adaptive and solver.method != "scipy_solver":
        if solver.step_size is not None:
            options |= {"step_size": solver.step_size}
        if solver.method in ADAMS:
            options |= {"max_order": ADAMS_ORDER}
        if tableau is not None and len(times) > 2:  # not for the end alone: it costs one evaluation per time
            options |= {"interp": "cubic"}
    monitored = _MonitoredField(field, cost, solver, adaptive)
    # time is float64 whatever the state's precision, as in our own steps
    t = torch.tensor(times, dtype=torch.float64, device=y[0].device)
    backward = dict(options)
    if adaptive:  # end a step at the last time, in the backward pass at every time, instead of interpolating
        options["step_t"], backward["step_t"] = t[-1:], t[:-1]
    kwargs: dict[str, Any] = {"rtol": solver.rtol, "atol": solver.atol, "method": solver.method, "options": options}
    try:
        if solver.gradient == "adjoint":
            check_has_input("adjoint", field, y, t[0], parameters_of(field))
            norm = {"norm": "seminorm"} if solver.seminorm else {}
            states = torchdiffeq.odeint_adjoint(monitored, y, t, adjoint_params=parameters_of(field),
                                                adjoint_options={**backward, **norm}, **kwargs)
            _refuse_second_derivatives(states[0], (*y, *parameters_of(field)))
        else:
            states = torchdiffeq.odeint(monitored, y, t, **kwargs)
    except AssertionError as error:
        if not str(error).startswith(("underflow", "non-finite", "max_num_steps")):
            raise  # raised by the field
        raise SolveError(f"torchdiffeq stopped ({error})", times[0], 0.0,
                         "loosen rtol and atol, or lower the learning rate") from None
    monitored.in_backward, monitored.tried, monitored.limit = True, 0, solver.max_steps * (len(times) - 1)
    return tuple(states)


def _refuse_second_derivatives(state: Tensor, inputs: Sequence[Tensor]) -> None:
    """Replace the gradients that the adjoint solve will compute by ones that raise when they are differentiated."""
    node, reason = state.grad_fn, no_second_derivatives("adjoint")
    while node is not None and "OdeintAdjointMethod" not in node.name():
        node = node.next_functions[0][0]
    if node is not None:
        node.register_hook(lambda found, given: tuple(refuse_second_derivatives(reason, found, inputs)))


def register_missing_methods() -> None:
    from torchdiffeq._impl.odeint import SOLVERS
    from torchdiffeq._impl.rk_common import RKAdaptiveStepsizeODESolver, _ButcherTableau

    if "tsit5" in SOLVERS:
        return
    c, b, error, mid, *a = (torch.tensor(x, dtype=torch.float64)
                            for x in (TSIT5.c, TSIT5.b, TSIT5.error, TSIT5.mid, *TSIT5.a))

    class Tsit5Solver(RKAdaptiveStepsizeODESolver):
        order, tableau = TSIT5.order, _ButcherTableau(alpha=c, beta=a, c_sol=b, c_error=error)

    Tsit5Solver.mid = mid

    SOLVERS["tsit5"] = Tsit5Solver
