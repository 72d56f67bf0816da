"""x Wᵀ + b for few rows on ARM CPUs, where torch's library is slow with a transposed right-hand side."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class SmallLinear(torch.autograd.Function):
    """x Wᵀ + b with no transposed right-hand side in any product, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.addmm(bias, x, weight.t().contiguous())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,), (x, weight) = grads, ctx.saved_tensors
        need_x, need_weight, need_bias = ctx.needs_input_grad
        return (grad @ weight if need_x else None, grad.t() @ x if need_weight else None,
                grad.sum(0) if need_bias else None)
