"""Tensors that the passes over all rows fill: what the backward pass needs, and the gradients that it finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

CACHE_LINE = 32  # numbers


class EncoderActivations(NamedTuple):
    """Values of every row that the backward pass needs, each (S, B, ·)."""

    y_start: Tensor  # (2r) y = [μ, s] before the row
    y_moved: Tensor  # (2r) after the Euler step
    gates_hidden: Tensor  # (2u) hidden layers of update and reset
    gates: Tensor  # (2r) u and g
    new_hidden: Tensor  # (u)
    new: Tensor  # (2r) μ̃ and s̃
    mixed: Tensor  # (2r) the new y before the absolute value
    f_hidden: list[Tensor]  # hidden layers of f


class EncoderGradients(NamedTuple):
    """Gradients of every row with respect to the sums that enter an activation, each (S, B, ·)."""

    projected: Tensor  # (3u)
    gates: Tensor  # (2r)
    new: Tensor  # (2r)
    rate: Tensor  # (r) f's output
    f_hidden: list[Tensor]


def activations_for(projected: Tensor, weights: Sequence[Tensor], zero: bool) -> tuple[EncoderActivations, Tensor]:
    """Allocate the activations, and y after every row (S, B, 2r)."""
    (r2, u2), hidden = weights[0].shape, [W.shape[1] for W in weights[6:-2:2]]
    blocks, f_hidden = _allocate(projected, zero, [r2, r2, u2, r2, u2 // 2, r2, r2], hidden)
    return EncoderActivations._make((*blocks, f_hidden)), projected.new_empty(*projected.shape[:2], r2)


def gradients_for(grad: Tensor, saved: EncoderActivations, zero: bool) -> EncoderGradients:
    """Allocate the gradients."""
    r2, u2, u = saved.y_moved.shape[2], saved.gates_hidden.shape[2], saved.new_hidden.shape[2]
    blocks, f_hidden = _allocate(grad, zero, [u2 + u, r2, r2, r2 // 2], [a.shape[2] for a in saved.f_hidden])
    return EncoderGradients._make((*blocks, f_hidden))


def _allocate(like: Tensor, zero: bool, widths: list[int], hidden: list[int]) -> tuple[list[Tensor], list[Tensor]]:
    """Return parts (S, B, width) of one storage, those of f's hidden layers side by side at its end.

    `zero` is for kernels, which store nothing in a row that reads no point. Each part starts at a cache line.
    """
    S, B, _ = like.shape
    sizes = [-(-S * B * width // CACHE_LINE) * CACHE_LINE for width in widths] + [S * B * width for width in hidden]
    whole = (like.new_zeros if zero else like.new_empty)(sum(sizes))
    parts = [part[:S * B * width].view(S, B, width)
             for part, width in zip(whole.split(sizes), widths + hidden, strict=True)]
    return parts[:len(widths)], parts[len(widths):]
