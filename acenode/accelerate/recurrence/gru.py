"""The GRU with a decay of h, γ, which may be absent, one factor a series or one a coordinate.

    g = γ ⊙ h        r, z = σ(x + U g + b)        n = tanh(x' + r ⊙ (U' g + b'))        h ← (1−z) ⊙ n + z ⊙ g
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from acenode.accelerate.recurrence.cell import ScanInputs, product, sigmoid_slope, tanh_slope, total


class DecayGRU:
    """Rows: the projected inputs [x, x'] (T, B, 3h) and γ (T, B, 1 or h) or None. Weights: U (3h, h), b (3h)."""

    name = "gru"
    row_count = 2

    def saved_widths(self, x: ScanInputs) -> list[int]:
        """Return the widths of [r, z], n and U' g + b'."""
        H = x.start.shape[1]
        return [2 * H, H, H]

    def gradient_widths(self, x: ScanInputs) -> list[int]:
        """Return the widths of the gradients of U g + b, followed by that of x', and of g."""
        H = x.start.shape[1]
        return [4 * H, H]

    def constants(self, x: ScanInputs) -> dict[str, int | float]:
        decay = x.rows[1]
        return {"H": x.start.shape[1], "G": 0 if decay is None else decay.shape[2]}

    def forward(self, x: ScanInputs, saved: Sequence[Tensor], states: Tensor) -> None:
        (projected, decay), (U, b), h = x.rows, x.weights, x.start
        assert projected is not None
        H, Ut = h.shape[1], U.t().contiguous()
        for i, (mask, row, rz, n, own) in enumerate(zip(x.mask, projected, *saved, strict=True)):
            g = h if decay is None else decay[i] * h
            sums = torch.addmm(b, g, Ut)
            torch.add(row[:, :2 * H], sums[:, :2 * H], out=rz).sigmoid_()
            own.copy_(sums[:, 2 * H:])
            torch.addcmul(row[:, 2 * H:], rz[:, :H], own, out=n).tanh_()
            h = torch.where(mask, torch.lerp(n, g, rz[:, H:]), h, out=states[i])

    def factors(self, x: ScanInputs, before: Tensor, states: Tensor, saved: Sequence[Tensor]) -> list[Tensor]:
        """Return the factors that give the gradients of r, z, U' g + b' and x', the share of g, γ, and 1 − mask."""
        (rz, n, own), g, decay = saved, _decayed(x, before), x.rows[1]
        H, m = n.shape[2], x.mask.to(n)
        r, z = rz[..., :H], rz[..., H:]
        slope = sigmoid_slope(rz)
        a_n = (m - m * z) * tanh_slope(n)
        each = torch.cat((a_n * own * slope[..., :H], m * (g - n) * slope[..., H:], a_n * r, a_n), -1)
        return [each, m * z, m if decay is None else decay, 1 - m]

    def backward(self, grad: Tensor, x: ScanInputs, factors: Sequence[Tensor], found: Sequence[Tensor]) -> Tensor:
        (U, _), decay = x.weights, x.rows[1]
        B, H = x.start.shape
        each, keep, _, stay = factors
        d = torch.zeros_like(x.start)
        for i in range(len(grad) - 1, -1, -1):
            d = d + grad[i]
            sums, d_g = found[0][i], found[1][i]
            torch.mul(d[:, None], each[i].view(B, 4, H), out=sums.view(B, 4, H))
            torch.addmm(d * keep[i], sums[:, :3 * H], U, out=d_g)
            d = torch.addcmul(d_g if decay is None else decay[i] * d_g, stay[i], d)
        return d

    def gradients(self, x: ScanInputs, before: Tensor, saved: Sequence[Tensor],
                  found: Sequence[Tensor]) -> tuple[list[Tensor | None], list[Tensor]]:
        (sums, d_g), decay, H = found, x.rows[1], x.start.shape[1]
        d_decay = None
        if decay is not None:
            d_decay = d_g * before
            d_decay = d_decay.sum(-1, keepdim=True) if decay.shape[2] == 1 else d_decay
        d_own = sums[..., :3 * H]
        return ([torch.cat((sums[..., :2 * H], sums[..., 3 * H:]), -1), d_decay],
                [product(d_own, _decayed(x, before)), total(d_own)])


def _decayed(x: ScanInputs, before: Tensor) -> Tensor:
    """Return g of every row."""
    decay = x.rows[1]
    return before if decay is None else decay * before
