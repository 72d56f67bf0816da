"""Integrate GRU-ODE-Bayes by the fastest implementation that supports a pass.

That is Triton on a GPU, C on a CPU, and otherwise torch with a hand-derived backward pass: on a CPU without a C
compiler or if g gives the whole matrix, and on a GPU for shapes without a kernel. Autograd records some sixty
operations per row, each of which adds to the gradient of a weight; the hand-derived pass needs one product per window.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from acenode.accelerate.gru_ode_bayes import compiled, events
from acenode.accelerate.gru_ode_bayes.compiled import CompiledPass
from acenode.accelerate.gru_ode_bayes.packed import PackedWeights, PassPlan, pack, plan_of
from acenode.accelerate.gru_ode_bayes.torch_backward import BackwardPass
from acenode.accelerate.gru_ode_bayes.torch_forward import ForwardPass
from acenode.backend import COMPILED_C, GPU_KERNELS, TORCH_OPERATIONS, Backend
from acenode.data.gru_ode_bayes_pass import MatrixGWeights, PassInputs, PassOutputs


def integrate(backend: Backend, inputs: PassInputs) -> PassOutputs:
    """Integrate one batch and report which implementation did it."""
    if inputs.h0.is_cuda and (found := integrate_by_kernels(backend, inputs)) is not None:
        backend.report_series_by(GPU_KERNELS)
        return found
    a0 = None if inputs.attention is None else inputs.attention.a0
    return PassOutputs(*FusedPass.apply(plan_of(backend, inputs), inputs.h0, a0, *pack(inputs)))


def integrate_by_kernels(backend: Backend, inputs: PassInputs) -> PassOutputs | None:
    """Integrate with Triton kernels, one program per series; None if they do not support the pass."""
    from acenode.accelerate.gru_ode_bayes import attention_cuda, cuda

    h0, attention = inputs.h0, inputs.attention
    order = events.in_order(inputs.schedule, len(h0), inputs.x, inputs.m, inputs.dropout)
    weights, dt = events.kernel_weights(inputs.weights), inputs.schedule.dt.squeeze(-1).expand(-1, len(h0))
    if attention is None:
        if not cuda.supports(backend, h0, dt, order.events, weights):
            return None
        before, after = cuda.KernelPass.apply(h0, dt, order.events, *weights)
    else:
        options = attention_cuda.AttentionOptions(attention.every, attention.own_feedback, attention.detach,
                                                  torch.is_grad_enabled(),
                                                  isinstance(attention.weights, MatrixGWeights))
        g = attention_cuda.kernel_g_weights(attention.weights)
        if not attention_cuda.supports(backend, h0, dt, order.events, options, weights, g):
            return None
        before, after = attention_cuda.AttentionKernelPass.apply(h0, attention.a0, dt, order.events, options, *weights,
                                                                 *g)
    predicted = events.predict(before[order.observations], inputs.dropout, inputs.weights)
    return PassOutputs(predicted, after[order.observations], before[order.reads])


class FusedPass(torch.autograd.Function):
    """The whole pass as one node of the graph, in C or in torch.

    `FusedPass.apply(plan, h0, a0, *weights)` returns the predictions before the observations (N, 2D), h after them
    (N, H) and h at the read points (R, H).
    """

    @staticmethod
    def forward(ctx: Any, plan: PassPlan, h0: Tensor, a0: Tensor | None, *weights: Tensor | None) -> tuple[Tensor, ...]:
        packed: Any = PackedWeights(*(None if w is None else w.detach().contiguous() for w in weights))  # type: ignore[arg-type]
        start = h0.detach(), None if a0 is None else a0.detach().contiguous()
        if compiled.supports(plan, h0, a0, weights):
            plan.backend.report_series_by(COMPILED_C)
            ctx.run = CompiledPass(plan, packed)
        else:
            plan.backend.report_series_by(TORCH_OPERATIONS)
            ctx.run = ForwardPass(plan, packed)
        return ctx.run.run(*start)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        needed = ctx.needs_input_grad[3:]
        if isinstance(ctx.run, CompiledPass):
            return None, *ctx.run.backward(grads, needed)
        return None, *BackwardPass(ctx.run, grads, needed).run()
