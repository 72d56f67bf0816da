"""`torch_forward` as compiled C (the folder `kernel`), for CPUs, in single precision.

Where there is no compiler, or the backend may not compile C, the pass is done in torch's operations.
"""

from __future__ import annotations

import ctypes
import math
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from acenode.accelerate import c_compiler as compiled
from acenode.backend import Backend

if TYPE_CHECKING:
    from acenode.accelerate.gru_ode_bayes.torch_forward import Plan, Weights
    from acenode.data.schedule import ScheduledPoints

SOURCE = Path(__file__).parent / "kernel" / "jump.c"
PLAIN, ATTENTIVE = 11, 15  # weights
SERIES, ROWS = 16, 16  # that go together, and rows of a window, without attention
ATTENTIVE_SERIES = 8
ROOM = 2.5e9  # bytes that may be kept of g's gates; beyond, they are made again on the way back
LANES = 8  # numbers of a vector, at most
_lock = Lock()


class CHalts(ctypes.Structure):
    """ScheduledPoints by block of series, then by row."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("first", "order", "row", "series")]


class Job(ctypes.Structure):
    """As in `kernel/weights.h`."""

    _fields_ = [*((name, ctypes.c_int64) for name in ("B", "H", "D", "p", "F", "S", "block", "every", "span",
                                                      "own_steps", "attention", "own_feedback", "detach", "threads",
                                                      "needed")),
                *((name, ctypes.c_void_p) for name in ("dt", "h0", "a0", "x", "m", "kept")),
                ("weights", ctypes.c_void_p * ATTENTIVE), ("jumps", CHalts), ("looks", CHalts),
                *((name, ctypes.c_void_p) for name in ("said", "before", "after", "reads", "marks", "a_marks", "opened",
                                                       "d_said", "d_after", "d_reads", "d_h0", "d_a0")),
                ("d_weights", ctypes.c_void_p * ATTENTIVE)]


def available(backend: Backend) -> bool:
    """Return True if the compiled pass can be used; compiles it the first time."""
    return backend.accelerated and backend.compile_c and _kernel() is not None


def supports(plan: Plan, h0: Tensor, a0: Tensor | None, weights: tuple[Tensor, ...]) -> bool:
    """Whether it can take this pass."""
    some = (v for v in (a0, plan.kept) if v is not None)
    given = (h0, plan.x, plan.m, plan.schedule.dt, *weights, *some)
    return (len(weights) == (PLAIN if a0 is None else ATTENTIVE) and plan.x.shape[1] > 0
            and all(v.device.type == "cpu" and v.dtype == torch.float32 for v in given)
            and available(plan.backend))


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
    """One pass over a schedule, and what it leaves for the way back."""

    def __init__(self, plan: Plan, w: Weights) -> None:
        self.plan, self.w = plan, w

    def run(self, h0: Tensor, a0: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """p before the jumps, h after them and at the reads."""
        plan, w, schedule = self.plan, self.w, self.plan.schedule
        (N, D), (B, H), S = plan.x.shape, h0.shape, schedule.rows
        block, every, span = SERIES, ROWS, 1
        if a0 is not None:
            block, every = ATTENTIVE_SERIES, plan.every
            span = math.ceil(math.sqrt((S - 1) / every)) or 1  # as many windows between marks as there are marks
        self.sizes = {"B": B, "H": H, "D": D, "p": w.hidden.shape[1], "F": w.features.shape[1], "S": S, "block": block,
                      "every": every, "span": span, "own_steps": int(schedule.dt.shape[1] == B),
                      "attention": int(a0 is not None), "own_feedback": int(plan.own_feedback),
                      "detach": int(plan.detach)}
        new, marks = h0.new_empty, math.ceil((S - 1) / (every * span))
        after = new(N, H)
        given = {"dt": schedule.dt, "h0": h0, "a0": a0, "x": plan.x, "m": plan.m, "kept": plan.kept}
        self.given = {k: v.contiguous() for k, v in given.items() if v is not None}
        self.given |= {"before": new(N, H), "after": after, "marks": new(marks, B, H)}
        if a0 is not None:
            self.given["a_marks"] = new(marks, B, H, H)
            opened = max(S - 2, 0) // every * B * 3 * H * math.ceil(H / LANES) * LANES
            if plan.keep and 4 * opened <= ROOM:
                self.given["opened"] = new(opened)
        self.halts = [_by_block(halts, B, block) for halts in (schedule.observations, schedule.reads)]
        said, reads = new(N, 2 * D), new(len(schedule.reads), H)
        self._call("jump_forward", said=said, reads=reads)
        return said, after.detach(), reads  # none of them is kept here

    def back(self, grads: tuple[Tensor, ...], needed: tuple[bool, ...]) -> list[Any]:
        """∂h(0), ∂a(0), ∂weights; None for those that are not trained."""
        found = [torch.empty_like(w) if w is not None and wanted else None
                 for w, wanted in zip(self.w, needed, strict=False)]
        out = {"d_h0": torch.empty_like(self.given["h0"])}
        if "a0" in self.given:
            out["d_a0"] = torch.zeros_like(self.given["a0"])
        d_said, d_after, d_reads = (g.contiguous() for g in grads)
        opened = {"opened": self.given.pop("opened")} if "opened" in self.given else {}  # gradients will take its place
        self._call("jump_backward", found, d_said=d_said, d_after=d_after, d_reads=d_reads, **out, **opened)
        return [out["d_h0"], out.get("d_a0"), *found]

    def _call(self, name: str, found: list[Tensor | None] | None = None, **more: Tensor) -> None:
        job = Job(**self.sizes, **{k: v.data_ptr() for k, v in (self.given | more).items()})
        job.threads = torch.get_num_threads()
        job.jumps, job.looks = (CHalts(*(v.data_ptr() for v in halts)) for halts in self.halts)
        for i, w in enumerate(self.w):
            job.weights[i] = None if w is None else w.data_ptr()
        for i, d in enumerate(found or []):
            if d is not None:
                job.needed |= 1 << i
                job.d_weights[i] = d.data_ptr()
        if getattr(_kernel(), name)(job):
            raise MemoryError("there is no memory left for a pass over the series")


def _by_block(halts: ScheduledPoints, B: int, size: int) -> tuple[Tensor, ...]:
    """Where the halts of each block of series begin in their order by block, that order, and their rows and series."""
    block, count = halts.series.div(size, rounding_mode="floor"), -(-B // size)
    first = torch.zeros(count + 1, dtype=torch.int64)
    first[1:] = torch.bincount(block, minlength=count).cumsum(0)
    return first, torch.argsort(block, stable=True), halts.row.contiguous(), halts.series.contiguous()
