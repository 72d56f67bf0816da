"""Runge–Kutta steps of the image models of several seeds in C (the folder `kernel`), for CPUs in single precision."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.accelerate.c_compiler import Kernel
from acenode.accelerate.dispatch import TimeConvField
from acenode.attention import Elementwise
from acenode.backend import Backend
from acenode.node import ACENODE, NODE
from acenode.ode.options import Solver
from acenode.ode.tableaus import TABLEAUS

MAX_CONVS = 4
MAX_STAGES = 16
CHUNKS = 4  # of a seed's samples, whose gradients are summed apart
MAX_BYTES = 1.5e9  # that the steps of several seeds keep for their gradient


class CField(ctypes.Structure):
    """The struct `Field` of `kernel/field.h`."""

    _fields_ = [("convs", ctypes.c_int64), ("trains", ctypes.c_int64), ("width", ctypes.c_int64 * (MAX_CONVS + 1)),
                ("groups", ctypes.c_int64 * (MAX_CONVS + 1)), ("eps", ctypes.c_double * (MAX_CONVS + 1))]


class CJob(ctypes.Structure):
    """The struct `Job` of `kernel/steps.c`, field by field."""

    _fields_ = [*((name, ctypes.c_int64) for name in ("count", "B", "height", "side", "blocks", "chunks", "threads",
                                                      "detach", "stages", "parameter_size", "gradient_size",
                                                      "kept_size")),
                ("f", CField), ("g", CField), ("rtol", ctypes.c_double), ("atol", ctypes.c_double),
                ("c", ctypes.c_double * MAX_STAGES), ("a", ctypes.c_double * MAX_STAGES * MAX_STAGES),
                ("error", ctypes.c_double * (MAX_STAGES + 1)),
                *((name, ctypes.c_void_p) for name in ("seed", "t", "dt", "end_used", "parameters", "y", "k", "y1",
                                                       "k1", "kept", "squares", "dy", "dk", "gradients"))]


KERNEL = Kernel(Path(__file__).parent / "kernel" / "steps.c", CJob,
                ("step_first", "step_attempt", "step_attempt_back", "step_first_back"))


def supports(layer: Any, backend: Backend) -> bool:
    """Return True if the kernel can integrate a layer: convolutional fields, an adaptive method, and a C compiler."""
    solver = getattr(layer, "solver", None)
    if not isinstance(solver, Solver) or not backend.accelerated or not backend.compile_c:
        return False
    tableau = TABLEAUS.get(solver.method)
    if tableau is None or not (tableau.adaptive and tableau.fsal and len(tableau.a) < MAX_STAGES):
        return False
    kernel = KERNEL.load()
    if kernel is None:
        return False
    if isinstance(layer, ACENODE) and layer.attention == "evolving":
        if layer.g_reads_attention or type(layer.attend) is not Elementwise:
            return False
        fields = [layer.f, layer.g]
    elif isinstance(layer, NODE) or (isinstance(layer, ACENODE) and layer.attention == "none"):
        fields = [layer.f]
    else:
        return False
    return all(FieldLayout.supports(field, kernel.lanes()) for field in fields)


class FieldLayout:
    """One field of every seed: sizes, and how its parameters and their gradients are packed into rows.

    Args:
        fields: of one architecture, one a seed.
        height: of the feature map.
        side: width of the feature map.
    """

    def __init__(self, fields: Sequence[TimeConvField], height: int, side: int) -> None:
        self.layers, self.P = [field.time_conv_layers() for field in fields], height * side
        self.norms, self.convs = self.layers[0][0], len(self.layers[0][1])
        self.width = [norm.num_channels for norm in self.norms]
        self.inside = F.unfold(torch.ones(1, 1, height, side), 3, padding=1)[0]  # (9, P), the taps inside the image
        self.kept = sum(2 * w for w in self.width) + sum(self.P * w for w in self.width[1:])
        self.gradient_sizes = [n for i, w in enumerate(self.width) for n in
                               ((w, w) if i == self.convs else
                                (w, w, 9 * w * self.width[i + 1], self.P * self.width[i + 1],
                                 self.P * self.width[i + 1]))]
        self.gradient_size = sum(self.gradient_sizes)

    @staticmethod
    def supports(field: Any, lanes: int) -> bool:
        """Return True for a field in single precision whose maps have equal widths, a whole number of vectors."""
        if not isinstance(field, TimeConvField):
            return False
        norms, convs = field.time_conv_layers()
        widths = {norm.num_channels for norm in norms}
        return (len(convs) <= MAX_CONVS and len(widths) == 1 and all(width % lanes == 0 for width in widths)
                and all(p.dtype == torch.float32 and p.device.type == "cpu" for p in field.parameters()))

    def to_c(self) -> CField:
        c = CField(convs=self.convs, trains=int(any(p.requires_grad for p in self.parameters()[0])))
        for i, norm in enumerate(self.norms):
            c.width[i], c.groups[i], c.eps[i] = norm.num_channels, norm.num_groups, norm.eps
        return c

    def parameters(self) -> list[list[nn.Parameter]]:
        """Return the parameters of every seed, layer by layer."""
        return [[p for i, norm in enumerate(norms) for p in
                 (norm.weight, norm.bias, *((convs[i].weight, convs[i].time, convs[i].bias)
                                            if i < self.convs else ()))] for norms, convs in self.layers]

    @torch.no_grad()
    def pack(self) -> list[Tensor]:
        """Return the parameters in the order of `walk_parameters` of the kernel, each (S, numbers)."""
        rows = iter([torch.stack(each) for each in zip(*self.parameters(), strict=True)])
        packed: list[Tensor] = []
        for i in range(self.convs + 1):
            packed += [next(rows), next(rows)]
            if i < self.convs:
                weight, time, bias = next(rows), next(rows), next(rows)
                share = (time.flatten(2) @ self.inside).transpose(1, 2)  # (S, P, outputs)
                packed += [weight.permute(0, 3, 4, 2, 1).flatten(1),
                           weight.flip(3, 4).permute(0, 3, 4, 1, 2).flatten(1), bias, share.flatten(1)]
        return packed

    def unpack(self, gradients: Tensor) -> list[Tensor]:
        """Return the gradients of the parameters, (S, ...) each, from rows in the order of `walk_gradients`."""
        rows, found = iter(gradients.split(self.gradient_sizes, dim=1)), list[Tensor]()
        for i in range(self.convs + 1):
            found += [next(rows), next(rows)]
            if i < self.convs:
                inputs, outputs = self.width[i], self.width[i + 1]
                weight = next(rows).unflatten(1, (3, 3, inputs, outputs)).permute(0, 4, 3, 1, 2)
                total, timed = (next(rows).unflatten(1, (self.P, outputs)) for _ in range(2))
                time = (timed.transpose(1, 2) @ self.inside.T).unflatten(2, (1, 3, 3))
                found += [weight, time, total.sum(1)]
        return found


class KeptTooMuchError(Exception):
    """The steps of several seeds keep more than MAX_BYTES for their gradient: solve one seed after another."""


class KernelSteps:
    """The kernel for layers of S seeds and states (S, B, blocks, P, C).

    Args:
        layers: one a seed, which `supports` accepts.
        like: one block of one seed, (B, C, H, W), after augmentation.
        kept: memory for what the gradient needs, one tensor an attempt, reused in every pass and filled up as needed.
    """

    def __init__(self, layers: Sequence[Any], like: Tensor, kept: list[Tensor]) -> None:
        self.seeds, self.solver = len(layers), layers[0].solver
        self.tableau = TABLEAUS[self.solver.method]
        B, C, height, side = like.shape
        evolving = getattr(layers[0], "attention", "none") == "evolving"
        self.fields = [FieldLayout([layer.f for layer in layers], height, side)]
        self.fields += [FieldLayout([layer.g for layer in layers], height, side)] if evolving else []
        self.shape = (self.seeds, B, len(self.fields), height * side, C)
        self.map = (height, side)
        floats = len(self.fields) * height * side * C + sum(field.kept for field in self.fields)
        self.kept_size = (floats + 15) // 16 * 16
        self.kept = kept
        self.first_kept = torch.empty(self.seeds, B, self.kept_size)
        self.trial_kept = torch.empty(self.seeds, B, self.kept_size)
        self.y1, self.k1 = torch.empty(self.shape), torch.empty(self.shape)
        self.squares = torch.empty(self.shape[:3], dtype=torch.float64)

    def kept_for(self, attempt: int) -> Tensor:
        """Return the memory in which an attempt keeps what its gradient needs."""
        if attempt == len(self.kept):
            room = torch.empty(*self.shape[:2], len(self.tableau.a), self.kept_size)
            if self.seeds > 1 and 4 * room.numel() * (attempt + 1) > MAX_BYTES:
                raise KeptTooMuchError
            self.kept.append(room)
        return self.kept[attempt]

    def begin(self, detach_attention: bool) -> None:
        """Read the parameters, and clear their gradients."""
        self.parameters = torch.cat([x for field in self.fields for x in field.pack()], dim=1)
        size = sum(field.gradient_size for field in self.fields)
        B, blocks = self.shape[1:3]
        chunks = min(CHUNKS, B)
        self.gradients = torch.zeros(self.seeds, chunks, size)
        job = self.job = CJob(B=B, height=self.map[0], side=self.map[1], blocks=blocks, chunks=chunks,
                              threads=torch.get_num_threads(), detach=int(detach_attention),
                              stages=len(self.tableau.a), parameter_size=self.parameters.shape[1], gradient_size=size,
                              kept_size=self.kept_size, rtol=self.solver.rtol, atol=self.solver.atol)
        job.f, job.g = self.fields[0].to_c(), self.fields[-1].to_c()
        for i, (c, row) in enumerate(zip(self.tableau.c, self.tableau.a, strict=True)):
            job.c[i] = c
            for j, weight in enumerate(row):
                job.a[i][j] = weight
        for i, weight in enumerate(self.tableau.error or ()):
            job.error[i] = weight

    def call(self, name: str, seeds: Sequence[int], t: Sequence[float], dt: Sequence[float] = (),
             **tensors: Tensor) -> None:
        """Run one function of the kernel for some of the seeds."""
        numbers = {"seed": torch.tensor(seeds, dtype=torch.int64), "t": torch.tensor(t, dtype=torch.float64),
                   "dt": torch.tensor(dt, dtype=torch.float64)}
        self.job.count = len(seeds)
        own = {"parameters": self.parameters, "gradients": self.gradients, "squares": self.squares}
        for key, value in (own | numbers | tensors).items():
            setattr(self.job, key, value.data_ptr())
        kernel = KERNEL.load()
        assert kernel is not None
        if getattr(kernel, f"step_{name}")(self.job):
            raise MemoryError("there is no memory left for a step")
