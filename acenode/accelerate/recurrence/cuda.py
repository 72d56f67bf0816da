"""The passes of `scan` on a CUDA device: one kernel launch forward, one backward.

With torch operations the host launches some ten small kernels a row, and the device waits for the host. What the
kernels do not support (float64, wide states, no Triton or no compiler for it) is left to torch operations.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from acenode.accelerate.recurrence.cell import RecurrentCell, ScanInputs
from acenode.accelerate.triton_support import MAX_ELEMENTS, block_size, kernels_available
from acenode.backend import Backend

MAX_WIDTH = 64  # of a state and of a layer: all matrices of a cell stay in registers
WARPS = {16: 1, 32: 4, 64: 8}  # by block size


def supports(backend: Backend, cell: RecurrentCell, x: ScanInputs) -> bool:
    """Return True if the kernels can run this scan."""
    tensors = [x.start, *(row for row in x.rows if row is not None), *x.weights]
    if not x.start.is_cuda or any(y.dtype != torch.float32 for y in tensors):
        return False
    T, B, _ = x.mask.shape
    widest = max(cell.saved_widths(x) + cell.gradient_widths(x))
    return (max(_widths(cell, x)) <= MAX_WIDTH and 0 < T * B * widest < MAX_ELEMENTS
            and kernels_available(backend, x.start.device))


def _widths(cell: RecurrentCell, x: ScanInputs) -> list[int]:
    return [value for value in cell.constants(x).values() if isinstance(value, int)]


def compiled_for(cell: RecurrentCell, x: ScanInputs) -> dict[str, int | float]:
    """Return the constants that the kernels are compiled with."""
    P = block_size(*_widths(cell, x))
    return {**cell.constants(x), "P": P, "num_warps": WARPS[P]}


def forward(cell: RecurrentCell, x: ScanInputs, saved: Sequence[Tensor], states: Tensor) -> None:
    """Fill the states after every row, and `saved`."""
    mask = x.mask.contiguous().view(torch.uint8)
    rows = [mask if row is None else row.contiguous() for row in x.rows]  # a kernel does not read a row that is None
    _launch(f"{cell.name}_forward", cell, x, [mask, x.start, *rows, *x.weights, *saved, states])


def backward(cell: RecurrentCell, grad: Tensor, x: ScanInputs, factors: Sequence[Tensor],
             found: Sequence[Tensor]) -> Tensor:
    """Fill `found` from the gradient of the states; return the gradient of the initial state."""
    d_start = torch.empty_like(x.start, memory_format=torch.contiguous_format)
    _launch(f"{cell.name}_backward", cell, x, [grad, *factors, *x.weights[::2], *found, d_start])
    return d_start


def _launch(name: str, cell: RecurrentCell, x: ScanInputs, tensors: Sequence[Tensor]) -> None:
    """Launch a kernel with one program a series."""
    from acenode.accelerate.recurrence import kernels

    T, B, _ = x.mask.shape
    with torch.cuda.device(x.start.device):
        getattr(kernels, name)[(B,)](*(y.contiguous() for y in tensors), T, B, **compiled_for(cell, x))
