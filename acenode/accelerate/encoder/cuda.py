"""Where the rows of `torch_scan` are run by a kernel: one launch forward, one backward, on a CUDA device.

Row by row a host sends some twenty small operations, and the device waits for the host. Here a program of the device
owns a series, so nothing is waited for but the series' own last row. Anything the kernels are not made for (float64,
large layers, an installation without Triton or without a compiler for it) is left to the operations of torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from acenode.accelerate.kernel_check import kernels_available
from acenode.accelerate.triton_support import MAX_ELEMENTS, block_size
from acenode.backend import Backend

if TYPE_CHECKING:
    from acenode.accelerate.encoder.torch_scan import Found, Kept

LARGEST = 128  # of any layer
WARPS = {16: 1, 32: 2, 64: 4, 128: 8}


def supports(backend: Backend, given: Tensor, weights: Sequence[Tensor]) -> bool:
    """Return True if the kernels can run this scan."""
    if not given.is_cuda or any(x.dtype != torch.float32 for x in (given, *weights)):
        return False
    if len({W.shape[1] for W in weights[6:-2:2]}) != 1:
        return False
    R, U, H, L = _widths(weights)
    S, B, _ = given.shape
    most = S * B * max(3 * U, 2 * R, L * H)
    return max(R, U, H) <= LARGEST and 0 < most < MAX_ELEMENTS and kernels_available(backend, given.device.index)


def _widths(weights: Sequence[Tensor]) -> tuple[int, int, int, int]:
    return weights[0].shape[0] // 2, weights[3].shape[1], weights[6].shape[1], len(weights[6::2])


def compiled_for(weights: Sequence[Tensor]) -> dict[str, int]:
    """What the kernels are made for."""
    R, U, H, L = _widths(weights)
    P = block_size(R, U, H)
    return {"R": R, "U": U, "H": H, "L": L, "P": P, "num_warps": WARPS[P]}


def _flat(weights: Sequence[Tensor]) -> Tensor:
    """One after another; of the matrices of a chain every second one transposed, the first one too."""
    turned = {0, 3, *range(6, len(weights), 4)}
    return torch.cat([w.t().flatten() if n in turned else w.flatten() for n, w in enumerate(weights)])


def forward(given: Tensor, dt: Tensor, read: Tensor, weights: Sequence[Tensor], kept: Kept, outs: Tensor) -> None:
    """All rows; `kept` is zero before, and the tensors of `kept.inner` neighbours in one storage."""
    from acenode.accelerate.encoder import kernels as scan_kernels

    S, B, _ = given.shape
    flat = _flat(weights)
    rows = (given.contiguous(), dt.contiguous(), read.contiguous().view(torch.uint8))
    with torch.cuda.device(given.device):
        scan_kernels.forward[(B,)](*rows, flat, *kept[:-1], kept.inner[0], outs, S, B, **compiled_for(weights))


def backward(grad: Tensor, dt: Tensor, read: Tensor, weights: Sequence[Tensor], kept: Kept, found: Found) -> None:
    """All rows, last one first; what is to be found is zero before, `found.inner` as `kept.inner`."""
    from acenode.accelerate.encoder import kernels as scan_kernels

    S, B, _ = grad.shape
    flat = _flat(weights)
    rows = (grad.contiguous(), dt.contiguous(), read.contiguous().view(torch.uint8))
    with torch.cuda.device(grad.device):
        scan_kernels.backward[(B,)](*rows, flat, *kept[1:-1], kept.inner[0], *found[:-1], found.inner[0], S, B,
                                    **compiled_for(weights))
