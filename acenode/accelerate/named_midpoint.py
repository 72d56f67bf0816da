"""Named variables by steps of the midpoint rule in C (`named_midpoint.c`), for CPUs in single precision.

All steps are one node of the autograd graph. Its weights are stored by input and padded with zeros to whole vectors;
the terms of the embeddings are added up before the solve, since they do not change during it.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from acenode.accelerate.c_compiler import Kernel, padded
from acenode.backend import COMPILED_C, Backend
from acenode.data.passes import MidpointInputs, MidpointStates
from acenode.device.torch_private import transforms_active

WEIGHTS, WEIGHTS_OF_F = 14, 7  # of all, and the first of them
BLOCK_ROWS = 32  # rows of h, a row for each variable, that advance together
CHUNKS = 32  # separate sums of gradients, at most
SAVE_LIMIT = 1e9  # bytes of hidden layers that are saved; beyond it the backward pass recomputes them
LEAST = -1e30  # entries that pad the rows of a
NO_ATTENTION, FIXED, EVOLVING = range(3)


class CSolve(ctypes.Structure):
    """The struct `Solve` of `named_midpoint.c`, field by field."""

    _fields_ = [*((name, ctypes.c_int64) for name in ("B", "V", "N", "P", "K", "C", "X", "U", "R", "attention",
                                                      "detach", "slopes", "save", "block", "chunks", "threads",
                                                      "f_needed")),
                ("sizes", ctypes.c_int64 * WEIGHTS), ("pull", ctypes.c_double),
                *((name, ctypes.c_void_p) for name in ("t", "dt", "h0", "control")),
                ("weights", ctypes.c_void_p * WEIGHTS), ("transposed", ctypes.c_void_p * WEIGHTS),
                *((name, ctypes.c_void_p) for name in ("h", "k", "a_saved", "z1_saved", "z2_saved", "failed", "d_h",
                                                       "d_k", "d_h0", "shares"))]


KERNEL = Kernel(Path(__file__).parent / "named_midpoint.c", CSolve, ("solve_forward", "solve_backward"))


@dataclass(frozen=True)
class MidpointPlan:
    """What a solve needs besides h(0) and the weights."""

    inputs: MidpointInputs
    sizes: dict[str, int]
    given: dict[str, Tensor | None]


def available(backend: Backend) -> bool:
    """Return True if the compiled pass can be used; compiles it the first time."""
    return backend.accelerated and backend.compile_c and KERNEL.load() is not None


def solve(backend: Backend, inputs: MidpointInputs) -> MidpointStates | None:
    """Solve by the compiled pass; None if it does not support the inputs, or there is no C compiler."""
    if not _supports(inputs) or not available(backend) or (library := KERNEL.load()) is None:
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
    plan = MidpointPlan(inputs, sizes, {"t": torch.tensor([*times, inputs.grid[-1]]),
                                        "dt": torch.tensor([b - a for a, b in steps]), "control": control})
    h, slopes, failed = CompiledSolve.apply(plan, h0, *weights)
    return MidpointStates(h[..., :k], slopes[..., :k] if inputs.slopes else None, int(failed))


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
    if attention == FIXED:
        return [*weights, padded(torch.softmax(inputs.a0, -1), lanes, False)]
    return [*weights, F.pad(inputs.a0, (0, -inputs.a0.shape[1] % lanes), value=LEAST)]


class CompiledSolve(torch.autograd.Function):
    """Map h(0) (B, V, k) and the weights to h and, if wanted, dh/dt at the ends of steps, (N + 1, B, V, k).

    All tensors have padded columns. The third output is the first step whose end is not finite, or N.
    """

    @staticmethod
    def forward(ctx: Any, plan: MidpointPlan, h0: Tensor, *weights: Any) -> tuple[Tensor, Tensor, Tensor]:
        trains, inputs, sizes, times = any(ctx.needs_input_grad), plan.inputs, plan.sizes, len(plan.given["t"])  # type: ignore[arg-type]
        h0, weights = h0.contiguous(), tuple(None if w is None else w.contiguous() for w in weights)
        h = h0.new_empty(sizes["N"] + 1, *h0.shape)
        slopes, rows = torch.empty_like(h) if inputs.slopes else h.new_empty(0), h0.shape[0] * h0.shape[1]
        a = h.new_empty(*h.shape[:3], sizes["P"]) if trains and sizes["attention"] == EVOLVING else None
        saved = trains and inputs.save and 8 * times * rows * sizes["U"] <= SAVE_LIMIT
        hidden = h.new_empty(2, times, rows, sizes["U"]) if saved else None
        failed = torch.full((-(-len(h0) // sizes["block"]),), sizes["N"], dtype=torch.int64)
        _call("solve_forward", plan, weights, a, hidden, h0=h0, h=h, k=slopes, failed=failed)
        if trains:
            ctx.plan = plan
            ctx.save_for_backward(h, a, hidden, *weights)
        first = failed.min()
        ctx.mark_non_differentiable(first)
        return h, slopes, first

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        plan, (h, a, hidden, *weights), needed = ctx.plan, ctx.saved_tensors, ctx.needs_input_grad[2:]
        inputs, counts = plan.inputs, [0 if w is None else w.numel() for w in weights]
        d_h0, shares = torch.empty_like(h[0]), h.new_zeros(plan.sizes["chunks"], sum(counts))
        if hidden is None:
            inputs.cost.backward += len(plan.given["t"]) - (0 if inputs.slopes else 1)
        transposed = [None if w is None or i not in (0, 3, 5, 7, 10) else w.t().contiguous()
                      for i, w in enumerate(weights)]
        _call("solve_backward", plan, weights, a, hidden, transposed=transposed, h=h, d_h=grads[0].contiguous(),
              d_k=grads[1].contiguous(), d_h0=d_h0, shares=shares, f_needed=int(any(needed[:WEIGHTS_OF_F])))
        # θ_g and a(0) have no gradient while attention is constant
        constant = range(WEIGHTS_OF_F, WEIGHTS) if inputs.detach else ()
        parts = zip(shares[0].split(counts), weights, needed, strict=True)
        return None, d_h0, *(d.view_as(w) if w is not None and wanted and i not in constant else None
                             for i, (d, w, wanted) in enumerate(parts))


def _call(function: str, plan: MidpointPlan, weights: Any, a: Tensor | None, hidden: Tensor | None,
          **values: Any) -> None:
    z1, z2 = (None, None) if hidden is None else hidden
    if KERNEL.call(function, **plan.sizes, **plan.given, **values, weights=weights, a_saved=a, z1_saved=z1, z2_saved=z2,
                   sizes=[0 if w is None else w.numel() for w in weights], pull=plan.inputs.pull,
                   save=int(hidden is not None), threads=torch.get_num_threads()):
        raise MemoryError("there is no memory left to solve the ODE of this batch")
