"""Named variables by steps of the midpoint rule in C (the folder `kernel`), for CPUs in single precision.

All steps are one node of the autograd graph. Its weights are stored by input and padded with zeros to whole vectors;
the terms of the embeddings are added up before the solve, since they do not change during it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from acenode.accelerate.c_compiler import Kernel
from acenode.backend import COMPILED_C, Backend
from acenode.data.passes import MidpointInputs, MidpointStates
from acenode.device.torch_private import transforms_active

WEIGHTS = 14
WEIGHTS_OF_F = 7  # the first of them
BLOCK_ROWS = 32  # rows of h, a row for each variable, that advance together
SAVE_LIMIT = 1e9  # bytes of hidden layers that are saved; beyond it the backward pass recomputes them
LEAST = -1e30  # entries that pad the rows of a
NO_ATTENTION, FIXED, EVOLVING = range(3)


class CSolve(ctypes.Structure):
    """The struct `Solve` of `kernel/field.h`, field by field."""

    _fields_ = [*((name, ctypes.c_int64) for name in ("B", "V", "K", "C", "U", "R", "N", "attention", "detach",
                                                      "slopes", "save", "block", "threads", "needed")),
                ("pull", ctypes.c_double), *((name, ctypes.c_void_p) for name in ("t", "dt", "h0", "control")),
                ("weights", ctypes.c_void_p * WEIGHTS),
                *((name, ctypes.c_void_p) for name in ("h", "k", "a_saved", "z1_saved", "z2_saved", "failed", "d_h",
                                                       "d_k", "d_h0")),
                ("d_weights", ctypes.c_void_p * WEIGHTS)]


KERNEL = Kernel(Path(__file__).parent / "kernel" / "midpoint.c", CSolve, ("solve_forward", "solve_backward"))


@dataclass(frozen=True)
class MidpointPlan:
    """What a solve needs besides h(0) and the weights."""

    inputs: MidpointInputs
    attention: int
    t: Tensor  # (2N + 1,), the times of the evaluations
    dt: Tensor  # (N,)
    units: int
    padded: int  # rows of a hidden layer, in whole vectors
    row: int  # numbers in a padded row of a


def solve(backend: Backend, inputs: MidpointInputs) -> MidpointStates | None:
    """Solve by the compiled pass; None if it does not support the inputs, or there is no C compiler."""
    if not _supports(inputs) or (kernel := _kernel(backend)) is None:
        return None
    backend.report_series_by(COMPILED_C)
    lanes, V = kernel.lanes(), inputs.h0.shape[1]
    attention = NO_ATTENTION if inputs.a0 is None else FIXED if inputs.g is None else EVOLVING
    times = [t for a, b in pairwise(inputs.grid) for t in (a, a + 0.5 * (b - a))]
    units = len(inputs.f[0][0])
    plan = MidpointPlan(inputs, attention, torch.tensor([*times, inputs.grid[-1]]),
                        torch.tensor([b - a for a, b in pairwise(inputs.grid)]), units, _up(units, lanes),
                        _up(V, lanes))
    h, slopes, failed = CompiledSolve.apply(plan, kernel, inputs.h0, *_pack(inputs, attention, lanes))
    return MidpointStates(h, slopes if inputs.slopes else None, int(failed))


def available(backend: Backend) -> bool:
    """Return True if the compiled pass can be used; compiles it the first time."""
    return _kernel(backend) is not None


def _supports(inputs: MidpointInputs) -> bool:
    """Return True for float32 on a CPU and an f of three layers; the controls must not need a gradient."""
    tensors = [x for x in (inputs.h0, inputs.a0, inputs.e, inputs.control) if x is not None]
    tensors += [p for layer in (*inputs.f, *([inputs.g] if inputs.g is not None else [])) for p in layer]
    return (len(inputs.f) == 3 and len(set(inputs.f[1][0].shape)) == 1 and not transforms_active()
            and all(x.device.type == "cpu" and x.dtype == torch.float32 for x in tensors)
            and (inputs.control is None or not inputs.control.requires_grad))


def _kernel(backend: Backend) -> ctypes.CDLL | None:
    return KERNEL.load() if backend.accelerated and backend.compile_c else None


def _up(n: int, lanes: int) -> int:
    return -(-n // lanes) * lanes


def _padded(x: Tensor, lanes: int, rows: bool = True) -> Tensor:
    """Pad a matrix (inputs, outputs), or with `rows` False its columns alone, to whole vectors."""
    missing = [(-n) % lanes for n in x.shape]
    return F.pad(x, (0, missing[-1], *((0, missing[0]) if rows and x.dim() > 1 else ())))


def _pack(inputs: MidpointInputs, attention: int, lanes: int) -> list[Tensor | None]:
    """Return the weights in the order of `kernel/field.h`."""
    k, parts = inputs.h0.shape[-1], [inputs.h0.shape[-1]] * (2 if attention else 1)
    parts += [] if inputs.control is None else [inputs.control.shape[-1]]
    (w1, b1), (w2, b2), (w3, b3) = inputs.f
    *own, time, embedded = w1.t().split((*parts, 1, inputs.e.shape[1]))
    weights: list[Tensor | None] = [
        torch.cat([_padded(part, lanes) for part in own]), _padded(torch.addmm(b1, inputs.e, embedded), lanes, False),
        _padded(time[0], lanes), _padded(w2.t(), lanes), _padded(b2, lanes), _padded(inputs.speed * w3.t(), lanes),
        _padded(inputs.speed * b3, lanes)]
    if inputs.g is not None:
        weight, bias = inputs.g
        for scale, w, b in zip((inputs.speed / inputs.rank, 1.0), weight.chunk(2), bias.chunk(2), strict=True):
            own_m, time, embedded = (scale * w.t()).split((k, 1, inputs.e.shape[1]))
            weights += [_padded(own_m, lanes), _padded(torch.addmm(scale * b, inputs.e, embedded), lanes, False),
                        _padded(time[0], lanes)]
    weights += [None] * (WEIGHTS - 1 - len(weights))
    if inputs.a0 is None:
        return [*weights, None]
    missing = (0, -inputs.a0.shape[1] % lanes)
    if attention == FIXED:
        return [*weights, F.pad(torch.softmax(inputs.a0, -1), missing)]
    return [*weights, F.pad(inputs.a0, missing, value=LEAST)]


class CompiledSolve(torch.autograd.Function):
    """Map h(0) (B, V, k) and the weights to h and, if wanted, dh/dt at the ends of steps, (N + 1, B, V, k)."""

    @staticmethod
    def forward(ctx: Any, plan: MidpointPlan, kernel: ctypes.CDLL, h0: Tensor,
                *weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        trains, (B, V, _), N = any(ctx.needs_input_grad), h0.shape, len(plan.dt)
        h0, weights = h0.contiguous(), tuple(None if w is None else w.contiguous() for w in weights)
        h = h0.new_empty(N + 1, *h0.shape)
        slopes = torch.empty_like(h) if plan.inputs.slopes else h.new_empty(0)
        a = h.new_empty(N + 1, B, V, plan.row) if trains and plan.attention == EVOLVING else None
        saved = trains and plan.inputs.save and 8 * len(plan.t) * B * V * plan.padded <= SAVE_LIMIT
        hidden = h.new_empty(2, len(plan.t), B * V, plan.padded) if saved else None
        blocks = -(-B // _block(V))
        failed = torch.full((blocks,), N, dtype=torch.int64)
        _call(kernel.solve_forward, plan, weights, a, hidden, h0=h0, h=h, k=slopes, failed=failed)
        if trains:
            ctx.plan, ctx.kernel = plan, kernel
            ctx.save_for_backward(h, a, hidden, *weights)
        first = failed.min()
        ctx.mark_non_differentiable(first)
        return h, slopes, first

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        plan, (h, a, hidden, *weights) = ctx.plan, ctx.saved_tensors
        needed = ctx.needs_input_grad[3:]
        # θ_g and a(0) have no gradient while attention is constant
        constant = range(WEIGHTS_OF_F, WEIGHTS) if plan.inputs.detach else ()
        found = [torch.empty_like(w) if w is not None and needed[i] and i not in constant else None
                 for i, w in enumerate(weights)]
        d_h0 = torch.empty_like(h[0])
        if hidden is None:
            plan.inputs.cost.backward += len(plan.t) - (0 if plan.inputs.slopes else 1)
        _call(ctx.kernel.solve_backward, plan, weights, a, hidden, found, h=h, d_h=grads[0].contiguous(),
              d_k=grads[1].contiguous(), d_h0=d_h0)
        return None, None, d_h0, *found


def _block(variables: int) -> int:
    """Return how many series advance together."""
    return -(-BLOCK_ROWS // variables)


def _call(function: Any, plan: MidpointPlan, weights: Sequence[Tensor | None], a: Tensor | None, hidden: Tensor | None,
          found: Sequence[Tensor | None] = (), **tensors: Tensor) -> None:
    inputs = plan.inputs
    control = None if inputs.control is None else inputs.control.contiguous()
    B, V, K = inputs.h0.shape
    job = CSolve(B=B, V=V, K=K, C=0 if control is None else control.shape[-1], U=plan.units, R=inputs.rank,
                 N=len(plan.dt), attention=plan.attention, detach=int(inputs.detach), slopes=int(inputs.slopes),
                 save=int(hidden is not None), block=_block(V), threads=torch.get_num_threads(), pull=inputs.pull,
                 t=plan.t.data_ptr(), dt=plan.dt.data_ptr(), control=None if control is None else control.data_ptr(),
                 a_saved=None if a is None else a.data_ptr(), **{name: x.data_ptr() for name, x in tensors.items()})
    if hidden is not None:
        job.z1_saved, job.z2_saved = hidden[0].data_ptr(), hidden[1].data_ptr()
    for i, w in enumerate(weights):
        job.weights[i] = None if w is None else w.data_ptr()
    for i, d in enumerate(found):
        job.d_weights[i] = None if d is None else d.data_ptr()
    job.needed = int(any(d is not None for d in found[:WEIGHTS_OF_F]))
    if function(job):
        raise MemoryError("there is no memory left to solve the ODE of this batch")
