"""The posterior of the deep Kalman filter, sampled point by point.

    T = tanh(W z + b)        [m, s] = V ½(T + c) + b'        z ← m + √(softplus(s) + least) ⊙ noise

c is the state of a GRU that read the later points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from acenode.accelerate.recurrence.cell import ScanInputs, product, tanh_slope, total


@dataclass(frozen=True)
class SampledPosterior:
    """Rows: c (T, B, u) and noise (T, B, l), which gets no gradient. Weights: W (u, l), b (u), V (2l, u), b' (2l).

    `least` is the least variance.
    """

    least: float
    name = "posterior"
    row_count = 2

    def saved_widths(self, x: ScanInputs) -> list[int]:
        """Return the widths of T and s."""
        return [len(x.weights[0]), x.start.shape[1]]

    def gradient_widths(self, x: ScanInputs) -> list[int]:
        """Return the widths of the gradients of [m, s] and of ½(T + c)."""
        return [2 * x.start.shape[1], len(x.weights[0])]

    def constants(self, x: ScanInputs) -> dict[str, int | float]:
        return {"H": x.start.shape[1], "U": len(x.weights[0]), "LEAST": self.least}

    def forward(self, x: ScanInputs, saved: Sequence[Tensor], states: Tensor) -> None:
        (later, noise), (W, b, V, b_out), z = x.rows, x.weights, x.start
        assert later is not None
        assert noise is not None
        L, Wt, Vt = z.shape[1], W.t().contiguous(), 0.5 * V.t()
        for i, (mask, c, T, s) in enumerate(zip(x.mask, later, *saved, strict=True)):
            torch.addmm(b, z, Wt, out=T).tanh_()
            y = torch.addmm(b_out, T + c, Vt)
            s.copy_(y[:, L:])
            sampled = torch.addcmul(y[:, :L], (F.softplus(s) + self.least).sqrt_(), noise[i])
            z = torch.where(mask, sampled, z, out=states[i])

    def factors(self, x: ScanInputs, before: Tensor, states: Tensor, saved: Sequence[Tensor]) -> list[Tensor]:
        """Return the factors of [m, s], that of W z + b, and 1 − mask."""
        (T, s), noise = saved, x.rows[1]
        assert noise is not None
        m = x.mask.to(s)
        spread = m * noise * torch.sigmoid(s) / (2 * (F.softplus(s) + self.least).sqrt())
        return [torch.cat((m.expand_as(s), spread), -1), 0.5 * tanh_slope(T), 1 - m]

    def backward(self, grad: Tensor, x: ScanInputs, factors: Sequence[Tensor], found: Sequence[Tensor]) -> Tensor:
        W, _, V, _ = x.weights
        each, slope, stay = factors
        (B, L), d = x.start.shape, torch.zeros_like(x.start)
        for i in range(len(grad) - 1, -1, -1):
            d = d + grad[i]
            sums, d_mean = found[0][i], found[1][i]
            torch.mul(d[:, None], each[i].view(B, 2, L), out=sums.view(B, 2, L))
            torch.mm(sums, V, out=d_mean)
            d = torch.addmm(stay[i] * d, d_mean * slope[i], W)
        return d

    def gradients(self, x: ScanInputs, before: Tensor, saved: Sequence[Tensor],
                  found: Sequence[Tensor]) -> tuple[list[Tensor | None], list[Tensor]]:
        (sums, d_mean), (T, _), later = found, saved, x.rows[0]
        assert later is not None
        d_tanh = 0.5 * d_mean * tanh_slope(T)
        return [0.5 * d_mean, None], [product(d_tanh, before), total(d_tanh), product(sums, 0.5 * (T + later)),
                                      total(sums)]
