"""The graph engine: the passes of a run as CUDA graphs, where they can be, and one line in its log where not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from acenode.accelerate.cuda_graph import update
from acenode.accelerate.cuda_graph.accelerate import compiler
from acenode.accelerate.cuda_graph.capture import Recorder, streams_of
from acenode.accelerate.cuda_graph.graphed import GraphedPass, RecordingError, noted_by
from acenode.accelerate.cuda_graph.steps import PLACES
from acenode.backend import ACCELERATED, Backend
from acenode.errors import SolveError, UserError, is_out_of_memory
from acenode.ode.options import Solver
from acenode.ode.tableaus import TABLEAUS
from acenode.training.passes import PassResult, PassSpec
from acenode.training.task import PiecewiseTask, Task

MOST_PLACES = 256  # steps of a solve that are kept, at most: of ACE on MNIST 1.2 GB a pass
WORTH_COMPILING = 5000  # iterations: torch.compile takes half a minute at first and saves some 7 ms an iteration


def obstacle(task: Task, device: torch.device) -> str | None:
    """Why a task cannot be trained by the graph engine; None where it can."""
    layer: Any = getattr(task, "layer", None)
    solver = getattr(layer, "solver", None)
    if device.type != "cuda":
        return "it needs a CUDA device"
    if not isinstance(task, PiecewiseTask):
        return "series have kernels of their own"
    if not hasattr(layer, "system"):
        return "this method has no ODE layer between an encoder and a read-out"
    if not isinstance(solver, Solver) or not solver.native:
        return "such a solver and gradient are torchdiffeq's"
    tableau = TABLEAUS[solver.method]
    if not tableau.adaptive and 1 / (solver.step_size or 1) > MOST_PLACES:
        return f"{solver.method} would take more than {MOST_PLACES} steps"
    if noted_by(layer) and not tableau.fsal:  # the slope at the end is made too: of the last step, and of a refused try
        return f"the average of the correlations would have one more than {solver.method} makes"
    return None


class GraphEngine:
    """Does passes by recordings, made when a pass is first asked for; gives up once and for all where that fails."""

    def __init__(self, task: PiecewiseTask, recorder: Recorder, rate: Tensor, log: Callable[[str], None],
                 compiles: bool = True, backend: Backend = ACCELERATED) -> None:
        self.backend = backend
        self.task, self.recorder, self.log, self.compiles = task, recorder, log, compiles
        self.passes: dict[str, GraphedPass] = {}
        self.places: dict[str, int] = {}  # of passes whose solves have taken more steps than usual
        self.rate, self.rate_now = rate, 0.0  # the learning rate, where the optimisers read it
        self.kernels = compiler(rate.device, backend)
        self.said: set[str] = set()
        self.given_up = False
        self.on_giving_up: Callable[[], None] = lambda: None

    def run(self, spec: PassSpec, batch: Any) -> PassResult | None:
        if self.given_up:
            return None
        graphed = self._graphed(spec, batch)
        if graphed is None:
            return None
        if not graphed.fits(batch):
            self._say("a batch has another shape than the first: such passes are done in native steps")
            return None
        rate = float(spec.groups[0].optimiser.param_groups[0]["lr"])
        if rate != self.rate_now:
            self.rate.fill_(rate)
            self.rate_now = rate
        try:
            done = graphed.run(batch)
        except RecordingError as reason:
            self._give_up(str(reason))
            return None
        if done is None:
            self._make_room(spec.name, graphed.places)
        return done

    def _make_room(self, name: str, places: int) -> None:
        """For solves of more steps; the one in hand is done in native steps."""
        took = f"a solve of pass {name} took more than {places} steps"
        if places >= MOST_PLACES:
            self._give_up(took)
            return
        self.places[name] = min(2 * places, MOST_PLACES)
        self._drop(name)
        self._say(f"{took}: the pass is recorded for {self.places[name]}")

    def _graphed(self, spec: PassSpec, batch: Any) -> GraphedPass | None:
        if spec.name in self.passes and not self.passes[spec.name].stands():
            self._drop(spec.name)
        if spec.name not in self.passes:
            if not all(update.recordable(group.optimiser) for group in spec.groups):
                self._give_up("the optimiser is not plain SGD")
                return None
            found = self._try_to_record(spec, batch)
            if found is None:
                return None
            self.passes[spec.name] = found
        return self.passes[spec.name]

    def _try_to_record(self, spec: PassSpec, batch: Any) -> GraphedPass | None:
        """With kernels, else without them, else not at all."""
        while True:
            try:
                return self._record(spec, batch)
            except (SolveError, UserError):
                raise
            except RecordingError as trouble:
                self._give_up(str(trouble))
                return None
            except Exception as trouble:
                reason = f"{type(trouble).__name__}: {trouble}".splitlines()[0]
                if not self.kernels or is_out_of_memory(trouble):
                    self._give_up(reason)
                    return None
                self.kernels = False
            self._say(f"kernels do not run here ({reason}): torch's operations are recorded")

    def _record(self, spec: PassSpec, batch: Any) -> GraphedPass:
        start = time.perf_counter()
        graphed = GraphedPass(self.task, spec, batch, self.recorder, self.rate,
                              places=self.places.get(spec.name, PLACES), kernels=self.kernels, compiles=self.compiles,
                              backend=self.backend)
        held = self.recorder.settle() / 1e6
        self.log(f"graph engine: pass {spec.name} recorded in {time.perf_counter() - start:.1f} s, "
                 f"{graphed.remembered} steps remembered, steps by {graphed.steps.o.name}, fields by "
                 f"{graphed.accelerated.fields_by}; this process holds {held:.0f} MB of the GPU")
        return graphed

    def _give_up(self, reason: str) -> None:
        self.given_up = True
        self.close()
        self.log(fallback(reason))
        self.on_giving_up()

    def _say(self, line: str) -> None:
        """Once."""
        if line not in self.said:
            self.log(f"graph engine: {line}")
        self.said.add(line)

    def _drop(self, name: str) -> None:
        self.recorder.drop(self.passes[name].replays)
        del self.passes[name]

    def close(self) -> None:
        """Free the recordings and all that they hold."""
        for name in list(self.passes):
            self._drop(name)
        self.recorder.close()


def engine_for(task: Task, device: torch.device, asked: str | None, log: Callable[[str], None],
               iterations: int | None = None,
               backend: Backend = ACCELERATED) -> tuple[str | None, GraphEngine | None]:
    """What a task is trained by, in a word, and the engine where it is the graph one; no word for what has no solver.

    `asked` is the setting `engine`; of a training of few `iterations` torch is not asked to compile anything.
    """
    if asked is None or asked == "reference":
        return asked, None
    against = obstacle(task, device)
    if against is None:
        assert isinstance(task, PiecewiseTask)
        engine = _with_a_stream(task, device, log, iterations is None or iterations >= WORTH_COMPILING, backend)
        if engine is not None:
            return "graph", engine
        against = "other runs have all the streams that torch has"
    if asked == "graph" or device.type == "cuda":
        log(fallback(against))
    solvers = (getattr(m, "solver", None) for m in task.model.modules())
    solver = next((s for s in solvers if isinstance(s, Solver)), None)
    return "reference" if solver is not None and not solver.native else "native", None


def _with_a_stream(task: PiecewiseTask, device: torch.device, log: Callable[[str], None],
                   compiles: bool, backend: Backend) -> GraphEngine | None:
    """An engine, where there is a stream left for its recordings; its `close` gives that back."""
    streams = streams_of(device)
    stream = streams.take()
    if stream is None:
        return None
    try:
        return GraphEngine(task, Recorder(stream), torch.zeros((), device=device), log, compiles, backend)
    except BaseException:
        streams.give_back(stream)
        raise


def fallback(reason: str) -> str:
    return f"graph engine not used: {reason}; training without it"
