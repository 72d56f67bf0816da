"""The graph engine: the passes of a run as CUDA graphs, where they can be, and one line in its log where not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from acenode.engine import update
from acenode.engine.capture import Recorder
from acenode.engine.graphed import GraphedPass
from acenode.errors import SolveError, UserError
from acenode.passes import Pass, Passed
from acenode.solver import Solver
from acenode.tableaus import TABLEAUS
from acenode.task import Pieces, Task


def obstacle(task: Task, device: torch.device) -> str | None:
    """Why a task cannot be trained by the graph engine; None where it can."""
    layer = getattr(task, "layer", None)
    solver = getattr(layer, "solver", None)
    if device.type != "cuda":
        return "it needs a CUDA device"
    if not isinstance(task, Pieces) or not hasattr(layer, "system"):
        return "this method has no ODE layer between an encoder and a read-out"
    if not isinstance(solver, Solver) or not solver.native:
        return "such a solver and gradient are torchdiffeq's"
    if not TABLEAUS[solver.method].adaptive:
        return f"{solver.method} takes fixed steps"
    if getattr(layer, "attention", None) == "fixed":
        return "fixed attention remembers something at every evaluation"
    return None


class GraphEngine:
    """Does passes by recordings, made when a pass is first asked for; gives up once and for all where that fails."""

    def __init__(self, task: Pieces, recorder: Recorder, rate: Tensor, log: Callable[[str], None]) -> None:
        self.task, self.recorder, self.log = task, recorder, log
        self.passes: dict[str, GraphedPass] = {}
        self.rate, self.rate_now = rate, 0.0  # the learning rate, where the optimisers read it
        self.given_up = self.grumbled = False

    def run(self, this: Pass, batch: Any) -> Passed | None:
        if self.given_up:
            return None
        graphed = self._graphed(this, batch)
        if graphed is None:
            return None
        if not graphed.fits(batch):
            self._grumble("a batch has another shape than the first: such passes are done by the native engine")
            return None
        rate = float(this.groups[0].optimiser.param_groups[0]["lr"])
        if rate != self.rate_now:
            self.rate.fill_(rate)
            self.rate_now = rate
        done = graphed.run(batch)
        if done is None:
            self._grumble(f"a solve took more than {graphed.steps.span.places} steps: such passes are done by the "
                          "native engine")
        return done

    def _graphed(self, this: Pass, batch: Any) -> GraphedPass | None:
        if this.name in self.passes and not self.passes[this.name].stands():
            del self.passes[this.name]
        if this.name not in self.passes:
            if not all(update.recordable(group.optimiser) for group in this.groups):
                self._give_up("the optimiser is not SGD")
                return None
            try:
                self.passes[this.name] = self._record(this, batch)
            except (SolveError, UserError, torch.OutOfMemoryError):
                raise
            except Exception as trouble:
                self._give_up(f"{type(trouble).__name__}: {trouble}".splitlines()[0])
                return None
        return self.passes[this.name]

    def _record(self, this: Pass, batch: Any) -> GraphedPass:
        start = time.perf_counter()
        graphed = GraphedPass(self.task, this, batch, self.recorder, self.rate)
        held = self.recorder.settle() / 1e6
        self.log(f"graph engine: pass {this.name} recorded in {time.perf_counter() - start:.1f} s, "
                 f"{graphed.remembered} steps remembered, kernels by {graphed.steps.o.name}; this process holds "
                 f"{held:.0f} MB of the GPU")
        return graphed

    def _give_up(self, reason: str) -> None:
        self.given_up = True
        self.close()
        self.log(fallback(reason))

    def _grumble(self, line: str) -> None:
        if not self.grumbled:
            self.log(f"graph engine: {line}")
        self.grumbled = True

    def close(self) -> None:
        """Free the recordings and all that they hold."""
        self.passes.clear()
        self.recorder.close()


def engine_for(task: Task, device: torch.device, asked: str | None,
               log: Callable[[str], None]) -> tuple[str | None, GraphEngine | None]:
    """What a task is trained by, in a word, and the engine where it is the graph one; no word for what has no solver.

    `asked` is the setting `engine`.
    """
    if asked is None or asked == "reference":
        return asked, None
    solver = getattr(getattr(task, "layer", None), "solver", None)
    against = obstacle(task, device)
    if against is None:
        assert isinstance(task, Pieces)
        return "graph", GraphEngine(task, Recorder(device), torch.zeros((), device=device), log)
    if asked == "graph" or device.type == "cuda":
        log(fallback(against))
    return "reference" if isinstance(solver, Solver) and not solver.native else "native", None


def fallback(reason: str) -> str:
    return f"graph engine not used: {reason}; training without it"


