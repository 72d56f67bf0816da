"""ACE-NODE: attentive co-evolving neural ordinary differential equations.

The names below are imported when they are first used, so that a command that trains nothing does not wait for torch.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acenode.attention import Correlation, Dense, Elementwise, Pairwise, correlation
    from acenode.errors import SolveError, UserError
    from acenode.node import ACENODE, NODE, AugmentedNODE, Trajectory
    from acenode.solve import Solution, Solver, solve

__all__ = [
    "ACENODE",
    "NODE",
    "AugmentedNODE",
    "Correlation",
    "Dense",
    "Elementwise",
    "Pairwise",
    "Solution",
    "SolveError",
    "Solver",
    "Trajectory",
    "UserError",
    "correlation",
    "solve",
]
__version__ = "0.1.0"

_HOMES = {
    "attention": ("Correlation", "Dense", "Elementwise", "Pairwise", "correlation"),
    "errors": ("SolveError", "UserError"),
    "node": ("ACENODE", "NODE", "AugmentedNODE", "Trajectory"),
    "solve": ("Solution", "Solver"),
}


class _Package(ModuleType):
    def __getattr__(self, name: str) -> Any:
        for home, names in _HOMES.items():
            if name in names:
                return getattr(import_module(f"acenode.{home}"), name)
        raise AttributeError(f"module 'acenode' has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})

    @property
    def solve(self) -> Any:
        """The function, not the module of the same name."""
        return import_module("acenode.solve").solve

    @solve.setter
    def solve(self, module: ModuleType) -> None:
        """Python hands the package its module once that is imported; the function stays what is meant."""


sys.modules[__name__].__class__ = _Package
