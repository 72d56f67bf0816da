"""ACE-NODE: attentive co-evolving neural ordinary differential equations.

The public names are imported on first use, so that `import acenode` and commands that do not train start without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acenode.attention import Correlation, Dense, Elementwise, Pairwise, correlation
    from acenode.errors import SolveError, UserError
    from acenode.node import ACENODE, NODE, AugmentedNODE, Trajectory
    from acenode.ode.solve import Solution, Solver, solve

    LoadedRun: Any  # of acenode.execution.loaded_run, which is above this module: experiments import these names
    load: Any

__all__ = ["ACENODE", "NODE", "AugmentedNODE", "Correlation", "Dense", "Elementwise", "LoadedRun", "Pairwise",
           "Solution", "SolveError", "Solver", "Trajectory", "UserError", "correlation", "load", "solve"]
__version__ = "0.1.0"

_MODULES = {
    "Correlation": "attention", "Dense": "attention", "Elementwise": "attention", "Pairwise": "attention",
    "correlation": "attention", "SolveError": "errors", "UserError": "errors", "ACENODE": "node", "NODE": "node",
    "LoadedRun": "execution.loaded_run", "load": "execution.loaded_run",
    "AugmentedNODE": "node", "Trajectory": "node", "Solution": "ode.solve", "Solver": "ode.solve", "solve": "ode.solve",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'acenode' has no attribute {name!r}")
    return getattr(import_module(f"acenode.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
