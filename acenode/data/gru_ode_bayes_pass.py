"""Inputs and outputs of one integration of GRU-ODE-Bayes, as tensors: what the model and its faster versions share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from acenode.data.schedule import StepSchedule

MIN_WINDOW = 1e-12  # a mean over a window divides by at least this much time


class CellWeights(NamedTuple):
    """Weights of f, p and the update of GRU-ODE-Bayes; matrices are (outputs, inputs), as in nn.Linear.

    H is the size of h, Q of p's hidden layer, D the number of variables and P the features of each.
    """

    f_reset: Tensor  # (H, H)
    f_update: Tensor  # (H, H)
    f_new: Tensor  # (H, H)
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


class MatrixGWeights(NamedTuple):
    """Weights of g if it maps h' to the whole matrix; matrices are (outputs, inputs)."""

    reset: Tensor  # (H, H)
    update: Tensor  # (H, H)
    new: Tensor  # (H, H)
    out: Tensor  # (H², H), divided by the horizon
    out_bias: Tensor  # (H²,), divided by the horizon


@dataclass(frozen=True)
class AttentionInputs:
    """Evolving attention that keeps its value at observations."""

    a0: Tensor  # (B, H, H)
    weights: GWeights | MatrixGWeights
    every: int  # Euler steps of a window
    own_feedback: bool  # dh/dt = (1 − z)(u − h) instead of (1 − z)(u − h')
    detach: bool  # treat a as a constant in the gradient


@dataclass(frozen=True)
class PassInputs:
    """B series with N observations in the order of the schedule."""

    schedule: StepSchedule
    h0: Tensor  # (B, H)
    x: Tensor  # (N, D)
    m: Tensor  # (N, D), mask: one where observed
    dropout: Tensor | None  # (N, Q), dropout mask of p's hidden layer before each observation
    weights: CellWeights
    attention: AttentionInputs | None = None


@dataclass(frozen=True)
class PassOutputs:
    """States and predictions along the schedule."""

    predicted: Tensor  # (N, 2D), μ and log σ² before each observation
    updated: Tensor  # (N, H), h after each observation
    read: Tensor  # (R, H), h at the read points
    attention: Tensor | None = None  # (R, H, H), a at the read points, if asked for
