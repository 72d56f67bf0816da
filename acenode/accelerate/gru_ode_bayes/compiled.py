"""GRU-ODE-Bayes and ACE in C (the folder `kernel`), for CPUs in single precision."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from acenode.accelerate.c_compiler import Kernel
from acenode.backend import COMPILED_C, Backend
from acenode.data.passes import PassInputs, PassOutputs
from acenode.data.schedule import ScheduledPoints

WEIGHTS, WEIGHTS_WITH_ATTENTION = 11, 15  # number of packed weights
BLOCK, BLOCK_WITH_ATTENTION = 16, 8  # series that advance together
WINDOW = 16  # rows, without attention
SAVE_LIMIT = 2.5e9  # bytes of g's gates that are saved; beyond it the backward pass recomputes them
MAX_LANES = 8  # floats of a vector register, at most


class CPoints(ctypes.Structure):
    """Scheduled points sorted by block of series, then by row."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("first", "order", "row", "series")]


class CPass(ctypes.Structure):
    """The struct `Pass` of `kernel/weights.h`, field by field."""

    _fields_ = [*((name, ctypes.c_int64) for name in ("B", "H", "D", "Q", "F", "S", "block", "every", "span",
                                                      "own_steps", "attention", "own_feedback", "detach", "threads",
                                                      "needed")),
                *((name, ctypes.c_void_p) for name in ("dt", "h0", "a0", "x", "m", "dropout")),
                ("weights", ctypes.c_void_p * WEIGHTS_WITH_ATTENTION), ("observations", CPoints), ("reads", CPoints),
                *((name, ctypes.c_void_p) for name in ("predicted", "before", "after", "read", "h_saved", "a_saved",
                                                       "g_gates", "d_predicted", "d_after", "d_read", "d_h0",
                                                       "d_a0")),
                ("d_weights", ctypes.c_void_p * WEIGHTS_WITH_ATTENTION)]


KERNEL = Kernel(Path(__file__).parent / "kernel" / "jump.c", CPass, ("pass_forward", "pass_backward"))


class PackedWeights(NamedTuple):
    """All as (inputs, outputs). Update gates are negated: σ of their product is o = 1 − z."""

    f_reset: Tensor  # (H, H)
    f_open: Tensor
    f_new: Tensor
    hidden: Tensor  # (H, Q) of p
    hidden_bias: Tensor
    out: Tensor  # (Q, 4D): −log σ²/2, μ, log σ², −μ
    out_bias: Tensor
    features: Tensor  # (4D, D·P) of x, μ, log σ², e = (x − μ)/σ
    features_bias: Tensor
    cell: Tensor  # (D·P + H, 4H): gates r and z, the input's term of n, and h's term of n
    cell_bias: Tensor
    g_gates: Tensor | None = None  # (H, 2H) of the rows of a
    g_new: Tensor | None = None
    g_gates_in: Tensor | None = None  # (H, 2H) of the mean of h'
    g_new_in: Tensor | None = None


def available(backend: Backend) -> bool:
    """Return True if the compiled pass can be used; compiles it the first time."""
    return backend.accelerated and backend.compile_c and KERNEL.load() is not None


def supports(inputs: PassInputs) -> bool:
    """Return True if the C pass can be used for these inputs: float32 on a CPU."""
    attention = inputs.attention
    tensors = [inputs.h0, inputs.x, inputs.m, inputs.schedule.dt, *inputs.weights, inputs.dropout]
    tensors += [] if attention is None else [attention.a0, *attention.weights]
    return inputs.x.shape[1] > 0 and all(v.device.type == "cpu" and v.dtype == torch.float32
                                         for v in tensors if v is not None)


def integrate(backend: Backend, inputs: PassInputs) -> PassOutputs | None:
    """Integrate one batch in C; None if that does not support the inputs, or there is no C compiler."""
    if not supports(inputs) or not available(backend):
        return None
    backend.report_series_by(COMPILED_C)
    a0 = None if inputs.attention is None else inputs.attention.a0
    return PassOutputs(*FusedPass.apply(inputs, torch.is_grad_enabled(), inputs.h0, a0, *pack(inputs)))


class FusedPass(torch.autograd.Function):
    """The whole pass as one node of the graph.

    `FusedPass.apply(inputs, save, h0, a0, *weights)` returns the predictions before the observations (N, 2D), h after
    them (N, H) and h at the read points (R, H).
    """

    @staticmethod
    def forward(ctx: Any, inputs: PassInputs, save: bool, h0: Tensor, a0: Tensor | None,
                *weights: Tensor | None) -> tuple[Tensor, ...]:
        packed: Any = PackedWeights(*(None if w is None else w.detach().contiguous() for w in weights))  # type: ignore[arg-type]
        ctx.run = CompiledPass(inputs, save, packed)
        return ctx.run.run(h0.detach(), None if a0 is None else a0.detach().contiguous())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        return None, None, *ctx.run.backward(grads, ctx.needs_input_grad[4:])


def pack(inputs: PassInputs) -> list[Tensor | None]:
    """Return the packed weights, differentiable in the model's, in the order of `PackedWeights`."""
    w, H, D = inputs.weights, inputs.h0.shape[1], inputs.x.shape[1]
    out, bias = w.p_out.t(), w.p_out_bias
    read, own = w.gru_input.t(), w.gru_hidden.t()
    zeros = own.new_zeros
    packed: list[Tensor | None] = [
        w.f_reset.t(), -w.f_update.t(), w.f_new.t(), w.p_hidden.t(), w.p_hidden_bias,
        torch.cat((-0.5 * out[:, D:], out, -out[:, :D]), 1), torch.cat((-0.5 * bias[D:], bias, -bias[:D])),
        block_diagonal(w.features), w.features_bias.flatten(),
        torch.cat((torch.cat((read, zeros(len(read), H)), 1),
                   torch.cat((own[:, :2 * H], zeros(H, H), own[:, 2 * H:]), 1))),
        torch.cat((w.gru_input_bias + F.pad(w.gru_hidden_bias[:2 * H], (0, H)), w.gru_hidden_bias[2 * H:]))]
    if inputs.attention is not None:
        g = inputs.attention.weights
        sign = inputs.h0.new_ones(2 * H, 1)
        sign[H:] = -1
        packed += [(g.gates * sign).t(), g.new.t(), (g.gates_in * sign).t(), g.new_in.t()]
    return packed


def block_diagonal(features: Tensor) -> Tensor:
    """Return (D, 4, P) as one matrix (4D, D·P), zero between different variables."""
    D, four, P = features.shape
    same = torch.eye(D, dtype=features.dtype, device=features.device).view(1, D, D, 1)
    return (features.transpose(0, 1).unsqueeze(2) * same).reshape(four * D, D * P)


class CompiledPass:
    """One pass over a schedule, with the values that its backward pass needs."""

    def __init__(self, plan: PassInputs, save: bool, w: PackedWeights) -> None:
        self.plan, self.save, self.w = plan, save, w

    def run(self, h0: Tensor, a0: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the predictions before the observations, h after them and h at the read points."""
        plan, w, schedule = self.plan, self.w, self.plan.schedule
        (N, D), (B, H), S = plan.x.shape, h0.shape, schedule.rows
        block, every, span = BLOCK, WINDOW, 1
        if a0 is not None:
            assert plan.attention is not None
            block, every = BLOCK_WITH_ATTENTION, plan.attention.every
            span = math.ceil(math.sqrt((S - 1) / every)) or 1  # as many windows between saved states as saved states
        self.sizes = {"B": B, "H": H, "D": D, "Q": w.hidden.shape[1], "F": w.features.shape[1], "S": S, "block": block,
                      "every": every, "span": span, "own_steps": int(schedule.dt.shape[1] == B),
                      "attention": int(a0 is not None)}
        if plan.attention is not None:
            self.sizes |= {"own_feedback": plan.attention.own_feedback, "detach": plan.attention.detach}
        new, saved = h0.new_empty, math.ceil((S - 1) / (every * span))
        after = new(N, H)
        tensors = {"dt": schedule.dt, "h0": h0, "a0": a0, "x": plan.x, "m": plan.m, "dropout": plan.dropout}
        self.tensors = {k: v.contiguous() for k, v in tensors.items() if v is not None}
        self.tensors |= {"before": new(N, H), "after": after, "h_saved": new(saved, B, H)}
        if a0 is not None:
            self.tensors["a_saved"] = new(saved, B, H, H)
            gates = max(S - 2, 0) // every * B * 3 * H * math.ceil(H / MAX_LANES) * MAX_LANES
            if self.save and 4 * gates <= SAVE_LIMIT:
                self.tensors["g_gates"] = new(gates)
        self.points = [_by_block(points, B, block) for points in (schedule.observations, schedule.reads)]
        predicted, read = new(N, 2 * D), new(len(schedule.reads), H)
        self._call("pass_forward", predicted=predicted, read=read)
        # an output that this object holds would be a reference cycle through its grad_fn
        return predicted, after.detach(), read

    def backward(self, grads: tuple[Tensor, ...], needed: tuple[bool, ...]) -> list[Any]:
        """Return ∂h(0), ∂a(0) and ∂weights, None for weights that need no gradient."""
        found = [torch.empty_like(w) if w is not None and wanted else None
                 for w, wanted in zip(self.w, needed, strict=False)]
        out = {"d_h0": torch.empty_like(self.tensors["h0"])}
        if "a0" in self.tensors:
            out["d_a0"] = torch.zeros_like(self.tensors["a0"])
        d_predicted, d_after, d_read = (g.contiguous() for g in grads)
        gates = {"g_gates": self.tensors.pop("g_gates")} if "g_gates" in self.tensors else {}  # will be overwritten
        self._call("pass_backward", found, d_predicted=d_predicted, d_after=d_after, d_read=d_read, **out, **gates)
        return [out["d_h0"], out.get("d_a0"), *found]

    def _call(self, name: str, found: list[Tensor | None] | None = None, **more: Tensor) -> None:
        job = CPass(**self.sizes, **{k: v.data_ptr() for k, v in (self.tensors | more).items()})
        job.threads = torch.get_num_threads()
        job.observations, job.reads = (CPoints(*(v.data_ptr() for v in points)) for points in self.points)
        for i, w in enumerate(self.w[:WEIGHTS_WITH_ATTENTION]):
            job.weights[i] = None if w is None else w.data_ptr()
        for i, d in enumerate(found or []):
            if d is not None:
                job.needed |= 1 << i
                job.d_weights[i] = d.data_ptr()
        if getattr(KERNEL.load(), name)(job):
            raise MemoryError("there is no memory left for a pass over the series")


def _by_block(points: ScheduledPoints, B: int, size: int) -> tuple[Tensor, ...]:
    """Sort points by block of `size` series; return where each block starts, the order, and the rows and series."""
    block, count = points.series.div(size, rounding_mode="floor"), -(-B // size)
    first = torch.zeros(count + 1, dtype=torch.int64)
    first[1:] = torch.bincount(block, minlength=count).cumsum(0)
    return first, torch.argsort(block, stable=True), points.row.contiguous(), points.series.contiguous()
