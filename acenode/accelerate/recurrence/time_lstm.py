"""T-LSTM: an LSTM whose short-term memory decays with time. The state is [h, C].

    S = tanh(W_d C + b_d)        C* = C + lost S
    i, f, o = σ(x + U h + b)     C̃ = tanh(x + U h + b)     C ← f ⊙ C* + i ⊙ C̃     h ← o ⊙ tanh(C)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from acenode.accelerate.recurrence.cell import ScanInputs, product, sigmoid_slope, tanh_slope, total


class DecayLSTM:
    """Rows: the projected inputs (T, B, 4h), `lost` (T, B, 1), which gets no gradient.

    Weights: U (4h, h), b (4h), W_d (h, h), b_d (h).
    """

    name = "lstm"
    row_count = 2

    def saved_widths(self, x: ScanInputs) -> list[int]:
        """Return the widths of [i, f, o, C̃] and S."""
        H = x.start.shape[1] // 2
        return [4 * H, H]

    def gradient_widths(self, x: ScanInputs) -> list[int]:
        """Return the widths of the gradients of x + U h + b and W_d C + b_d."""
        return self.saved_widths(x)

    def constants(self, x: ScanInputs) -> dict[str, int | float]:
        return {"H": x.start.shape[1] // 2}

    def forward(self, x: ScanInputs, saved: Sequence[Tensor], states: Tensor) -> None:
        (projected, lost), (U, b, W, b_d), state = x.rows, x.weights, x.start
        assert projected is not None
        assert lost is not None
        H, Ut, Wt = len(W), U.t().contiguous(), W.t().contiguous()
        for i, (mask, row, gates, short) in enumerate(zip(x.mask, projected, *saved, strict=True)):
            h, C = state[:, :H], state[:, H:]
            torch.addmm(b_d, C, Wt, out=short).tanh_()
            torch.add(row, torch.addmm(b, h, Ut), out=gates)
            gates[:, :3 * H].sigmoid_()
            new = gates[:, 3 * H:].tanh_()
            C = torch.addcmul(gates[:, H:2 * H] * torch.addcmul(C, lost[i], short), gates[:, :H], new)
            state = torch.where(mask, torch.cat((gates[:, 2 * H:3 * H] * torch.tanh(C), C), 1), state, out=states[i])

    def factors(self, x: ScanInputs, before: Tensor, states: Tensor, saved: Sequence[Tensor]) -> list[Tensor]:
        """Return the factors of i, f, o and C̃, that of C in h, f, that of S, and 1 − mask."""
        (gates, short), lost = saved, x.rows[1]
        assert lost is not None
        H, m = short.shape[2], x.mask.to(short)
        i, f, o, new = gates.split(H, -1)
        slope, tanh_C = sigmoid_slope(gates[..., :3 * H]), torch.tanh(states[..., H:])
        decayed = torch.addcmul(before[..., H:], lost, short)
        each = m * torch.cat((new * slope[..., :H], decayed * slope[..., H:2 * H], tanh_C * slope[..., 2 * H:],
                              i * tanh_slope(new)), -1)
        return [each, o * tanh_slope(tanh_C), m * f, lost * tanh_slope(short), 1 - m]

    def backward(self, grad: Tensor, x: ScanInputs, factors: Sequence[Tensor], found: Sequence[Tensor]) -> Tensor:
        U, _, W, _ = x.weights
        each, out, keep, slope, stay = factors
        H, d = len(W), torch.zeros_like(x.start)
        for i in range(len(grad) - 1, -1, -1):
            d = d + grad[i]
            d_h, row, sums, d_short = d[:, :H], each[i], found[0][i], found[1][i]
            d_C = torch.addcmul(d[:, H:], d_h, out[i])
            torch.mul(torch.cat((d_C, d_C, d_h, d_C), 1), row, out=sums)
            d_decayed = d_C * keep[i]
            torch.mul(d_decayed, slope[i], out=d_short)
            d_before = torch.cat((sums @ U, torch.addmm(d_decayed, d_short, W)), 1)
            d = torch.addcmul(d_before, stay[i], d)
        return d

    def gradients(self, x: ScanInputs, before: Tensor, saved: Sequence[Tensor],
                  found: Sequence[Tensor]) -> tuple[list[Tensor | None], list[Tensor]]:
        (sums, d_short), H = found, found[1].shape[2]
        return [sums, None], [product(sums, before[..., :H]), total(sums), product(d_short, before[..., H:]),
                              total(d_short)]
