"""The same solve through torchdiffeq: adjoint gradients, its other methods, and the reference for our own steps."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from acenode.errors import LOOSEN, RAISE_LIMIT, SolveError
from acenode.ode.native import VectorField, parameters_of
from acenode.ode.options import Solver
from acenode.ode.runge_kutta import Evaluations, State
from acenode.ode.tableaus import TABLEAUS, TSIT5


class _Watched(nn.Module):
    """The field as torchdiffeq sees it: counts, step sizes, and its troubles in our words."""

    def __init__(self, field: VectorField, cost: Evaluations, solver: Solver, adaptive: bool) -> None:
        super().__init__()
        self.field, self.cost, self.solver, self.adaptive = field, cost, solver, adaptive
        self.backward_pass, self.tries, self.limit = False, 0, solver.max_steps
        if solver.method != "scipy_solver":
            self.callback_step = self.callback_step_adjoint = self.watch
        if adaptive:
            self.callback_accept_step, self.callback_reject_step = self.accepted, self.refused

    def forward(self, t: Tensor, y: State) -> State:
        if self.backward_pass:
            self.cost.backward += 1
        else:
            self.cost.forward += 1
        return tuple(self.field(t, y))

    def watch(self, t: Tensor, y: Any, dt: Tensor) -> None:
        self.tries += 1
        time, size = float(t.detach()), float(dt.detach())
        finite = size != 0 and math.isfinite(size) and all(
            bool(torch.isfinite(b).all()) for b in (y if isinstance(y, tuple) else (y,)))
        if not finite or time + size == time:
            raise SolveError("underflow in dt" if finite else "the field gave NaN or infinity", time, size, LOOSEN)
        if not self.adaptive and not self.backward_pass:
            self.cost.step_sizes.append(size)
        if self.tries > self.limit:
            raise SolveError(f"the step limit of {self.solver.max_steps} was reached", time, size,
                             RAISE_LIMIT)

    def accepted(self, t: Tensor, y: Any, dt: Tensor) -> None:
        self.cost.step_sizes.append(float(dt.detach()))

    def refused(self, t: Tensor, y: Any, dt: Tensor) -> None:
        self.cost.rejected += 1


def solve_reference(field: VectorField, y: State, times: list[float], solver: Solver, cost: Evaluations) -> State:
    """The state at the times by torchdiffeq."""
    import torchdiffeq  # imports SciPy, which takes half a second

    register_missing_methods()
    tableau = TABLEAUS.get(solver.method)
    adaptive = tableau is not None and tableau.adaptive
    options: dict[str, Any] = {}
    if not adaptive and solver.method != "scipy_solver":
        if solver.step_size is not None:
            options |= {"step_size": solver.step_size}
        if tableau is not None and len(times) > 2:  # costs an evaluation a time, so not where only the end is asked
            options |= {"interp": "cubic"}
    watched = _Watched(field, cost, solver, adaptive)
    # torchdiffeq works in the state's precision but keeps time in float64; so do we
    t = torch.tensor(times, dtype=torch.float64, device=y[0].device)
    backward = dict(options)
    if adaptive:  # land on the last time, and on every time on the way back, instead of passing it and interpolating
        options["step_t"], backward["step_t"] = t[-1:], t[:-1]
    kwargs: dict[str, Any] = {"rtol": solver.rtol, "atol": solver.atol, "method": solver.method, "options": options}
    try:
        if solver.gradient == "adjoint":
            norm = {"norm": "seminorm"} if solver.seminorm else {}
            states = torchdiffeq.odeint_adjoint(watched, y, t, adjoint_params=parameters_of(field),
                                                adjoint_options={**backward, **norm}, **kwargs)
        else:
            states = torchdiffeq.odeint(watched, y, t, **kwargs)
    except AssertionError as error:
        if not str(error).startswith(("underflow", "non-finite", "max_num_steps")):
            raise  # the field's own
        raise SolveError(f"torchdiffeq stopped ({error})", times[0], 0.0,
                         "loosen rtol and atol, or lower the learning rate") from None
    watched.backward_pass, watched.tries, watched.limit = True, 0, solver.max_steps * (len(times) - 1)
    return tuple(states)


def register_missing_methods() -> None:
    """Add tsit5 to torchdiffeq's registry, unless its version brings one."""
    from torchdiffeq._impl.odeint import SOLVERS
    from torchdiffeq._impl.rk_common import RKAdaptiveStepsizeODESolver, _ButcherTableau

    if "tsit5" in SOLVERS:
        return
    assert TSIT5.error is not None

    def column(values: tuple[float, ...]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64)

    class Tsit5Solver(RKAdaptiveStepsizeODESolver):
        order = TSIT5.order
        tableau = _ButcherTableau(alpha=column(TSIT5.c), beta=[column(row) for row in TSIT5.a],
                                  c_sol=column(TSIT5.b), c_error=column(TSIT5.error or ()))
        mid = column(TSIT5.mid or ())

    SOLVERS["tsit5"] = Tsit5Solver
