"""Take steps again in the backward pass where saving all of them would fill the memory."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from acenode.ode.options import Solver
from acenode.ode.runge_kutta import State, VectorField
from acenode.ode.tableaus import TABLEAUS

LIMIT = 4e9  # bytes that autograd may save in a solve
LARGE = 200  # numbers saved for each number of the state in one evaluation, more than any of our fields


def within_memory(solver: Solver, field: VectorField, state: State, steps: int) -> Solver:
    """Return the solver, with gradient "checkpointed" if "backprop" would save more than `LIMIT` bytes.

    Args:
        solver: how to integrate.
        field: the vector field; it is evaluated once if there might be too much to save.
        state: the blocks at the start.
        steps: how many steps will be taken.
    """
    if not (torch.is_grad_enabled() and solver.native and solver.gradient == "backprop"):
        return solver
    evaluations = steps * len(TABLEAUS[solver.method].b)
    if evaluations * LARGE * sum(block.nbytes for block in state) <= LIMIT:
        return solver
    return replace(solver, gradient="checkpointed") if evaluations * saved_bytes(field, state) > LIMIT else solver


def saved_bytes(field: VectorField, state: State) -> int:
    """Return how many bytes autograd saves in one evaluation of the field, its parameters included."""
    saved: dict[int, Tensor] = {}  # by storage; kept, so that no address is used twice

    def pack(x: Tensor) -> Tensor:
        saved[x.untyped_storage().data_ptr()] = x
        return x

    with saved_tensors_hooks(pack, lambda x: x):
        field(torch.zeros((), dtype=state[0].dtype, device=state[0].device), state)
    return sum(x.untyped_storage().nbytes() for x in saved.values())
