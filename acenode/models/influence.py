"""What acts on what: the influence |∂ḣ_i/∂h_j|, whatever attention says, and what if something were held.

A variable, or an entry of the attention, is held at a value for a stretch of time, and the ODE is solved again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from acenode.attention import Pairwise
from acenode.data.named_batches import NamedBatch, references_at
from acenode.errors import UserError
from acenode.models.named import NamedField, NamedModel, step_ends
from acenode.node import ACENODE, NODE, Trajectory
from acenode.ode.runge_kutta import State, VectorField
from acenode.ode.solve import solve


def influence(field: VectorField, t: Sequence[float], states: State, block: int = 1) -> Tensor:
    """Return the norms of the blocks of the field's Jacobian, |∂ḣ_i/∂h_j|, at states of a trajectory.

    The other blocks of the state, such as attention a, are held constant: this is the direct influence.

    Args:
        field: takes t and the state (h, …) and returns their derivatives.
        t: F times.
        states: h (F, B, V, k) or (F, B, V·k) with k = `block`, and the other blocks (F, B, …).

    Returns:
        (F, B, V, V): row i is what drives variable i. Frobenius norms of the k × k blocks.
    """
    return torch.stack([_at(field, time, tuple(b[i] for b in states), block) for i, time in enumerate(t)])


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


SHORT = 1e-9  # stretches of time below this are none


@dataclass(frozen=True)
class HeldVariable:
    """Hold a variable's prediction at a value, standardised, from `start` to `end`."""

    variable: int
    value: float
    start: float
    end: float


@dataclass(frozen=True)
class HeldAttention:
    """Hold softmax(a) of one pair at a weight between 0 and 1, from `start` to `end`: how much `target`
    attends to `source`.

    Entries of a row that are not held share what is left, so that the row still sums to one.
    """

    target: int
    source: int
    weight: float
    start: float
    end: float


Hold = HeldVariable | HeldAttention


class HeldField(NamedField):
    """The vector field while some variables and entries of the attention are held."""

    def __init__(self, field: NamedField, holds: Sequence[Hold], rate: Tensor) -> None:
        """Make the field; `rate` (B, V, k) is the derivative of a block whose variable is held."""
        super().__init__(field.f, field.g, field.embedding, field.a0, field.pull, field.control)
        self.variables = sorted({h.variable for h in holds if isinstance(h, HeldVariable)})
        self.rows, self.rate = held_rows(holds), rate

    def weights(self, a: Tensor) -> Tensor:
        S = Pairwise.weights(a)
        if not self.rows:
            return S
        S = S.clone()
        for target, held in self.rows.items():
            others = a[..., target, :].clone()
            others[..., list(held)] = -torch.inf
            S[..., target, :] = (1 - sum(held.values())) * torch.softmax(others, -1).nan_to_num(0.0)  # NaN: all held
            S[..., target, list(held)] = torch.tensor(list(held.values())).to(S)
        return S

    def forward(self, t: Tensor, state: State) -> State:
        dh, *rest = super().forward(t, state)
        if self.variables:
            dh = dh.clone()
            dh[:, self.variables] = self.rate[:, self.variables]
        return dh, *rest


def held_rows(holds: Sequence[Hold]) -> dict[int, dict[int, float]]:
    """Return the held weights of each row of softmax(a): {target: {source: weight}}."""
    rows: dict[int, dict[int, float]] = {}
    for held in holds:
        if isinstance(held, HeldAttention):
            rows.setdefault(held.target, {})[held.source] = held.weight
    return rows


@torch.no_grad()
def solve_with(model: NamedModel, batch: NamedBatch, times: Sequence[float], holds: Sequence[Hold] = (),
               breaks: Sequence[float] = ()) -> Tensor:
    """Return predictions (B, T, V), standardised, at increasing times after the start of the span.

    Args:
        model: of values, not of classes.
        batch: the series; its targets do not matter. Its references are those at `times`: (B, T, V).
        times: within the span.
        holds: what is held, each for its own stretch of time.
        breaks: further times at which steps end. Two solves with the same breaks differ by what is held alone.

    Raises:
        UserError: a hold does not fit the model.
    """
    _check(model, batch, holds)
    h0, control = model.start(batch)
    field, state = model.ode.system(h0, control)
    start, end = batch.span
    ends = [*breaks, *(edge for held in holds for edge in (held.start, held.end))]
    grid = sorted({start, end, *times, *(min(max(edge, start), end) for edge in ends)})
    at = references_at(batch.seen, np.array(grid), "forecast" if batch.control is None else "fill").to(h0)
    reference = dict(zip(grid, at.unbind(1), strict=True))  # of every edge, (B, V)
    found: dict[float, Tensor] = {}
    for before, after in pairwise(grid):
        if after - before < SHORT:
            found[after] = state[0]
            continue
        active = [held for held in holds if held.start < after - SHORT and held.end > before + SHORT]
        state = (_moved(model, state[0], reference[before], active), *state[1:])
        rate = (_moved(model, state[0], reference[after], active) - state[0]) / (after - before)
        steps, _, solver = step_ends(before, [after], model.ode.solver)
        solution = solve(HeldField(field, active, rate) if active else field, state, steps, solver,
                         per_sample=not model.training)
        state = tuple(block[-1] for block in solution.states)
        found[after] = state[0]
    h = torch.stack([found[time] for time in times], 1)  # (B, T, V, k)
    x = model.values(h, batch.reference)
    for held in holds:
        if isinstance(held, HeldVariable):
            x[:, [held.start - SHORT < t < held.end + SHORT for t in times], held.variable] = held.value
    return x


def _moved(model: NamedModel, h: Tensor, reference: Tensor, holds: Sequence[Hold]) -> Tensor:
    """Move the blocks of held variables to the nearest state that reads the held value beside this reference."""
    chosen = [held for held in holds if isinstance(held, HeldVariable)]
    if not chosen:
        return h
    h, w = h.clone(), model.read_out.weight[0]  # (k,)
    read = model.values(h, reference)
    for held in chosen:
        missing = held.value - read[:, held.variable]
        h[:, held.variable] += missing.unsqueeze(-1) * w / w.square().sum().clamp(min=1e-12)
    return h


def _check(model: NamedModel, batch: NamedBatch, holds: Sequence[Hold]) -> None:
    V = batch.reference.shape[-1]
    if model.classifier is not None:
        raise UserError("what if needs a model that predicts values: this one tells classes apart")
    for held in holds:
        indices = [held.variable] if isinstance(held, HeldVariable) else [held.target, held.source]
        if not all(0 <= i < V for i in indices):
            raise UserError(f"there is no variable {max(indices)}: they are numbered from 0 to {V - 1}")
        if not held.start < held.end:
            raise UserError("a variable is held from a time to a later one")
        if isinstance(held, HeldAttention) and (model.ode.q is None or not 0 <= held.weight <= 1):
            raise UserError("this model has no attention to hold: hold a variable" if model.ode.q is None
                            else f"attention is between 0 and 1, not {held.weight:g}")
    for first in holds:  # what is held together, is so from the start of one of them
        for row in held_rows([h for h in holds if h.start <= first.start < h.end]).values():
            total = sum(row.values())
            if total > 1 + SHORT or (len(row) == V and total < 1 - SHORT):
                raise UserError(f"weights of one row of the attention that are held together sum to {total:g}: "
                                "a row sums to 1")
