"""Runge–Kutta steps of the image models in C (`image_steps.c`), for CPUs in single precision.

They are used where several seeds are trained at once, which then take little longer than one (docs/many_seeds.md).
Encoder, q, read-out and optimisers stay in torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.accelerate.c_compiler import Kernel, fields
from acenode.accelerate.dispatch import TimeConvField
from acenode.attention import Elementwise
from acenode.backend import Backend
from acenode.errors import SolveError
from acenode.node import ACENODE, NODE
from acenode.ode.options import Solver
from acenode.ode.runge_kutta import Evaluations, State, Step
from acenode.ode.stepping import SharedSteps, adaptive_steps
from acenode.ode.tableaus import TABLEAUS
from acenode.training.task import Loss, PiecewiseTask
from acenode.training.trainer import PassResult, PassSpec, run_pass

MAX_STAGES = 16
CHUNKS = 8  # of the samples, whose gradients are summed apart


class CJob(ctypes.Structure):
    """The struct `Job` of `image_steps.c`, field by field."""

    _fields_ = [*fields("B height side C groups blocks chunks threads detach stages end_used", ctypes.c_int64),
                ("convs", ctypes.c_int64 * 2), ("trains", ctypes.c_int64 * 2),
                *fields("gradient_size kept_size", ctypes.c_int64), *fields("t dt eps rtol atol", ctypes.c_double),
                ("c", ctypes.c_double * MAX_STAGES), ("a", ctypes.c_double * MAX_STAGES**2),
                ("error", ctypes.c_double * (MAX_STAGES + 1)),
                *fields("parameters y k y1 k1 kept squares dy dk gradients")]


KERNEL = Kernel(Path(__file__).with_suffix(".c"), CJob)


def fields_of(layer: Any) -> list[Any]:
    """Return f, and g if attention evolves; none for a layer that the kernel cannot integrate."""
    if isinstance(layer, ACENODE) and layer.attention == "evolving":
        return [layer.f, layer.g] if type(layer.attend) is Elementwise and not layer.g_reads_attention else []
    plain = isinstance(layer, NODE) or (isinstance(layer, ACENODE) and layer.attention == "none")
    return [layer.f] if plain else []


def supports(layer: Any, backend: Backend) -> bool:
    """Return True if the kernel can integrate a layer: convolutional fields, an adaptive method, and a C compiler."""
    networks, tableau = fields_of(layer), TABLEAUS.get(getattr(getattr(layer, "solver", None), "method", ""))
    if tableau is None or not (tableau.adaptive and tableau.fsal and len(tableau.a) < MAX_STAGES):
        return False
    if not networks or not all(isinstance(f, TimeConvField) for f in networks) or (
            kernel := KERNEL.allowed(backend)) is None:
        return False
    norms = {(norm.num_channels, norm.num_groups, norm.eps) for f in networks for norm in f.time_conv_layers()[0]}
    return (len(norms) == 1 and next(iter(norms))[0] % kernel.lanes() == 0
            and all(p.dtype == torch.float32 and p.device.type == "cpu" for f in networks for p in f.parameters()))


class FieldLayout:
    """How the parameters of a field and their gradients are packed into a row, for maps of `pixels` = H·W."""

    def __init__(self, field: TimeConvField, height: int, side: int) -> None:
        (*norms, self.last), self.convs = field.time_conv_layers()
        self.layers = list(zip(norms, self.convs, strict=True))
        self.inside = F.unfold(torch.ones(1, 1, height, side), 3, padding=1)[0]  # (9, pixels), the taps in the image
        self.C, self.pixels = self.last.num_channels, height * side
        C, P, convs = self.C, self.pixels, len(self.convs)
        self.kept = 2 * C * (convs + 1) + P * C * convs  # floats of an evaluation
        self.sizes = [C, C, 9 * C * C, P * C, P * C] * convs + [C, C]
        self.trains = int(any(p.requires_grad for p in field.parameters()))

    def parameters(self) -> list[nn.Parameter]:
        """Return the parameters, layer by layer."""
        return [p for norm, conv in self.layers for p in (norm.weight, norm.bias, conv.weight, conv.time, conv.bias)
                ] + [self.last.weight, self.last.bias]

    def pack(self) -> list[Tensor]:
        """Return what the kernel reads, in the order of `Layer`."""
        packed = [x for norm, conv in self.layers for x in (
            norm.weight, norm.bias, conv.weight.permute(2, 3, 1, 0), conv.weight.flip(2, 3).permute(2, 3, 0, 1),
            conv.bias, (conv.time.flatten(1) @ self.inside).T)]
        return [x.detach().reshape(-1) for x in (*packed, self.last.weight, self.last.bias)]

    def unpack(self, gradients: Tensor) -> list[Tensor]:
        """Return the gradients of the parameters from those in the order of `LayerGradient`."""
        parts, found = gradients.split(self.sizes), list[Tensor]()
        for i in range(0, 5 * len(self.convs), 5):
            scale, shift, weight, total, timed = parts[i:i + 5]
            time = timed.view(self.pixels, self.C).T @ self.inside.T
            found += [scale, shift, weight.view(3, 3, self.C, self.C).permute(3, 2, 0, 1), time.view(-1, 1, 3, 3),
                      total.view(self.pixels, self.C).sum(0)]
        return [*found, *parts[-2:]]


class KernelSolve(SharedSteps):
    """One solve from 0 to 1 of states (B, blocks, pixels, C), which can be differentiated.

    Args:
        layer: `supports` accepts it.
        like: one block, (B, C, H, W), after augmentation.
        detach_attention: treat a(t) as a constant in the gradient.
        cost: counts evaluations and steps.
        memory: for what the gradient needs, one tensor an attempt, by their shape; filled up as needed.
    """

    def __init__(self, layer: Any, like: Tensor, detach_attention: bool, cost: Evaluations,
                 memory: dict[torch.Size, list[Tensor]]) -> None:
        self.solver, self.cost, self.tableau = layer.solver, cost, TABLEAUS[layer.solver.method]
        B, C, height, side = like.shape
        self.fields = [FieldLayout(field, height, side) for field in fields_of(layer)]
        self.shape = (B, len(self.fields), height * side, C)
        floats = len(self.fields) * height * side * C + sum(field.kept for field in self.fields)
        norm, rows = self.fields[0].last, self.tableau.a
        self.stages, self.chunks, kept = len(rows), min(CHUNKS, B), (floats + 15) // 16 * 16
        self.sizes = [sum(field.sizes) for field in self.fields]
        self.given: dict[str, Any] = {  # what all functions of the kernel take
            "B": B, "height": height, "side": side, "C": C, "groups": norm.num_groups, "eps": norm.eps,
            "stages": self.stages, "blocks": len(self.fields), "chunks": self.chunks, "detach": int(detach_attention),
            "kept_size": kept, "gradient_size": sum(self.sizes), "rtol": self.solver.rtol, "atol": self.solver.atol,
            "parameters": torch.cat([x for field in self.fields for x in field.pack()]),
            "convs": [len(field.convs) for field in self.fields], "trains": [field.trains for field in self.fields],
            "c": self.tableau.c, "a": [w for row in rows for w in (*row, *[0.0] * (MAX_STAGES - len(row)))],
            "error": self.tableau.error or ()}
        self.kept_first = torch.empty(2, B, kept)  # of the first slope, and of the trial step's
        self.kept = memory.setdefault(torch.Size((B, self.stages, kept)), [])
        self.attempts: list[tuple[float, float]] = []  # t and dt
        self.accepted: list[int] = []  # numbers of attempts

    def __call__(self, t: float, y: State) -> State:
        """Return the slope at the start, and then that of the trial step."""
        self.cost.forward += 1
        k = torch.empty(self.shape)
        KERNEL.call("step_first", **self.given, t=t, y=y[0], k1=k, kept=self.kept_first[int(t > 0)])
        return (k,)

    def norm(self, error: State, y0: State, y1: State, solver: Solver) -> float:
        scaled = error[0] / torch.maximum(y0[0].abs(), y1[0].abs()).mul_(solver.rtol).add_(solver.atol)
        return float(scaled.square_().mean((0, 2, 3)).sqrt_().max())

    def attempt(self, _: Any, t: float, dt: float, y: State, k1: State) -> tuple[Step, float]:
        number = len(self.attempts)
        if number == len(self.kept):
            self.kept.append(torch.empty(self.shape[0], self.stages, self.given["kept_size"]))
        y1, k = torch.empty(self.shape), torch.empty(self.shape)
        squares = torch.empty(self.shape[:2], dtype=torch.float64)
        KERNEL.call("step_attempt", **self.given, t=t, dt=dt, y=y[0], k=k1[0], y1=y1, k1=k, squares=squares,
                    kept=self.kept[number])
        self.attempts.append((t, dt))
        self.cost.forward += self.stages
        ks = [k1] * self.stages + [(k,)]  # nobody reads the stages between
        return Step(t, dt, y, ks, (y1,)), float(squares.sum(0).div_(y1[0, 0].numel() * len(y1)).sqrt_().max())

    def integrate(self, y: Tensor) -> Tensor:
        for step in adaptive_steps(self, (y,), (0.0, 1.0), self.solver, self, self.attempt):  # type: ignore[arg-type]
            self.accepted.append(len(self.attempts) - 1)
            y = step.y1[0]
        return y

    def differentiate(self, dy: Tensor) -> list[Tensor]:
        """Turn the gradient of the end into that of the start, in place; return those of the parameters."""
        dk, gradients = torch.zeros(self.shape), torch.zeros(self.chunks, sum(self.sizes))
        given = {**self.given, "dy": dy, "dk": dk, "gradients": gradients}
        for i, number in enumerate(reversed(self.accepted)):
            t, dt = self.attempts[number]
            KERNEL.call("step_attempt_back", **given, t=t, dt=dt, end_used=int(i > 0), kept=self.kept[number])
        KERNEL.call("step_first_back", **given, t=0.0, kept=self.kept_first[0])
        of_fields = gradients.sum(0).split(self.sizes)
        return [x for field, row in zip(self.fields, of_fields, strict=True) for x in field.unpack(row)]


class _Solve(torch.autograd.Function):
    """h(1), (B, C, H, W), from the blocks of the initial state and the parameters of the fields."""

    @staticmethod
    def forward(ctx: Any, solve: KernelSolve, *tensors: Tensor) -> Tensor:
        blocks = tensors[:len(solve.fields)]
        ctx.solve, ctx.shape = solve, blocks[0].shape
        y = solve.integrate(torch.stack([b.flatten(2).transpose(1, 2) for b in blocks], 1))
        return y[:, 0].transpose(1, 2).reshape(ctx.shape)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        dy = torch.zeros(ctx.solve.shape)
        dy[:, 0] = grads[0].flatten(2).transpose(1, 2)
        of_parameters = ctx.solve.differentiate(dy)
        return None, *(b.transpose(1, 2).reshape(ctx.shape) for b in dy.unbind(1)), *of_parameters


class KernelPasses:
    """An engine that does the passes of one of several runs, which share lock and memory: one pass at a time."""

    def __init__(self, task: PiecewiseTask, lock: Lock, memory: dict[torch.Size, list[Tensor]]) -> None:
        self.task, self.model, self.lock, self.memory = task, task.model, lock, memory
        self.on_fallback: Callable[[str], None] = lambda line: None

    def run(self, spec: PassSpec, batch: Any) -> PassResult | None:
        """Do a pass; None if its solve fails, so that the run does it by itself and gets an error of its own."""
        with self.lock:
            try:
                return run_pass(self, spec, batch)  # type: ignore[arg-type]
            except SolveError:
                return None

    def loss(self, batch: Sequence[Tensor], *, detach_attention: bool) -> Loss:
        layer: Any = self.task.layer
        _, state = layer.system(self.task.encode(batch), detach_attention)
        cost = Evaluations()
        solve = KernelSolve(layer, state[0], detach_attention, cost, self.memory)
        h1 = _Solve.apply(solve, *state, *(p for field in solve.fields for p in field.parameters()))
        return Loss(*self.task.read_out(h1, batch), cost)

    def close(self) -> None: ...
