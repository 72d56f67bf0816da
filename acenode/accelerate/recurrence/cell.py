"""The interface between a recurrent cell and the scan that runs it over all rows.

The backward pass of every cell is linear in the gradient d of the state: d before a row is d after it times factors
that the forward pass fixed. So `factors` computes these for all rows at once, the loop over rows only multiplies, and
`gradients` finds the gradients of inputs and weights, again for all rows at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class ScanInputs(NamedTuple):
    """What a cell reads: T rows, B series."""

    mask: Tensor  # (T, B, 1), False where the state stays as it was
    start: Tensor  # (B, ·), the initial state
    rows: Sequence[Tensor | None]  # (T, B, ·) each
    weights: Sequence[Tensor]  # as (outputs, inputs), and biases


class RecurrentCell(Protocol):
    """A cell's passes over all rows in torch operations, and the tensors that its kernels fill instead."""

    name: str  # of its kernels: `name`_forward and `name`_backward
    row_count: int

    def saved_widths(self, x: ScanInputs) -> list[int]:
        """Return the widths of the tensors (T, B, ·) that `forward` fills for the backward pass."""

    def gradient_widths(self, x: ScanInputs) -> list[int]:
        """Return the widths of the tensors (T, B, ·) that `backward` fills."""

    def constants(self, x: ScanInputs) -> dict[str, int | float]:
        """Return the constants that the kernels are compiled with; those of type int are widths."""

    def forward(self, x: ScanInputs, saved: Sequence[Tensor], states: Tensor) -> None:
        """Fill the states after every row, (T, B, ·), and `saved`."""

    def factors(self, x: ScanInputs, before: Tensor, states: Tensor, saved: Sequence[Tensor]) -> list[Tensor]:
        """Return the factors of the backward pass, (T, B, ·) each, from the states before and after every row."""

    def backward(self, grad: Tensor, x: ScanInputs, factors: Sequence[Tensor], found: Sequence[Tensor]) -> Tensor:
        """Fill `found` from the gradient of the states; return the gradient of the initial state."""

    def gradients(self, x: ScanInputs, before: Tensor, saved: Sequence[Tensor],
                  found: Sequence[Tensor]) -> tuple[list[Tensor | None], list[Tensor]]:
        """Return the gradients of the rows and of the weights."""


def product(d: Tensor, a: Tensor) -> Tensor:
    """Return Σ dᵀ a over all rows and series: the gradient of a weight (outputs, inputs)."""
    return d.reshape(-1, d.shape[-1]).t() @ a.reshape(-1, a.shape[-1])


def total(d: Tensor) -> Tensor:
    """Return Σ d over all rows and series: the gradient of a bias."""
    return d.reshape(-1, d.shape[-1]).sum(0)


def sigmoid_slope(y: Tensor) -> Tensor:
    """Return σ' where σ = y."""
    return torch.addcmul(y, y, y, value=-1)


def tanh_slope(y: Tensor) -> Tensor:
    """Return tanh' where tanh = y."""
    return 1 - y.square()
