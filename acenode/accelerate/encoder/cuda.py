"""The passes of `scan` on a CUDA device: one kernel launch forward, one backward.

With torch operations the host launches some twenty small kernels a row, and the device waits for the host. Here one
program of the device runs all rows of a series. What the kernels do not support (float64, large layers, no Triton or no
compiler for it) is left to torch operations.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from acenode.accelerate.encoder.buffers import EncoderActivations, EncoderGradients
from acenode.accelerate.triton_support import MAX_ELEMENTS, block_size, kernels_available
from acenode.backend import Backend

MAX_WIDTH = 128  # of any layer
WARPS = {16: 1, 32: 2, 64: 4, 128: 8}  # by block size


def supports(backend: Backend, projected: Tensor, weights: Sequence[Tensor]) -> bool:
    """Return True if the kernels can run this scan."""
    if not projected.is_cuda or any(x.dtype != torch.float32 for x in (projected, *weights)):
        return False
    if len({W.shape[1] for W in weights[6:-2:2]}) != 1:  # f's hidden layers have one width
        return False
    R, U, H, L = _widths(weights)
    S, B, _ = projected.shape
    largest = S * B * max(3 * U, 2 * R, L * H)
    return (max(R, U, H) <= MAX_WIDTH and 0 < largest < MAX_ELEMENTS
            and kernels_available(backend, projected.device))


def _widths(weights: Sequence[Tensor]) -> tuple[int, int, int, int]:
    """Return r, u, the width of f's hidden layers and the number of its layers."""
    return weights[0].shape[0] // 2, weights[3].shape[1], weights[6].shape[1], len(weights[6::2])


def compiled_for(weights: Sequence[Tensor]) -> dict[str, int]:
    """Return the constants that the kernels are compiled with."""
    R, U, H, L = _widths(weights)
    P = block_size(R, U, H)
    return {"R": R, "U": U, "H": H, "L": L, "P": P, "num_warps": WARPS[P]}


def _flat(weights: Sequence[Tensor]) -> Tensor:
    """Return all weights in one row; every second matrix of a chain of products transposed, the first one too."""
    transposed = {0, 3, *range(6, len(weights), 4)}
    return torch.cat([w.t().flatten() if n in transposed else w.flatten() for n, w in enumerate(weights)])


def forward(projected: Tensor, dt: Tensor, read: Tensor, weights: Sequence[Tensor], saved: EncoderActivations,
            states: Tensor) -> None:
    """Fill the states y (S, B, 2r) and `saved`, which must be zero before."""
    from acenode.accelerate.encoder import kernels

    S, B, _ = projected.shape
    flat = _flat(weights)
    rows = (projected.contiguous(), dt.contiguous(), read.contiguous().view(torch.uint8))
    with torch.cuda.device(projected.device):
        kernels.forward[(B,)](*rows, flat, *saved[:-1], saved.f_hidden[0], states, S, B, **compiled_for(weights))


def backward(grad: Tensor, dt: Tensor, read: Tensor, weights: Sequence[Tensor], saved: EncoderActivations,
             d: EncoderGradients) -> None:
    """Fill `d`, which must be zero before, given the gradient of the states."""
    from acenode.accelerate.encoder import kernels

    S, B, _ = grad.shape
    flat = _flat(weights)
    rows = (grad.contiguous(), dt.contiguous(), read.contiguous().view(torch.uint8))
    with torch.cuda.device(grad.device):
        kernels.backward[(B,)](*rows, flat, *saved[1:-1], saved.f_hidden[0], *d[:-1], d.f_hidden[0], S, B,
                               **compiled_for(weights))
