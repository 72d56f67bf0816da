"""The settings of a solver, and the solver that a configuration describes."""

from __future__ import annotations

from acenode.config import Config
from acenode.ode.options import Solver

NAMES = ("rtol", "atol", "step_size", "max_steps", "gradient", "seminorm", "engine")
SOLVER = frozenset({"solver", *NAMES})


def solver_of(config: Config) -> Solver:
    given = {k: getattr(config, k) for k in NAMES if getattr(config, k) is not None}
    return Solver(config.solver or "dopri5", **given)
