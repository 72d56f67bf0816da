"""GRU-ODE: the GRU in continuous time (De Brouwer et al., GRU-ODE-Bayes, Section 2.3).

    full       r, z = σ(W x + U h + b), u = tanh(W_u x + U_u (r ⊙ h) + b_u), dh/dt = (1 − z) ⊙ (u − h)
    minimal    z = σ(W x + U h + b), u = tanh(W_u x + U_u (z ⊙ h) + b_u), dh/dt = (1 − z) ⊙ (u − h)

Without imputation x ≡ 0 and there are no biases. h stays within [−1, 1], also under Euler steps of length at most 1.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from acenode.models.forecast.gaussian import Affine


class GRUODE(nn.Module):
    """dh/dt of either cell; `inputs` is the size of x, 0 for none."""

    def __init__(self, size: int, inputs: int = 0, minimal: bool = False) -> None:
        super().__init__()
        self.minimal, self.inputs = minimal, inputs
        self.reset = None if minimal else Affine(size, size, bias=False)
        self.update, self.new = Affine(size, size, bias=False), Affine(size, size, bias=False)
        self.given = Affine(inputs, (2 if minimal else 3) * size, blocks=2 if minimal else 3) if inputs else None

    def forward(self, h: Tensor, x: Tensor | None = None, own: Tensor | None = None) -> Tensor:
        """Return dh/dt, (B, d). The gates read h; the term −h reads `own`, if given."""
        gates = [self.update(h)] if self.reset is None else [self.reset(h), self.update(h)]
        u_x: Tensor | float = 0.0
        if self.given is not None:
            *gates_x, u_x = self.given(x).chunk(len(gates) + 1, -1)
            gates = [gate + gate_x for gate, gate_x in zip(gates, gates_x, strict=True)]
        gates = [torch.sigmoid(gate) for gate in gates]
        r, z = gates[0], gates[-1]  # the same gate in the minimal cell
        u = torch.tanh(self.new(r * h) + u_x)
        return (1 - z) * (u - (h if own is None else own))


class RowGRU(nn.Module):
    """g: every row a_i of a is the state of one full GRU-ODE that reads h', with weights shared by the rows.

    r_i, z_i = σ(W h' + U a_i), u_i = tanh(W_u h' + U_u (r_i ⊙ a_i)), da_i/dt = (1 − z_i) ⊙ (u_i − a_i). So a stays
    within [−1, 1], the range of correlations. An exponential step holds z and u constant and solves the remaining
    equation, which is linear in a_i; it stays within [−1, 1] for any length.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        # U of the rows of a, and W of h'
        self.gates, self.gates_in = (Affine(size, 2 * size, bias=False, blocks=2) for _ in range(2))
        self.new, self.new_in = (Affine(size, size, bias=False) for _ in range(2))

    def forward(self, attended: Tensor, a: Tensor) -> Tensor:
        """Return da/dt, (B, d, d), from h' (B, d) and a."""
        rate, u = self.relax(attended, a)
        return rate * (u - a)

    def step(self, attended: Tensor, a: Tensor, tau: Tensor) -> Tensor:
        """Return a after an exponential step of length τ, (B, 1, 1)."""
        rate, u = self.relax(attended, a)
        return a - torch.expm1(-tau * rate) * (u - a)

    def relax(self, attended: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rate 1 − z and the target u of da/dt = (1 − z) ⊙ (u − a)."""
        r, z = torch.sigmoid(self.gates(a) + self.gates_in(attended).unsqueeze(-2)).chunk(2, -1)
        return 1 - z, torch.tanh(self.new(r * a) + self.new_in(attended).unsqueeze(-2))
