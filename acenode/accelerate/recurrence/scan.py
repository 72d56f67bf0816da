"""A recurrent cell over all rows as one node of the autograd graph.

Autograd would record some ten nodes a row, each of which adds to a weight's gradient. Here the gradient of a weight is
one product over all rows, and a row of the backward pass is a few products. No step waits for the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from acenode.accelerate.recurrence import cuda
from acenode.accelerate.recurrence.cell import RecurrentCell, ScanInputs
from acenode.accelerate.triton_support import kernel_works
from acenode.backend import GPU_KERNELS, TORCH_OPERATIONS, Backend

CHECKED_ROWS = 16
CHECK_TOLERANCE = 1e-3  # relative; both compute in float32


def scan(backend: Backend, cell: RecurrentCell, mask: Tensor, start: Tensor, rows: Sequence[Tensor | None],
         weights: Sequence[Tensor]) -> Tensor:
    """Return the states after every point, (B, T, ·), from the mask (B, T), the start (B, ·) and inputs (B, T, ·)."""
    by_row = [None if x is None else x.transpose(0, 1) for x in rows]
    states: Tensor = Scan.apply(backend, cell, mask.t().unsqueeze(-1), start, *by_row, *weights)
    return states.transpose(0, 1)


class Scan(torch.autograd.Function):
    """Map the mask (T, B, 1), the start (B, ·), rows (T, B, ·) and weights to the states after every row, (T, B, ·)."""

    @staticmethod
    def forward(ctx: Any, backend: Backend, cell: RecurrentCell, mask: Tensor, start: Tensor,
                *tensors: Tensor | None) -> Tensor:
        x = _inputs(cell, mask, start, tensors)
        trains = any(ctx.needs_input_grad)
        ctx.by_kernel = cuda.supports(backend, cell, x) and kernel_works(
            backend, (cell.name, start.device, trains, *cuda.compiled_for(cell, x).values()),
            lambda: _attempt(cell, x, trains))
        if start.is_cuda:
            backend.report_series_by(GPU_KERNELS if ctx.by_kernel else TORCH_OPERATIONS)
        states, saved = _forward(cell, x, ctx.by_kernel)
        ctx.cell, ctx.count = cell, len(tensors)
        ctx.save_for_backward(mask, start, *tensors, states, *saved)
        return states

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        mask, start, *rest = ctx.saved_tensors
        x = _inputs(ctx.cell, mask, start, rest[:ctx.count])
        states, *saved = rest[ctx.count:]
        d_start, d_rows, d_weights = _backward(ctx.cell, grads[0], x, states, saved, ctx.by_kernel)
        return None, None, None, d_start, *d_rows, *d_weights


def _inputs(cell: RecurrentCell, mask: Tensor, start: Tensor, tensors: Sequence[Any]) -> ScanInputs:
    return ScanInputs(mask, start, tensors[:cell.row_count], tensors[cell.row_count:])


def _allocate(x: ScanInputs, widths: list[int]) -> list[Tensor]:
    return [x.start.new_empty(*x.mask.shape[:2], width) for width in widths]


def _forward(cell: RecurrentCell, x: ScanInputs, by_kernel: bool) -> tuple[Tensor, list[Tensor]]:
    """Return the states after every row, and what the backward pass needs."""
    states, *saved = _allocate(x, [x.start.shape[1], *cell.saved_widths(x)])
    run = partial(cuda.forward, cell) if by_kernel else cell.forward
    run(x, saved, states)
    return states, saved


def _backward(cell: RecurrentCell, grad: Tensor, x: ScanInputs, states: Tensor, saved: Sequence[Tensor],
              by_kernel: bool) -> tuple[Tensor, list[Tensor | None], list[Tensor]]:
    """Return the gradients of the start, the rows and the weights."""
    before = torch.cat((x.start[None], states[:-1]))
    factors, found = cell.factors(x, before, states, saved), _allocate(x, cell.gradient_widths(x))
    run = partial(cuda.backward, cell) if by_kernel else cell.backward
    return run(grad, x, factors, found), *cell.gradients(x, before, saved, found)


def _attempt(cell: RecurrentCell, x: ScanInputs, trains: bool) -> None:
    """Run the kernels on the first rows, forward and, in training, backward; raise if torch finds other numbers."""
    first = ScanInputs(x.mask[:CHECKED_ROWS], x.start, [None if row is None else row[:CHECKED_ROWS] for row in x.rows],
                       x.weights)
    found, expected = (_passes(cell, first, trains, by_kernel) for by_kernel in (True, False))
    for y, exact in zip(found, expected, strict=True):
        difference = torch.linalg.vector_norm((y - exact).nan_to_num())
        close = difference <= CHECK_TOLERANCE * (1 + torch.linalg.vector_norm(exact.nan_to_num()))
        if not close or not torch.equal(y.isnan(), exact.isnan()):
            raise RuntimeError(f"kernels of {cell.name} differ from torch by {difference:.3g}")


def _passes(cell: RecurrentCell, x: ScanInputs, trains: bool, by_kernel: bool) -> list[Tensor]:
    """Return the states, and in training the gradients of their squared norm / 2."""
    states, saved = _forward(cell, x, by_kernel)
    if not trains:
        return [states]
    d_start, d_rows, d_weights = _backward(cell, states, x, states, saved, by_kernel)
    return [states, d_start, *(d for d in d_rows if d is not None), *d_weights]
