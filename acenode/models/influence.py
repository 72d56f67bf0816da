"""Influence: how strongly one variable's state acts on another's rate, |∂ḣ_i/∂h_j|, whatever attention says."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from acenode.node import ACENODE, NODE, Trajectory
from acenode.ode.runge_kutta import State, VectorField


def influence(field: VectorField, t: Sequence[float] | Tensor, states: State, block: int = 1) -> Tensor:
    """Return the norms of the blocks of the field's Jacobian, |∂ḣ_i/∂h_j|, at states of a trajectory.

    The other blocks of the state, such as attention a, are held constant: this is the direct influence.

    Args:
        field: takes t and the state (h, …) and returns their derivatives.
        t: (F,) times.
        states: h (F, B, V, k) or (F, B, V·k), and the other blocks (F, B, …).
        block: k, how many coordinates of h belong to one variable.

    Returns:
        (F, B, V, V): row i is what drives variable i. Frobenius norms of the k × k blocks.
    """
    times = t.tolist() if isinstance(t, Tensor) else list(t)
    found = [_at(field, time, tuple(b[i] for b in states), block) for i, time in enumerate(times)]
    return torch.stack(found)


def layer_influence(layer: NODE | ACENODE, h0: Tensor, t: Sequence[float]) -> tuple[Trajectory, Tensor]:
    """Return the trajectory of an ODE layer from h0 (B, d), and the influence between its coordinates, (F, B, d, d)."""
    with torch.no_grad():
        path = layer(h0, t)
        field, state = layer.system(h0, False)
    states = (path.h, path.a) if len(state) > 1 and path.a is not None else (path.h,)
    return path, influence(field, t, states)


def _at(field: VectorField, t: float, state: State, block: int) -> Tensor:
    h = state[0].detach().requires_grad_()
    with torch.enable_grad():
        rate = field(torch.full((), t, dtype=h.dtype, device=h.device), (h, *state[1:]))[0]
    B, d = len(h), h[0].numel()
    # Samples do not act on each other, so one product with a vector per coordinate gives that row of all Jacobians.
    seeds = torch.eye(d, dtype=h.dtype, device=h.device).reshape(d, 1, *h.shape[1:]).expand(d, *h.shape)
    rows = torch.autograd.grad(rate, h, seeds, is_grads_batched=True, allow_unused=True)[0]
    jacobian = rows.reshape(d, B, d).transpose(0, 1)  # (B, d, d)
    V = d // block
    return jacobian.reshape(B, V, block, V, block).square().sum((2, 4)).sqrt().detach()
