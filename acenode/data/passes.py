"""Inputs and results of integrations, as tensors: what models and their faster versions share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from acenode.data.schedule import StepSchedule
from acenode.ode.runge_kutta import Evaluations

Layer = tuple[Tensor, Tensor]  # weight (outputs, inputs) and bias
Layers = Sequence[Layer]  # of an MLP with tanh

# ODE-RNN --------------------------------------------------------------------------------------------------------------


class EncoderRows(NamedTuple):
    """What an ODE-RNN reads, row by row: S rows, B series."""

    x: Tensor  # (B, T, inputs) at the points of each series
    point: Tensor  # (S, B), the point of a row
    dt: Tensor  # (S, B, 1), length of the Euler step before it
    read: Tensor  # (S, B, 1), whether the point is read


class GateLayers(NamedTuple):
    """The three networks of a Gaussian GRU, each with one hidden layer."""

    update: Layers
    reset: Layers
    state: Layers


# GRU-ODE-Bayes --------------------------------------------------------------------------------------------------------


class CellWeights(NamedTuple):
    """Weights of f, p and the update of GRU-ODE-Bayes; matrices are (outputs, inputs), as in nn.Linear.

    H is the size of h, Q of p's hidden layer, D the number of variables and P the features of each.
    """

    f_reset: Tensor  # (H, H)
    f_update: Tensor
    f_new: Tensor
    p_hidden: Tensor  # (Q, H)
    p_hidden_bias: Tensor
    p_out: Tensor  # (2D, Q)
    p_out_bias: Tensor
    features: Tensor  # (D, 4, P) of [x, μ, log σ², (x − μ)/σ]
    features_bias: Tensor  # (D, P)
    gru_input: Tensor  # (3H, D·P): reset, update, new
    gru_input_bias: Tensor
    gru_hidden: Tensor  # (3H, H)
    gru_hidden_bias: Tensor


class GWeights(NamedTuple):
    """Weights of g, the continuous GRU on the rows of a; matrices are (outputs, inputs)."""

    gates: Tensor  # (2H, H) of the rows of a: reset, update
    new: Tensor  # (H, H)
    gates_in: Tensor  # (2H, H) of h'
    new_in: Tensor  # (H, H)


class AttentionInputs(NamedTuple):
    """Evolving attention that keeps its value at observations."""

    a0: Tensor  # (B, H, H)
    weights: GWeights
    every: int  # Euler steps of a window
    own_feedback: bool  # dh/dt = (1 − z)(u − h) instead of (1 − z)(u − h')
    detach: bool  # treat a as a constant in the gradient


class PassInputs(NamedTuple):
    """B series with N observations in the order of the schedule."""

    schedule: StepSchedule
    h0: Tensor  # (B, H)
    x: Tensor  # (N, D)
    m: Tensor  # (N, D), mask: one where observed
    dropout: Tensor | None  # (N, Q), dropout mask of p's hidden layer before each observation
    weights: CellWeights
    attention: AttentionInputs | None = None


class PassOutputs(NamedTuple):
    """States and predictions along the schedule."""

    predicted: Tensor  # (N, 2D), μ and log σ² before each observation
    updated: Tensor  # (N, H), h after each observation
    read: Tensor  # (R, H), h at the read points
    attention: Tensor | None = None  # (R, H, H), a at the read points, if asked for


# Named variables ------------------------------------------------------------------------------------------------------

class MidpointInputs(NamedTuple):
    """A solve of named variables by steps of the midpoint rule. V variables with k numbers each, B series, N steps."""

    h0: Tensor  # (B, V, k)
    a0: Tensor | None  # (V, V), or None without attention
    e: Tensor  # (V, E), the embeddings
    f: Layers  # inputs: h, m with attention, the controls, t, e
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
    cost: Evaluations
