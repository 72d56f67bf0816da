"""GRU-ODE-Bayes and ACE in C (`pass.c`), for CPUs in single precision."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from acenode.accelerate.c_compiler import Kernel, fields, padded, split_gradients
from acenode.backend import COMPILED_C, Backend
from acenode.data.passes import PassInputs, PassOutputs
from acenode.data.schedule import ScheduledPoints

OF_F, OF_JUMP, OF_G = slice(0, 2), slice(2, 10), slice(10, 14)  # packed weights
BLOCK, BLOCK_WITH_ATTENTION = 16, 8  # series that advance together
CHUNKS = 64  # separate sums of gradients, at most
WINDOW = 16  # rows, without attention
SAVE_LIMIT = 2.5e9  # bytes of g's gates that are saved; beyond it the backward pass recomputes them
UNOBSERVED = -1e9  # added to the features of unobserved variables
SIGMOID_SCALE = -1 / math.log(2)  # of the weights of gates, see `vectors.h`
SCALES = {0: SIGMOID_SCALE, 1: 2 * SIGMOID_SCALE, 10: SIGMOID_SCALE, 11: 2 * SIGMOID_SCALE, 12: SIGMOID_SCALE,
          13: 2 * SIGMOID_SCALE}


class CPass(ctypes.Structure):
    """The struct `Pass` of `pass.c`, field by field."""

    _fields_ = [*fields("B S units H D Q F block every span chunks attention own_feedback detach threads f_needed "
                        "jump_needed g_needed", ctypes.c_int64),
                ("sizes", ctypes.c_int64 * OF_G.stop), ("observations", ctypes.c_void_p * 3),
                ("reads", ctypes.c_void_p * 3), *fields("dt h0 a0 x unobserved dropout"),
                ("weights", ctypes.c_void_p * OF_G.stop), ("transposed", ctypes.c_void_p * OF_G.stop),
                *fields("predicted before after read h_saved a_saved g_gates d_predicted d_after d_read d_h0 d_a0 "
                        "shares")]


KERNEL = Kernel(Path(__file__).parent / "pass.c", CPass)


def supports(inputs: PassInputs) -> bool:
    """Return True if the C pass can be used for these inputs: float32 on a CPU."""
    attention = inputs.attention
    tensors = [inputs.h0, inputs.x, inputs.m, inputs.schedule.dt, *inputs.weights, inputs.dropout]
    tensors += [] if attention is None else [attention.a0, *attention.weights]
    return inputs.x.shape[1] > 0 and all(v.device.type == "cpu" and v.dtype == torch.float32
                                         for v in tensors if v is not None)


def integrate(backend: Backend, inputs: PassInputs) -> PassOutputs | None:
    """Integrate one batch in C; None if that does not support the inputs, or there is no C compiler."""
    if not supports(inputs) or (library := KERNEL.allowed(backend)) is None:
        return None
    backend.report_series_by(COMPILED_C)
    lanes, attention, schedule = library.lanes(), inputs.attention, inputs.schedule
    (B, H), S, D = inputs.h0.shape, schedule.rows, inputs.x.shape[1]
    block, every, span = BLOCK, WINDOW, 1
    if attention is not None:
        block, every = BLOCK_WITH_ATTENTION, attention.every
        span = math.ceil(math.sqrt((S - 1) / every)) or 1  # as many windows between saved states as saved states
    (order, *observations), (read_order, *reads) = (_by_block(points, B, block)
                                                    for points in (schedule.observations, schedule.reads))
    weights, h0 = pack(inputs, lanes), padded(inputs.h0, lanes, False)
    given: dict[str, Any] = {
        "B": B, "S": S, "units": H, "H": h0.shape[1], "D": -(-D // lanes) * lanes, "Q": len(weights[3]),
        "F": len(weights[7]), "block": block, "every": every, "span": span, "chunks": min(-(-B // block), CHUNKS),
        "attention": int(attention is not None), "observations": observations, "reads": reads,
        "dt": schedule.dt.squeeze(-1).expand(-1, B).contiguous()}
    if attention is not None:
        given |= {"own_feedback": int(attention.own_feedback), "detach": int(attention.detach)}
    unobserved = ((1 - inputs.m) * UNOBSERVED).repeat_interleave(inputs.weights.features.shape[2], 1)
    given |= {name: None if x is None else padded(x[order], lanes, False)
              for name, x in (("x", inputs.x), ("unobserved", unobserved), ("dropout", inputs.dropout))}
    a0 = None if attention is None else padded(attention.a0, lanes, False)
    predicted, after, read = CompiledPass.apply(given, torch.is_grad_enabled(), h0, a0, *weights)
    place, read_place = order.argsort(), read_order.argsort()
    return PassOutputs(predicted.unflatten(1, (2, -1))[place, :, :D].flatten(1), after[place, :H], read[read_place, :H])


def _by_block(points: ScheduledPoints, B: int, size: int) -> tuple[Tensor, ...]:
    """Sort points by block of `size` series; return the order, where each block starts, and the rows and series."""
    block, count = points.series.div(size, rounding_mode="floor"), -(-B // size)
    first, order = torch.zeros(count + 1, dtype=torch.int64), torch.argsort(block, stable=True)
    first[1:] = torch.bincount(block, minlength=count).cumsum(0)
    return order, first, points.row[order], (points.series - block * size)[order]


def pack(inputs: PassInputs, lanes: int) -> list[Tensor]:
    """Return the weights combined into few matrices (inputs, outputs), differentiable, in the order of `pass.c`.

    Their sections are padded to whole vectors. Update gates are negated: σ of their product is o = 1 − z.
    """
    w = inputs.weights

    def grid(*rows: Sequence[Tensor]) -> Tensor:
        return torch.cat([torch.cat([padded(part, lanes) for part in row], -1) for row in rows])

    mean, logvar = w.p_out.t().chunk(2, 1)
    D, bias = len(w.features), w.p_out_bias
    bias = torch.cat((-0.5 * bias[D:], bias, -bias[:D]))
    r, z, n = w.gru_input.t().chunk(3, 1)
    r_h, z_h, n_h = w.gru_hidden.t().chunk(3, 1)
    r_bias, z_bias, n_bias = w.gru_input_bias.chunk(3)
    r_own, z_own, n_own = w.gru_hidden_bias.chunk(3)
    packed = [
        grid((w.f_reset.t(), -w.f_update.t())), grid((w.f_new.t(),)), grid((w.p_hidden.t(),)), grid((w.p_hidden_bias,)),
        grid((-0.5 * logvar, mean, logvar, -mean)), grid(bias.chunk(4)),
        grid(*((torch.block_diag(*each.unsqueeze(1)),) for each in w.features.unbind(1))),
        grid((w.features_bias.flatten(),)),
        grid((r, z, n, torch.zeros_like(n)), (r_h, z_h, torch.zeros_like(n_h), n_h)),
        grid((r_bias + r_own, z_bias + z_own, n_bias, n_own))]
    if inputs.attention is not None:
        g = inputs.attention.weights
        for gates, new in ((g.gates, g.new), (g.gates_in, g.new_in)):
            reset, update = gates.t().chunk(2, 1)
            packed += [grid((reset, -update)), grid((new.t(),))]
    return packed


def scaled(weights: Sequence[Tensor]) -> list[Tensor]:
    return [SCALES[i] * w if i in SCALES else w for i, w in enumerate(weights)]


class CompiledPass(torch.autograd.Function):
    """The whole pass as one node of the graph; all tensors have padded columns.

    `CompiledPass.apply(given, save, h0, a0, *weights)` returns the predictions before the observations (N, 2D), h after
    them (N, H) and h at the read points (R, H), by block of series. `given` is what the C function takes beside these;
    with `save`, what the backward pass needs is kept.
    """

    @staticmethod
    def forward(ctx: Any, given: dict[str, Any], save: bool, h0: Tensor, a0: Tensor | None,
                *weights: Tensor) -> tuple[Tensor, ...]:
        (B, H), S, N, new, every = h0.shape, given["S"], len(given["observations"][1]), h0.new_empty, given["every"]
        saved = math.ceil((S - 1) / (every * given["span"]))
        tensors = {"h0": h0.contiguous(), "before": new(N, H), "after": new(N, H), "h_saved": new(saved, B, H)}
        if a0 is not None:
            tensors |= {"a0": a0.contiguous(), "a_saved": new(saved, *a0.shape)}
            gates = max(S - 2, 0) // every * 3 * a0.numel()
            if save and 4 * gates <= SAVE_LIMIT:
                tensors["g_gates"] = new(gates)
        ctx.given, ctx.tensors, ctx.weights = given, tensors, [w.contiguous() for w in weights]
        predicted, read = new(N, 2 * given["D"]), new(len(given["reads"][1]), H)
        KERNEL.call("pass_forward", weights=scaled(ctx.weights), **given, **tensors, predicted=predicted, read=read)
        # an output that this object holds would be a reference cycle through its grad_fn
        return predicted, tensors["after"].detach(), read

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        given, weights, tensors, needed = ctx.given, ctx.weights, ctx.tensors, ctx.needs_input_grad[4:]
        groups = {"f_needed": OF_F, "jump_needed": OF_JUMP, "g_needed": OF_G}
        flags = {name: int(any(needed[part])) for name, part in groups.items()}
        d_predicted, d_after, d_read = (g.contiguous() for g in grads)
        d_h0, d_a0 = torch.empty_like(tensors["h0"]), torch.zeros_like(tensors["a0"]) if "a0" in tensors else None
        shares = d_h0.new_zeros(given["chunks"], sum(w.numel() for w in weights))
        transposed = [(w[given["D"]:] if i == 6 else w).t().contiguous() for i, w in enumerate(weights)]
        KERNEL.call("pass_backward", weights=scaled(weights), **given, **tensors, transposed=transposed,
                    d_predicted=d_predicted, d_after=d_after, d_read=d_read, d_h0=d_h0, d_a0=d_a0, shares=shares,
                    **flags)
        tensors.pop("g_gates", None)  # overwritten by gradients
        return None, None, d_h0, d_a0, *split_gradients(shares, weights, needed)
