"""The weights of GRU-ODE-Bayes, combined into few matrices for the passes in C and in torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from acenode.backend import ACCELERATED, Backend
from acenode.data.gru_ode_bayes_pass import MatrixGWeights, PassInputs
from acenode.data.schedule import StepSchedule

WINDOW = 64  # rows of a window without attention


class PackedWeights(NamedTuple):
    """All as (inputs, outputs). Update gates are negated: σ of their product is o = 1 − z."""

    f_reset: Tensor  # (H, H)
    f_open: Tensor
    f_new: Tensor
    hidden: Tensor  # (H, Q) of p
    hidden_bias: Tensor
    out: Tensor  # (Q, 4D): −log σ²/2, μ, log σ², −μ
    out_bias: Tensor
    features: Tensor  # (4D, D·P) of x, μ, log σ², e = (x − μ)/σ
    features_bias: Tensor
    cell: Tensor  # (D·P + H, 4H): gates r and z, the input's term of n, and h's term of n
    cell_bias: Tensor
    g_gates: Tensor | None = None  # (H, 2H) of the rows of a
    g_new: Tensor | None = None
    g_gates_in: Tensor | None = None  # (H, 2H) of the mean of h'
    g_new_in: Tensor | None = None
    g_out: Tensor | None = None  # (H, H²), if g gives the whole matrix; it then reads no rows
    g_out_bias: Tensor | None = None


@dataclass(frozen=True)
class PassPlan:
    """Inputs of a pass that have no gradient, and its options."""

    schedule: StepSchedule
    x: Tensor  # (N, D), by observation
    m: Tensor  # (N, D)
    dropout: Tensor | None  # (N, Q), dropout mask of p's hidden layer
    every: int = WINDOW  # rows of a window
    own_feedback: bool = False
    detach: bool = False  # a is a constant in the gradient
    save: bool = True  # keep what the backward pass needs
    backend: Backend = ACCELERATED


def plan_of(backend: Backend, inputs: PassInputs) -> PassPlan:
    attention, save = inputs.attention, torch.is_grad_enabled()
    if attention is None:
        return PassPlan(inputs.schedule, inputs.x, inputs.m, inputs.dropout, save=save, backend=backend)
    return PassPlan(inputs.schedule, inputs.x, inputs.m, inputs.dropout, attention.every, attention.own_feedback,
                    attention.detach, save, backend)


def pack(inputs: PassInputs) -> list[Tensor | None]:
    """Return the packed weights, differentiable in the model's, in the order of `PackedWeights`."""
    w, H, D = inputs.weights, inputs.h0.shape[1], inputs.x.shape[1]
    out, bias = w.p_out.t(), w.p_out_bias
    read, own = w.gru_input.t(), w.gru_hidden.t()
    zeros = own.new_zeros
    packed: list[Tensor | None] = [
        w.f_reset.t(), -w.f_update.t(), w.f_new.t(), w.p_hidden.t(), w.p_hidden_bias,
        torch.cat((-0.5 * out[:, D:], out, -out[:, :D]), 1), torch.cat((-0.5 * bias[D:], bias, -bias[:D])),
        block_diagonal(w.features), w.features_bias.flatten(),
        torch.cat((torch.cat((read, zeros(len(read), H)), 1),
                   torch.cat((own[:, :2 * H], zeros(H, H), own[:, 2 * H:]), 1))),
        torch.cat((w.gru_input_bias + F.pad(w.gru_hidden_bias[:2 * H], (0, H)), w.gru_hidden_bias[2 * H:]))]
    if inputs.attention is not None:
        g = inputs.attention.weights
        sign = inputs.h0.new_ones(2 * H, 1)
        sign[H:] = -1
        if isinstance(g, MatrixGWeights):
            gates = torch.cat((g.reset, g.update)) * sign
            return [*packed, None, None, gates.t(), g.new.t(), g.out.t(), g.out_bias]
        packed += [(g.gates * sign).t(), g.new.t(), (g.gates_in * sign).t(), g.new_in.t()]
    return packed


def block_diagonal(features: Tensor) -> Tensor:
    """Return (D, 4, P) as one matrix (4D, D·P), zero between different variables."""
    D, four, P = features.shape
    same = torch.eye(D, dtype=features.dtype, device=features.device).view(1, D, D, 1)
    return (features.transpose(0, 1).unsqueeze(2) * same).reshape(four * D, D * P)
