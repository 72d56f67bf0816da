"""How to integrate: the choices of a solve and which of them go together."""

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
    """How to integrate. `step_size` is for fixed-step methods; without it they step from one time to the next.

    With `per_sample` an ODE layer in evaluation gives every sample its own adaptive steps, so that a prediction does
    not feel its batch mates; f and g then get t as (B, 1, …), one time a sample. Without it t is always a scalar.

    States between two steps come from a polynomial of fourth order at most, so a method of higher order that takes
    large steps is less accurate there than at its steps' ends.

    `engine` "graph" asks training for CUDA graphs, "auto" takes them where they can be had; a single `solve` takes
    native steps with either.
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
        if self.method not in METHODS:
            raise UserError(f"there is no solver {self.method!r}: choose one of {', '.join(METHODS)}")
        if self.gradient not in GRADIENTS:
            raise UserError(f"there is no gradient {self.gradient!r}: choose one of {', '.join(GRADIENTS)}")
        if self.engine not in ENGINES:
            raise UserError(f"there is no engine {self.engine!r}: choose one of {', '.join(ENGINES)}")
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
            raise UserError("scipy_solver leaves torch, so it cannot be back-propagated: use gradient adjoint")

    @property
    def native(self) -> bool:
        return self.engine != "reference" and self.method in TABLEAUS and self.gradient != "adjoint"

    @property
    def own_steps(self) -> bool:
        """Whether a sample can be given steps of its own: fixed steps do not depend on the batch anyway."""
        return (self.per_sample and self.engine != "reference" and self.method in TABLEAUS
                and TABLEAUS[self.method].adaptive)
