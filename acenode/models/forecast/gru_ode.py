"""GRU-ODE: the GRU in continuous time (De Brouwer et al., GRU-ODE-Bayes, Section 2.3).

    full       r, z = σ(W x + U h + b), u = tanh(W_u x + U_u (r ⊙ h) + b_u), dh/dt = (1 − z) ⊙ (u − h)
    minimal    z = σ(W x + U h + b), u = tanh(W_u x + U_u (z ⊙ h) + b_u), dh/dt = (1 − z) ⊙ (u − h)

Without imputation x ≡ 0 and there are no biases. h stays within [−1, 1], also under Euler steps of length at most 1.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from acenode.data.gru_ode_bayes_pass import GWeights, MatrixGWeights
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
        self.size = size
        # U of the rows of a, and W of h'
        self.gates, self.gates_in = (Affine(size, 2 * size, bias=False, blocks=2) for _ in range(2))
        self.new, self.new_in = (Affine(size, size, bias=False) for _ in range(2))

    def forward(self, attended: Tensor, a: Tensor) -> Tensor:
        """Return da/dt, (B, d, d), from h' (B, d) and a."""
        rate, u = self.relax(attended, a)
        return rate * (u - a)

    def step(self, attended: Tensor, a: Tensor, tau: Tensor, horizon: float = 1.0) -> Tensor:
        """Return a after an exponential step of length τ, (B, 1, 1). `horizon` is unused; see `MatrixGRU`."""
        rate, u = self.relax(attended, a)
        return a - torch.expm1(-tau * rate) * (u - a)

    def relax(self, attended: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rate 1 − z and the target u of da/dt = (1 − z) ⊙ (u − a)."""
        r, z = torch.sigmoid(self.gates(a) + self.gates_in(attended).unsqueeze(-2)).chunk(2, -1)
        return 1 - z, torch.tanh(self.new(r * a) + self.new_in(attended).unsqueeze(-2))

    def weights(self, horizon: float) -> GWeights:
        """Return the weights as tensors for faster versions."""
        return GWeights(self.gates.weight, self.new.weight, self.gates_in.weight, self.new_in.weight)


class MatrixGRU(nn.Module):
    """g as a function of h' alone: a full GRU-ODE on h', whose derivative a linear layer maps to all d² entries of a.

    r, z = σ(U h'), u = tanh(U_u (r ⊙ h')), v = (1 − z) ⊙ (u − h'), da/dt = (W v + b)/T with the horizon T. Every entry
    of a has weights of its own, so the rows stay different: 3d² + d³ + d² parameters, 135,000 at d = 50. a is an
    integral, without bounds. W could absorb T; dividing by it makes a change by about W v between 0 and T whatever the
    unit of time.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.cell, self.out = GRUODE(size), Affine(size, size * size)

    def forward(self, attended: Tensor, horizon: float = 1.0) -> Tensor:
        """Return da/dt, (B, d, d), from h' (B, d)."""
        rate: Tensor = self.out(self.cell(attended)) / horizon
        return rate.unflatten(-1, (self.size, self.size))

    def step(self, attended: Tensor, a: Tensor, tau: Tensor, horizon: float = 1.0) -> Tensor:
        """Return a after a step of length τ, (B, 1, 1), which is exact for a constant h'."""
        return a + tau * self(attended, horizon)

    def weights(self, horizon: float) -> MatrixGWeights:
        """Return the weights as tensors for faster versions."""
        assert self.cell.reset is not None
        return MatrixGWeights(self.cell.reset.weight, self.cell.update.weight, self.cell.new.weight,
                              self.out.weight / horizon, self.out.bias / horizon)
