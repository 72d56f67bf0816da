"""The continuous GRU: a gated unit whose step size goes to zero (De Brouwer et al., GRU-ODE-Bayes).

    full       r, z = σ(W x + U h + b), u = tanh(W_u x + U_u (r ⊙ h) + b_u), dh/dt = (1 − z) ⊙ (u − h)
    minimal    z = σ(W x + U h + b), u = tanh(W_u x + U_u (z ⊙ h) + b_u), dh/dt = (1 − z) ⊙ (u − h)

Where nothing is imputed, x ≡ 0 and there are no biases. h never leaves [−1, 1], nor does an Euler step of at most 1.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from acenode.models.forecast.gaussian import Affine


class GRUODE(nn.Module):
    """dh/dt of either cell; `inputs` is the size of x, 0 where there is none."""

    def __init__(self, size: int, inputs: int = 0, minimal: bool = False) -> None:
        super().__init__()
        self.minimal, self.inputs = minimal, inputs
        self.reset = None if minimal else Affine(size, size, bias=False)
        self.update, self.new = Affine(size, size, bias=False), Affine(size, size, bias=False)
        self.given = Affine(inputs, (2 if minimal else 3) * size, blocks=2 if minimal else 3) if inputs else None

    def forward(self, h: Tensor, x: Tensor | None = None, own: Tensor | None = None) -> Tensor:
        """The gates read h; the feedback −h is of `own`, where that is another state."""
        gates = [self.update] if self.reset is None else [self.reset, self.update]
        shares = [0.0] * (len(gates) + 1) if self.given is None else self.given(x).chunk(len(gates) + 1, -1)
        opened = [torch.sigmoid(gate(h) + share) for gate, share in zip(gates, shares[:-1], strict=True)]
        r, z = opened[0], opened[-1]
        u = torch.tanh(self.new(r * h) + shares[-1])
        return (1 - z) * (u - (h if own is None else own))


class RowGRU(nn.Module):
    """g: every row a_i of a is the state of one full continuous GRU that reads h', its weights shared over rows.

    r_i, z_i = σ(W h' + U a_i), u_i = tanh(W_u h' + U_u (r_i ⊙ a_i)), da_i/dt = (1 − z_i) ⊙ (u_i − a_i). So a stays
    within [−1, 1], where correlations live. An exponential step keeps z and u and solves what is left, which is linear
    in a_i: it stays there too, however long it is.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        # of the rows, and of h'
        self.gates, self.gates_in = (Affine(size, 2 * size, bias=False, blocks=2) for _ in range(2))
        self.new, self.new_in = (Affine(size, size, bias=False) for _ in range(2))

    def forward(self, attended: Tensor, a: Tensor) -> Tensor:
        """h' (B, d) and a (B, d, d) → da/dt."""
        rate, u = self.relax(attended, a)
        return rate * (u - a)

    def step(self, attended: Tensor, a: Tensor, tau: Tensor) -> Tensor:
        """a after an exponential step of length τ, (B, 1, 1)."""
        rate, u = self.relax(attended, a)
        return a - torch.expm1(-tau * rate) * (u - a)

    def relax(self, attended: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """How fast a goes, 1 − z, and where to, u."""
        r, z = torch.sigmoid(self.gates(a) + self.gates_in(attended).unsqueeze(-2)).chunk(2, -1)
        return 1 - z, torch.tanh(self.new(r * a) + self.new_in(attended).unsqueeze(-2))
