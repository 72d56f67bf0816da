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

from acenode.accelerate.c_compiler import Kernel
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

    _fields_ = [*((name, ctypes.c_int64) for name in ("B", "height", "side", "C", "groups", "blocks", "chunks",
                                                      "threads", "detach", "stages", "end_used")),
                ("convs", ctypes.c_int64 * 2), ("trains", ctypes.c_int64 * 2),
                *((name, ctypes.c_int64) for name in ("gradient_size", "kept_size")),
                *((name, ctypes.c_double) for name in ("t", "dt", "eps", "rtol", "atol")),
                ("c", ctypes.c_double * MAX_STAGES), ("a", ctypes.c_double * MAX_STAGES * MAX_STAGES),
                ("error", ctypes.c_double * (MAX_STAGES + 1)),
                *((name, ctypes.c_void_p) for name in ("parameters", "y", "k", "y1", "k1", "kept", "squares", "dy",
                                                       "dk", "gradients"))]


KERNEL = Kernel(Path(__file__).with_suffix(".c"), CJob,
                ("step_first", "step_attempt", "step_attempt_back", "step_first_back"))


def fields_of(layer: Any) -> list[Any]:
    """Return f, and g if attention evolves; none for a layer that the kernel cannot integrate."""
    if isinstance(layer, ACENODE) and layer.attention == "evolving":
        return [layer.f, layer.g] if type(layer.attend) is Elementwise and not layer.g_reads_attention else []
    plain = isinstance(layer, NODE) or (isinstance(layer, ACENODE) and layer.attention == "none")
    return [layer.f] if plain else []


def supports(layer: Any, backend: Backend) -> bool:
    """Return True if the kernel can integrate a layer: convolutional fields, an adaptive method, and a C compiler."""
    solver, fields = getattr(layer, "solver", None), fields_of(layer)
    if not isinstance(solver, Solver) or not backend.accelerated or not backend.compile_c:
        return False
    tableau = TABLEAUS.get(solver.method)
    if tableau is None or not (tableau.adaptive and tableau.fsal and len(tableau.a) < MAX_STAGES):
        return False
    if not fields or not all(isinstance(field, TimeConvField) for field in fields) or (kernel := KERNEL.load()) is None:
        return False
    norms = {(norm.num_channels, norm.num_groups, norm.eps) for field in fields for norm in field.time_conv_layers()[0]}
    return (len(norms) == 1 and next(iter(norms))[0] % kernel.lanes() == 0
            and all(p.dtype == torch.float32 and p.device.type == "cpu" for field in fields
                    for p in field.parameters()))


class FieldLayout:
    """How the parameters of a field and their gradients are packed into a row, for maps of `pixels` = H·W."""

    def __init__(self, field: TimeConvField, height: int, side: int) -> None:
        self.norms, self.convs = field.time_conv_layers()
        self.inside = F.unfold(torch.ones(1, 1, height, side), 3, padding=1)[0]  # (9, pixels), the taps in the image
        self.C, self.pixels = self.norms[0].num_channels, height * side
        C, P, convs = self.C, self.pixels, len(self.convs)
        self.kept = 2 * C * (convs + 1) + P * C * convs  # floats of an evaluation
        self.sizes = [C, C, 9 * C * C, P * C, P * C] * convs + [C, C]
        self.trains = int(any(p.requires_grad for p in field.parameters()))

    def parameters(self) -> list[nn.Parameter]:
        """Return the parameters, layer by layer."""
        layers = [(norm.weight, norm.bias, conv.weight, conv.time, conv.bias)
                  for norm, conv in zip(self.norms, self.convs, strict=False)]
        return [p for layer in layers for p in layer] + [self.norms[-1].weight, self.norms[-1].bias]

    def pack(self) -> list[Tensor]:
        """Return what the kernel reads, in the order of `Layer`."""
        *of_layers, scale, shift = self.parameters()
        packed = []
        for scale_, shift_, weight, time, bias in zip(*[iter(of_layers)] * 5, strict=True):
            packed += [scale_, shift_, weight.permute(2, 3, 1, 0), weight.flip(2, 3).permute(2, 3, 0, 1), bias,
                       (time.flatten(1) @ self.inside).T]
        return [x.detach().reshape(-1) for x in (*packed, scale, shift)]

    def unpack(self, gradients: Tensor) -> list[Tensor]:
        """Return the gradients of the parameters from those in the order of `LayerGradient`."""
        *of_layers, scale, shift = gradients.split(self.sizes)
        found = []
        for scale_, shift_, forward, total, timed in zip(*[iter(of_layers)] * 5, strict=True):
            weight = forward.view(3, 3, self.C, self.C).permute(3, 2, 0, 1)
            time = (timed.view(self.pixels, self.C).T @ self.inside.T).view(-1, 1, 3, 3)
            found += [scale_, shift_, weight, time, total.view(self.pixels, self.C).sum(0)]
        return [*found, scale, shift]


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
        self.parameters = torch.cat([x for field in self.fields for x in field.pack()])
        self.shape = (B, len(self.fields), height * side, C)
        floats = len(self.fields) * height * side * C + sum(field.kept for field in self.fields)
        norm, stages = self.fields[0].norms[0], len(self.tableau.a)
        self.job = CJob(B=B, height=height, side=side, C=C, groups=norm.num_groups, eps=norm.eps, stages=stages,
                        blocks=len(self.fields), chunks=min(CHUNKS, B), threads=torch.get_num_threads(),
                        detach=int(detach_attention), kept_size=(floats + 15) // 16 * 16,
                        gradient_size=sum(sum(field.sizes) for field in self.fields), rtol=self.solver.rtol,
                        atol=self.solver.atol, parameters=self.parameters.data_ptr())
        for i, field in enumerate(self.fields):
            self.job.convs[i], self.job.trains[i] = len(field.convs), field.trains
        for i, (c, row) in enumerate(zip(self.tableau.c, self.tableau.a, strict=True)):
            self.job.c[i] = c
            for j, weight in enumerate(row):
                self.job.a[i][j] = weight
        for i, weight in enumerate(self.tableau.error or ()):
            self.job.error[i] = weight
        self.kept_first = torch.empty(2, B, self.job.kept_size)  # of the first slope, and of the trial step's
        self.kept = memory.setdefault(torch.Size((B, stages, self.job.kept_size)), [])
        self.attempts: list[tuple[float, float]] = []  # t and dt
        self.accepted: list[int] = []  # numbers of attempts

    def call(self, name: str, t: float, dt: float = 0.0, **tensors: Tensor) -> None:
        """Run one function of the kernel."""
        self.job.t, self.job.dt = t, dt
        for key, value in tensors.items():
            setattr(self.job, key, value.data_ptr())
        kernel = KERNEL.load()
        assert kernel is not None
        if getattr(kernel, f"step_{name}")(self.job):
            raise MemoryError("there is no memory left for a step")

    def __call__(self, t: float, y: State) -> State:
        """Return the slope at the start, and then that of the trial step."""
        self.cost.forward += 1
        k = torch.empty(self.shape)
        self.call("first", t, y=y[0], k1=k, kept=self.kept_first[int(t > 0)])
        return (k,)

    def norm(self, error: State, y0: State, y1: State, solver: Solver) -> float:
        scaled = error[0] / torch.maximum(y0[0].abs(), y1[0].abs()).mul_(solver.rtol).add_(solver.atol)
        return float(scaled.square_().mean((0, 2, 3)).sqrt_().max())

    def attempt(self, _: Any, t: float, dt: float, y: State, k1: State) -> tuple[Step, float]:
        number = len(self.attempts)
        if number == len(self.kept):
            self.kept.append(torch.empty(self.job.B, self.job.stages, self.job.kept_size))
        y1, k = torch.empty(self.shape), torch.empty(self.shape)
        squares = torch.empty(self.shape[:2], dtype=torch.float64)
        self.call("attempt", t, dt, y=y[0], k=k1[0], y1=y1, k1=k, squares=squares, kept=self.kept[number])
        self.attempts.append((t, dt))
        self.cost.forward += self.job.stages
        ks = [k1] * self.job.stages + [(k,)]  # nobody reads the stages between
        return Step(t, dt, y, ks, (y1,)), float(squares.sum(0).div_(y1[0, 0].numel() * len(y1)).sqrt_().max())

    def integrate(self, y: Tensor) -> Tensor:
        for step in adaptive_steps(self, (y,), (0.0, 1.0), self.solver, self, self.attempt):  # type: ignore[arg-type]
            self.accepted.append(len(self.attempts) - 1)
            y = step.y1[0]
        return y

    def differentiate(self, dy: Tensor) -> list[Tensor]:
        """Turn the gradient of the end into that of the start, in place; return those of the parameters."""
        dk, gradients = torch.zeros(self.shape), torch.zeros(self.job.chunks, self.job.gradient_size)
        self.job.end_used = 0
        for number in reversed(self.accepted):
            self.call("attempt_back", *self.attempts[number], dy=dy, dk=dk, gradients=gradients, kept=self.kept[number])
            self.job.end_used = 1
        self.call("first_back", 0.0, dy=dy, dk=dk, gradients=gradients, kept=self.kept_first[0])
        of_fields = gradients.sum(0).split([sum(field.sizes) for field in self.fields])
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
