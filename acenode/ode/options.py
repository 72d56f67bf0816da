"""The options of a solve, and which of them go together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from acenode.errors import UserError
from acenode.ode.tableaus import TABLEAUS

Gradient = Literal["backprop", "checkpointed", "adjoint"]
Engine = Literal["auto", "reference", "graph"]
METHODS: tuple[str, ...] = (*TABLEAUS, "explicit_adams", "implicit_adams", "fixed_adams", "scipy_solver")
GRADIENTS: tuple[str, ...] = get_args(Gradient)
ENGINES: tuple[str, ...] = get_args(Engine)


@dataclass(frozen=True)
class Solver:
    """How to integrate: the method, its accuracy, and how gradients are computed.

    A state between two steps is interpolated by a polynomial of order four at most. A method of higher order that
    takes large steps is therefore less accurate there than at the ends of its steps.

    Args:
        method: one of `acenode.ode.options.METHODS`, such as "dopri5" (adaptive), "rk4" or "euler" (fixed steps).
        rtol: relative tolerance of adaptive methods.
        atol: absolute tolerance of adaptive methods.
        step_size: step size of fixed-step methods. If None, they step from one requested time to the next.
        gradient: "backprop" records every step, "checkpointed" takes the steps again in the backward pass, "adjoint"
            solves the adjoint equation of (h, a) backward in time (Eqs. 7 and 8).
        seminorm: leave the parameters out of the adjoint solve's error norm.
        max_steps: the number of steps, rejected ones included, after which a solve fails.
        engine: "reference" solves everything by torchdiffeq. "auto" and "graph" concern training: "graph" asks for
            CUDA graphs, "auto" uses them where they are possible. A single `solve` treats the two alike.
        per_sample: let an ODE layer in evaluation mode choose adaptive steps for every sample on its own, so that a
            prediction does not depend on the rest of its batch. f and g then get t as (B, 1, ...), which broadcasts
            against their output or their input, whichever they combine it with; if they need a number, such as
            `float(t)`, every sample is solved alone. If False, t is always a scalar.

    Raises:
        UserError: an unknown name, a number out of range, or choices that do not go together.

    Examples:
        >>> from acenode import Solver
        >>> Solver("rk4", step_size=0.1).gradient
        'backprop'
        >>> Solver("dopri5", step_size=0.1)
        Traceback (most recent call last):
        acenode.errors.UserError: dopri5 chooses its own steps: leave step_size out, or use a fixed-step method
    """

    method: str = "dopri5"
    rtol: float = 1e-4
    atol: float = 1e-4
    step_size: float | None = None
    gradient: Gradient = "backprop"
    seminorm: bool = False
    max_steps: int = 1000
    engine: Engine = "auto"
    per_sample: bool = True

    def __post_init__(self) -> None:
        for kind, name, known in (("solver", self.method, METHODS), ("gradient", self.gradient, GRADIENTS),
                                  ("engine", self.engine, ENGINES)):
            if name not in known:
                raise UserError(f"there is no {kind} {name!r}: choose one of {', '.join(known)}")
        if not (self.rtol > 0 and self.atol > 0):
            raise UserError("rtol and atol must be positive")
        if self.step_size is not None and not self.step_size > 0:
            raise UserError("step_size must be positive")
        if self.step_size is not None and self.method in TABLEAUS and TABLEAUS[self.method].adaptive:
            raise UserError(f"{self.method} chooses its own steps: leave step_size out, or use a fixed-step method")
        if self.max_steps < 1:
            raise UserError("max_steps must be at least 1")
        if self.gradient == "checkpointed" and (self.method not in TABLEAUS or self.engine == "reference"):
            raise UserError(f"checkpointed gradients need a native Runge–Kutta method, not {self.method} with "
                            f"engine {self.engine}: use gradient adjoint")
        if self.method == "scipy_solver" and self.gradient == "backprop":
            raise UserError("scipy_solver computes outside torch, so backprop is not possible: use gradient adjoint")

    @property
    def native(self) -> bool:
        """True if a solve takes our own Runge–Kutta steps, False if torchdiffeq does it."""
        return self.engine != "reference" and self.method in TABLEAUS and self.gradient != "adjoint"

    @property
    def steps_per_sample(self) -> bool:
        """True if every sample can have its own steps. Fixed steps do not depend on the batch in the first place."""
        return (self.per_sample and self.engine != "reference" and self.method in TABLEAUS
                and TABLEAUS[self.method].adaptive)
