"""ACE-NODE: attentive co-evolving neural ordinary differential equations."""

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
