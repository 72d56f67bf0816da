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

from acenode.accelerate.torch_alone import kernels_wanted
from acenode.accelerate.trial import works

if TYPE_CHECKING:
    from acenode.accelerate.encoder.torch_scan import Found, Kept

LARGEST = 128  # of any layer
ADDRESSABLE = 2**31
WARPS = {16: 1, 32: 2, 64: 4, 128: 8}


def ready(index: int) -> bool:
    """Whether kernels are wanted, can be compiled for that device and run there."""
    return kernels_wanted() and works(("any", index), lambda: _copy_there(index))


def _copy_there(index: int) -> None:
    from acenode.accelerate.probe_kernel import copy

    with torch.cuda.device(index):
        there = torch.zeros(1, device=f"cuda:{index}")
        copy[(1,)](torch.ones_like(there), there)
        if there.item() != 1:
            raise RuntimeError("what a kernel copied did not arrive")


def padded(*sizes: int) -> int:
    """The power of two that holds them all."""
    return max(16, 1 << (max(sizes) - 1).bit_length())


def suits(given: Tensor, weights: Sequence[Tensor]) -> bool:
    """Whether the kernels take a scan of this kind."""
    if not given.is_cuda or any(x.dtype != torch.float32 for x in (given, *weights)):
        return False
    if len({W.shape[1] for W in weights[6:-2:2]}) != 1:
        return False
    R, U, H, L = _widths(weights)
    S, B, _ = given.shape
    most = S * B * max(3 * U, 2 * R, L * H)
    return max(R, U, H) <= LARGEST and 0 < most < ADDRESSABLE and ready(given.device.index)


def _widths(weights: Sequence[Tensor]) -> tuple[int, int, int, int]:
    return weights[0].shape[0] // 2, weights[3].shape[1], weights[6].shape[1], len(weights[6::2])


def compiled_for(weights: Sequence[Tensor]) -> dict[str, int]:
    """What the kernels are made for."""
    R, U, H, L = _widths(weights)
    P = padded(R, U, H)
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
