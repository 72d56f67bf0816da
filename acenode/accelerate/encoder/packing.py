"""Pack the gates' weights side by side, so that a row needs few products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

Layers = Sequence[tuple[Tensor, Tensor]]  # weight (outputs, inputs) and bias of each linear layer


class EncoderCellWeights(NamedTuple):
    """Weights of a Gaussian GRU as (inputs, outputs), without the first layers' share of the inputs."""

    gates: Tensor  # (2r, 2u): first layers of update and reset
    gates_out: Tensor  # (2u, 2r): their second layers, block-diagonal
    gates_bias: Tensor  # (2r,)
    new: Tensor  # (2r, u): first layer of the new state
    new_out: Tensor  # (u, 2r)
    new_bias: Tensor  # (2r,)


class PackedCell(NamedTuple):
    projected: Tensor  # (S, B, 3u): what the first layers make of the inputs, bias included
    weights: EncoderCellWeights


def pack(x: Tensor, point: Tensor, update: Layers, reset: Layers, state: Layers) -> PackedCell:
    """Return the packed weights, and the inputs x (B, T, inputs) projected at the point (S, B) of every row."""
    r2, u = len(state[1][0]), len(update[0][0])
    first = torch.cat([net[0][0] for net in (update, reset, state)])  # (3u, 2r + inputs)
    bias = torch.cat([net[0][1] for net in (update, reset, state)])
    projected = F.linear(x, first[:, r2:], bias)  # (B, T, 3u)
    rows = projected[torch.arange(len(x), device=x.device), point]  # (S, B, 3u)
    own = first[:, :r2].T
    return PackedCell(rows, EncoderCellWeights(
        own[:, :2 * u], torch.block_diag(update[1][0], reset[1][0]).T, torch.cat((update[1][1], reset[1][1])),
        own[:, 2 * u:], state[1][0].T, state[1][1]))
