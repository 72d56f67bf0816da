"""`acenode.models.jump_scan` without attention, as compiled C (`jump_kernel.c`): for CPUs, in single precision.

Where there is no compiler the pass is taken in torch's operations as ever; so it is with ACENODE_NATIVE=0.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from acenode.models import compiled

if TYPE_CHECKING:
    from acenode.data.course import Halts
    from acenode.models.jump_scan import Plan, Weights

SOURCE = Path(__file__).with_name("jump_kernel.c")
WEIGHTS = 11
_lock = Lock()


class CHalts(ctypes.Structure):
    """Halts by block of series, then by row."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("first", "order", "row", "series")]


class Job(ctypes.Structure):
    """As in the C file."""

    _fields_ = [*((name, ctypes.c_int64) for name in ("B", "H", "D", "p", "F", "S", "own_steps", "threads", "needed")),
                *((name, ctypes.c_void_p) for name in ("dt", "h0", "x", "m", "kept")),
                ("weights", ctypes.c_void_p * WEIGHTS), ("jumps", CHalts), ("looks", CHalts),
                *((name, ctypes.c_void_p) for name in ("said", "before", "after", "reads", "marks", "d_said", "d_after",
                                                       "d_reads", "d_h0")),
                ("d_weights", ctypes.c_void_p * WEIGHTS)]


def available() -> bool:
    """Whether the compiled pass can be had here; compiles it the first time."""
    return compiled.wanted() and _kernel() is not None


def suits(plan: Plan, h0: Tensor, a0: Tensor | None, weights: tuple[Tensor, ...]) -> bool:
    """Whether it can take this pass."""
    given = (h0, plan.x, plan.m, plan.course.dt, *weights, *([] if plan.kept is None else [plan.kept]))
    return (a0 is None and len(weights) == WEIGHTS and plan.x.shape[1] > 0
            and all(v.device.type == "cpu" and v.dtype == torch.float32 for v in given) and available())


def _kernel() -> ctypes.CDLL | None:
    with _lock:
        return _compiled()


@lru_cache(maxsize=1)
def _compiled() -> ctypes.CDLL | None:
    kernel = compiled.library(SOURCE)
    for name in ("jump_forward", "jump_backward") if kernel is not None else ():
        getattr(kernel, name).argtypes = [ctypes.POINTER(Job)]
    return kernel


class Native:
    """One pass over a course, and what it leaves for the way back."""

    def __init__(self, plan: Plan, w: Weights) -> None:
        kernel = _kernel()
        assert kernel is not None
        self.kernel, self.plan, self.w = kernel, plan, w
        self.block, self.window = kernel.jump_block(), kernel.jump_window()

    def run(self, h0: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """p before the jumps, h after them and at the reads."""
        plan, w, course = self.plan, self.w, self.plan.course
        (N, D), (B, H) = plan.x.shape, h0.shape
        new, S = h0.new_empty, course.rows
        said, reads, self.after, self.before = new(N, 2 * D), new(len(course.reads), H), new(N, H), new(N, H)
        self.marks = new(-(-(S - 1) // self.window), B, H)
        blocks = -(-B // self.block)
        self.jumps, self.looks = (self._by_block(halts, blocks) for halts in (course.jumps, course.reads))
        self.given = {"dt": course.dt.contiguous(), "h0": h0.contiguous(), "x": plan.x.contiguous(),
                      "m": plan.m.contiguous(), "kept": None if plan.kept is None else plan.kept.contiguous()}
        self.sizes = {"B": B, "H": H, "D": D, "p": w.hidden.shape[1], "F": w.features.shape[1], "S": S,
                      "own_steps": int(course.dt.shape[1] > 1 or B == 1)}
        self._call("jump_forward", said=said, reads=reads)
        return said, self.after.detach(), reads  # none of them is kept here

    def back(self, grads: tuple[Tensor, ...], needed: tuple[bool, ...]) -> list[Any]:
        """∂h(0), ∂a(0), ∂weights; None for those that are not trained."""
        d_said, d_after, d_reads = (g.contiguous() for g in grads)
        d_h0 = d_said.new_empty(self.sizes["B"], self.sizes["H"])
        found = [torch.empty_like(w) if w is not None and wanted else None
                 for w, wanted in zip(self.w, needed, strict=False)]
        self._call("jump_backward", found, d_said=d_said, d_after=d_after, d_reads=d_reads, d_h0=d_h0)
        return [d_h0, None, *found]

    def _by_block(self, halts: Halts, blocks: int) -> tuple[Tensor, ...]:
        block = halts.series.div(self.block, rounding_mode="floor")
        first = torch.zeros(blocks + 1, dtype=torch.int64)
        first[1:] = torch.bincount(block, minlength=blocks).cumsum(0)
        return first, torch.argsort(block, stable=True), halts.row.contiguous(), halts.series.contiguous()

    def _call(self, name: str, found: list[Tensor | None] | None = None, **tensors: Tensor) -> None:
        every = {**self.given, "before": self.before, "after": self.after, "marks": self.marks, **tensors}
        job = Job(**self.sizes, **{k: v.data_ptr() for k, v in every.items() if v is not None})
        job.threads = torch.get_num_threads()
        job.weights[:] = [w.data_ptr() for w in self.w if w is not None]
        job.jumps, job.looks = (CHalts(*(v.data_ptr() for v in halts)) for halts in (self.jumps, self.looks))
        for i, d in enumerate(found or []):
            if d is not None:
                job.needed |= 1 << i
                job.d_weights[i] = d.data_ptr()
        if getattr(self.kernel, name)(job):
            raise MemoryError("there is no memory left for a pass over the series")
