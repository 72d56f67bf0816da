"""A pass of Algorithm 1 for all seeds on a GPU, each with recorded CUDA graphs and a stream of its own.

One thread starts the passes of all seeds and then finishes them: it never waits for one seed while another has nothing
to do, and the GPU overlaps their kernels. Each seed replays what it would replay alone, so its numbers are the same to
the last digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

from acenode.accelerate.cuda_graph.engine import GraphEngine
from acenode.accelerate.cuda_graph.recording import Recording
from acenode.errors import SolveError
from acenode.training.passes import PassResult, PassSpec


@dataclass(frozen=True, eq=False)
class GraphLane:
    """The engine of a seed and the stream of its run; without a stream, its work is done on the current one."""

    engine: GraphEngine
    stream: torch.cuda.Stream | None

    def on_stream(self) -> AbstractContextManager[object]:
        return torch.cuda.stream(self.stream)


class GraphPasses:
    """The passes of several seeds."""

    def __init__(self, lanes: Sequence[GraphLane]) -> None:
        self.lanes = list(lanes)

    def run(self, specs: Sequence[PassSpec],
            batches: Sequence[tuple[Tensor, ...]]) -> list[PassResult | SolveError | None]:
        """Do a pass of every seed on its own batch.

        Returns:
            The result of every seed; the error of a seed whose solve failed; None for a seed that must do the pass
            without recordings. Nothing of the latter two has changed.
        """
        begun = [self._begin(*each) for each in zip(self.lanes, specs, batches, strict=True)]
        return [self._end(*each) for each in zip(self.lanes, begun, strict=True)]

    @staticmethod
    def _begin(lane: GraphLane, spec: PassSpec, batch: tuple[Tensor, ...]) -> Recording | SolveError | None:
        try:
            with lane.on_stream():
                return lane.engine.begin(spec, batch)
        except SolveError as error:  # a pass is tried out before it is recorded
            return error

    @staticmethod
    def _end(lane: GraphLane, begun: Recording | SolveError | None) -> PassResult | SolveError | None:
        if not isinstance(begun, Recording):
            return begun
        try:
            with lane.on_stream():
                return lane.engine.end(begun)
        except SolveError as error:
            return error
