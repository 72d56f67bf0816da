"""Evaluate a vector field a second time exactly as the first time: with the same random numbers and buffers.

Gradient "checkpointed" takes every step twice. A field with dropout must draw the same masks in both passes, and one
with running averages, such as batch normalisation, must update them in the first pass only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from acenode.ode.runge_kutta import State, VectorField


@dataclass(frozen=True)
class FieldState:
    """What an evaluation starts from, besides its arguments."""

    random: list[Tensor] | None  # of the generators; None if the evaluation draws no random numbers
    buffers: list[Tensor]


class Slopes(tuple[Tensor, ...]):
    """The slopes of a state, with the state of the field before they were computed."""

    before: FieldState


class FieldMemory:
    """Records the state of a field before each evaluation, and restores it in the backward pass."""

    def __init__(self, field: VectorField, device: torch.device) -> None:
        self.buffers = list(field.buffers()) if isinstance(field, nn.Module) else []
        self.device = device
        self.copies = [b.clone() for b in self.buffers]
        self.queue: deque[FieldState] = deque()
        self.rewound = False

    def record(self, evaluate: Callable[[], Sequence[Tensor]]) -> Slopes:
        """Evaluate the field, detached, and keep the state it started from."""
        random, copies = self._random(), self.copies
        slopes = Slopes(b.detach() for b in evaluate())
        drew = any(not torch.equal(a, b) for a, b in zip(random, self._random(), strict=True))
        slopes.before = FieldState(random if drew else None, copies)
        self.copies = [c if torch.equal(b, c) else b.clone() for b, c in zip(self.buffers, copies, strict=True)]
        return slopes

    def replay(self, evaluate: Callable[[], State]) -> State:
        """Evaluate the field from the next of the queued states."""
        self._restore(self.queue.popleft())
        return evaluate()

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Undo at the end what replayed evaluations do to the generators and buffers."""
        random, buffers, self.rewound = self._random(), [b.clone() for b in self.buffers], False
        try:
            yield
        finally:
            self.queue.clear()
            self._restore(FieldState(random if self.rewound else None, buffers))

    def _random(self) -> list[Tensor]:
        states = [torch.get_rng_state()]
        return [*states, torch.cuda.get_rng_state(self.device)] if self.device.type == "cuda" else states

    def _restore(self, state: FieldState) -> None:
        if state.random is not None:
            self.rewound = True
            torch.set_rng_state(state.random[0])
            if len(state.random) > 1:
                torch.cuda.set_rng_state(state.random[1], self.device)
        for buffer, value in zip(self.buffers, state.buffers, strict=True):
            if not torch.equal(buffer, value):
                buffer.data.copy_(value)  # .data: the graph of this step does not need the buffer's earlier value
