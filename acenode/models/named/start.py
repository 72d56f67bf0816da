"""How attention between named variables starts: a(0), the same for every series."""

from __future__ import annotations

import torch
from torch import Tensor, nn

STRENGTH = 3.0  # of the correlation in a(0) before training


class InitialAttention(nn.Module):
    """q of named variables: a(0) = B, learned from zero; or a(0) = β |C| + B with the data's correlation C.

    The diagonal of C is left out: every variable reads its own state anyway.

    Args:
        variables: V.
        kind: "correlation" or "learned".
    """

    C: Tensor  # (V, V), absolute correlations of the training data, zero on the diagonal

    def __init__(self, variables: int, kind: str = "correlation") -> None:
        super().__init__()
        self.kind = kind
        self.B = nn.Parameter(torch.zeros(variables, variables))
        if kind == "correlation":
            self.strength = nn.Parameter(torch.tensor(STRENGTH))
            self.register_buffer("C", torch.zeros(variables, variables))

    def initialise(self, generator: torch.Generator) -> None:
        """Start from the correlation alone."""
        self.B.data.zero_()
        if self.kind == "correlation":
            self.strength.data.fill_(STRENGTH)

    def set_correlation(self, correlation: Tensor) -> None:
        """Set C from the correlations of the training data, (V, V)."""
        if self.kind == "correlation":
            self.C.copy_(correlation.abs() * (1 - torch.eye(len(correlation))))

    def forward(self) -> Tensor:
        """Return a(0), (V, V)."""
        return self.strength * self.C + self.B if self.kind == "correlation" else self.B
