"""Named variables by steps of the midpoint rule in C (`named_midpoint.c`), for CPUs in single precision.

All steps are one node of the autograd graph. Its weights are stored by input and padded with zeros to whole vectors;
the terms of the embeddings are added up before the solve, since they do not change during it.
"""

from __future__ import annotations

import ctypes
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from acenode.accelerate.c_compiler import Kernel, fields, padded, split_gradients
from acenode.backend import COMPILED_C, Backend
from acenode.data.passes import MidpointInputs, MidpointStates
from acenode.device.torch_private import transforms_active

WEIGHTS, WEIGHTS_OF_F = 14, 7  # of all, and the first of them
BLOCK_ROWS = 32  # rows of h, a row for each variable, that advance together
CHUNKS = 32  # separate sums of gradients, at most
SAVE_LIMIT = 1e9  # bytes of hidden layers that are saved; beyond it the backward pass recomputes them
NO_ATTENTION, FIXED, EVOLVING = range(3)


class CSolve(ctypes.Structure):
    """The struct `Solve` of `named_midpoint.c`, field by field."""

    _fields_ = [*fields("B V N P K C X U R attention detach slopes save block chunks threads f_needed", ctypes.c_int64),
                ("sizes", ctypes.c_int64 * WEIGHTS), ("pull", ctypes.c_double), *fields("t dt h0 control"),
                ("weights", ctypes.c_void_p * WEIGHTS), ("transposed", ctypes.c_void_p * WEIGHTS),
                *fields("h k a_saved z1_saved z2_saved failed d_h d_k d_h0 shares")]


KERNEL = Kernel(Path(__file__).parent / "named_midpoint.c", CSolve)


def solve(backend: Backend, inputs: MidpointInputs) -> MidpointStates | None:
    """Solve by the compiled pass; None if it does not support the inputs, or there is no C compiler."""
    if not _supports(inputs) or (library := KERNEL.allowed(backend)) is None:
        return None
    backend.report_series_by(COMPILED_C)
    lanes, (B, V, k) = library.lanes(), inputs.h0.shape
    attention = NO_ATTENTION if inputs.a0 is None else FIXED if inputs.g is None else EVOLVING
    weights, h0 = _pack(inputs, attention, lanes), padded(inputs.h0, lanes, False)
    control = None if inputs.control is None else padded(inputs.control, lanes, False).contiguous()
    steps = list(pairwise(inputs.grid))
    times = [t for a, b in steps for t in (a, a + 0.5 * (b - a))]
    block = -(-BLOCK_ROWS // V)
    sizes = {"B": B, "V": V, "N": len(steps), "P": -(-V // lanes) * lanes, "K": h0.shape[2],
             "C": 0 if control is None else control.shape[-1], "X": len(weights[0]), "U": weights[0].shape[1],
             "R": 0 if attention != EVOLVING else weights[7].shape[1], "attention": attention,
             "detach": int(inputs.detach), "slopes": int(inputs.slopes), "block": block,
             "chunks": min(-(-B // block), CHUNKS)}
    given = {**sizes, "t": torch.tensor([*times, inputs.grid[-1]]), "dt": torch.tensor([b - a for a, b in steps]),
             "control": control, "pull": inputs.pull}
    h, slopes, failed = CompiledSolve.apply(inputs, given, h0, *weights)
    return MidpointStates(h[..., :k], slopes[..., :k] if inputs.slopes else None, int(failed), inputs.cost)


def _supports(inputs: MidpointInputs) -> bool:
    """Return True for float32 on a CPU and an f of three layers; the controls must not need a gradient."""
    tensors = [x for x in (inputs.h0, inputs.a0, inputs.e, inputs.control) if x is not None]
    tensors += [p for layer in (*inputs.f, *([inputs.g] if inputs.g is not None else [])) for p in layer]
    return (len(inputs.f) == 3 and len(set(inputs.f[1][0].shape)) == 1 and not transforms_active()
            and all(x.device.type == "cpu" and x.dtype == torch.float32 for x in tensors)
            and (inputs.control is None or not inputs.control.requires_grad))


def _pack(inputs: MidpointInputs, attention: int, lanes: int) -> list[Any]:
    """Return the weights in the order of `named_midpoint.c`, None for those that there are not."""
    k, parts = inputs.h0.shape[-1], [inputs.h0.shape[-1]] * (2 if attention else 1)
    parts += [] if inputs.control is None else [inputs.control.shape[-1]]
    (w1, b1), (w2, b2), (w3, b3) = inputs.f
    *own, time, embedded = w1.t().split((*parts, 1, inputs.e.shape[1]))
    weights: list[Tensor | None] = [
        torch.cat([padded(part, lanes) for part in own]), padded(torch.addmm(b1, inputs.e, embedded), lanes, False),
        padded(time[0], lanes), padded(w2.t(), lanes), padded(b2, lanes), padded(inputs.speed * w3.t(), lanes),
        padded(inputs.speed * b3, lanes)]
    if inputs.g is not None:
        weight, bias = inputs.g
        for scale, w, b in zip((inputs.speed / inputs.rank, 1.0), weight.chunk(2), bias.chunk(2), strict=True):
            own_m, time, embedded = (scale * w.t()).split((k, 1, inputs.e.shape[1]))
            weights += [padded(own_m, lanes), padded(torch.addmm(scale * b, inputs.e, embedded), lanes, False),
                        padded(time[0], lanes)]
    weights += [None] * (WEIGHTS - 1 - len(weights))
    if inputs.a0 is None:
        return [*weights, None]
    return [*weights, padded(torch.softmax(inputs.a0, -1) if attention == FIXED else inputs.a0, lanes, False)]


class CompiledSolve(torch.autograd.Function):
    """Map h(0) (B, V, k) and the weights to h and, if wanted, dh/dt at the ends of steps, (N + 1, B, V, k).

    All tensors have padded columns. The third output is the first step whose end is not finite, or N. `given` is what
    the C function takes beside these.
    """

    @staticmethod
    def forward(ctx: Any, inputs: MidpointInputs, given: dict[str, Any], h0: Tensor,
                *weights: Any) -> tuple[Tensor, Tensor, Tensor]:
        trains, (N, U), times = any(ctx.needs_input_grad), (given["N"], given["U"]), len(given["t"])
        h0, weights = h0.contiguous(), tuple(None if w is None else w.contiguous() for w in weights)
        h = h0.new_empty(N + 1, *h0.shape)
        slopes, rows = torch.empty_like(h) if inputs.slopes else h.new_empty(0), h0.shape[0] * h0.shape[1]
        a = h.new_empty(*h.shape[:3], given["P"]) if trains and given["attention"] == EVOLVING else None
        saved = trains and inputs.save and 8 * times * rows * U <= SAVE_LIMIT
        z1, z2 = h.new_empty(2, times, rows, U) if saved else (None, None)
        failed = torch.full((-(-len(h0) // given["block"]),), N, dtype=torch.int64)
        KERNEL.call("solve_forward", weights=weights, **given, a_saved=a, z1_saved=z1, z2_saved=z2, save=int(saved),
                    h0=h0, h=h, k=slopes, failed=failed)
        if trains:
            ctx.inputs, ctx.given = inputs, given
            ctx.save_for_backward(h, a, z1, z2, *weights)
        first = failed.min()
        ctx.mark_non_differentiable(first)
        return h, slopes, first

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (h, a, z1, z2, *weights), needed, given = ctx.saved_tensors, list(ctx.needs_input_grad[3:]), ctx.given
        d_h0 = torch.empty_like(h[0])
        shares = h.new_zeros(given["chunks"], sum(w.numel() for w in weights if w is not None))
        if z1 is None:
            ctx.inputs.cost.backward += len(given["t"]) - (0 if ctx.inputs.slopes else 1)
        transposed = [None if w is None or i not in (0, 3, 5, 7, 10) else w.t().contiguous()
                      for i, w in enumerate(weights)]
        KERNEL.call("solve_backward", weights=weights, **given, a_saved=a, z1_saved=z1, z2_saved=z2,
                    save=int(z1 is not None), transposed=transposed, h=h, d_h=grads[0].contiguous(),
                    d_k=grads[1].contiguous(), d_h0=d_h0, shares=shares, f_needed=int(any(needed[:WEIGHTS_OF_F])))
        if ctx.inputs.detach:  # θ_g and a(0) have no gradient while attention is constant
            needed[WEIGHTS_OF_F:] = [False] * (WEIGHTS - WEIGHTS_OF_F)
        return None, None, d_h0, *split_gradients(shares, weights, needed)
