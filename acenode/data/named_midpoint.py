"""Inputs and results of a solve of named variables by midpoint steps: what the model and its faster version share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from acenode.ode.runge_kutta import Evaluations

Layer = tuple[Tensor, Tensor]  # weight (outputs, inputs) and bias


class MidpointInputs(NamedTuple):
    """A solve of named variables by steps of the midpoint rule. V variables with k numbers each, B series, N steps."""

    h0: Tensor  # (B, V, k)
    a0: Tensor | None  # (V, V), or None without attention
    e: Tensor  # (V, E), the embeddings
    f: Sequence[Layer]  # inputs: h, m with attention, the controls, t, e
    g: Layer | None  # gives [u, w]; inputs: m, t, e. None if attention does not evolve
    rank: int  # numbers of u and of w
    speed: float  # factor of f and, over the rank, of g
    pull: float
    detach: bool  # True if the attention that f reads has no gradient
    control: Tensor | None  # (2N + 1, B, V, ·), at the ends and the middle of steps
    grid: Sequence[float]  # N + 1 times, at which steps end
    slopes: bool  # True if dh/dt is returned too
    save: bool  # False if the backward pass recomputes the hidden layers
    cost: Evaluations  # counts evaluations of the backward pass


class MidpointStates(NamedTuple):
    """States at the ends of steps."""

    h: Tensor  # (N + 1, B, V, k)
    slopes: Tensor | None  # the same shape: dh/dt
    failed: int  # the first step whose end is not finite; N if there is none
