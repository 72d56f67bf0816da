"""Runge–Kutta steps whose size and time are on the device: begin, try a step, go back over one.

Each is a fixed sequence of operations on tensors of fixed place, so it is recorded once and replayed for every step.
Going back differentiates a step stage by stage: the exact gradient of the steps that were taken. A step is remembered
when it is tried, or taken again from where it started, with the memory of one step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from acenode.accelerate import torch_private
from acenode.accelerate.cuda_graph.control import Control, Span, Told
from acenode.accelerate.cuda_graph.fixed import FixedControl
from acenode.accelerate.cuda_graph.operations import Operations
from acenode.ode.options import Solver
from acenode.ode.runge_kutta import Evaluations, State
from acenode.ode.stepping import fixed_grid
from acenode.ode.tableaus import TABLEAUS, Tableau

PLACES = 32  # accepted steps that are kept


def first_same_as_last(tableau: Tableau) -> Tableau:
    """The method with the slope at a step's end as its last stage, where it has not that stage already."""
    if tableau.fsal:
        return tableau
    error = None if tableau.error is None else (*tableau.error, 0.0)
    return Tableau(tableau.order, (*tableau.c, 1.0), (*tableau.a, tableau.b), (*tableau.b, 0.0), error)


class Memory(Protocol):
    """Who wants to know which evaluations are gone back over together."""

    def begin(self, stages: int) -> None: ...
    def end(self) -> None: ...


@dataclass(frozen=True)
class Taken:
    """A try of a step with the graph of each stage: the stages' states and slopes, from the second on."""

    inputs: list[State]
    slopes: list[State]


class Steps:
    """The steps of one solve of a field from states like `like`, whatever the states' values."""

    def __init__(self, like: State, span: tuple[float, float], solver: Solver, operations: Operations,
                 places: int = PLACES, memory: Memory | None = None) -> None:
        self.like, self.solver, self.o, self.memory = like, solver, operations, memory
        self.tableau = first_same_as_last(TABLEAUS[solver.method])
        self.control = self._control(span, places)
        self.span = self.control.span
        self.kept = operations.keep(like, self.span.places + 2)  # a try beyond the last goes nowhere
        self.place, self.back_place = self.control.place[0], self.control.place[1]
        self.before, self.zeroth = self.control.place.new_full((), -1), self.control.place.new_zeros(())
        self.grad_y = tuple(torch.zeros_like(b) for b in like)
        self.grad_k = tuple(torch.zeros_like(b) for b in like)

    def _control(self, span: tuple[float, float], places: int) -> Control:
        """With room for so many steps, or for those of a grid."""
        tableau, solver, like = self.tableau, self.solver, self.like
        if tableau.adaptive:
            return self.o.control(Span(*span, tableau.order, solver.max_steps, places), tableau.c, like)
        return FixedControl(fixed_grid(list(span), solver.step_size, solver.max_steps), tableau.c,
                            tuple(b.numel() for b in like), like[0].dtype, like[0].device)

    @staticmethod
    def stages(solver: Solver) -> int:
        """Evaluations of a step."""
        return len(first_same_as_last(TABLEAUS[solver.method]).a)

    # Forward ------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def begin(self, field: nn.Module, y: State) -> None:
        """From y: the first slope and, unless it is fixed, the first step size."""
        o, control, rtol, atol = self.o, self.control, self.solver.rtol, self.solver.atol
        y = o.arrange(y)
        control.start()
        k1 = tuple(field(control.times[0], y))
        self.kept.write(self.before, y, k1)
        if not self.tableau.adaptive:
            return
        control.guess(o.squares(control.one, (1.0,), [y], y, y, rtol, atol),
                      o.squares(control.one, (1.0,), [k1], y, y, rtol, atol))
        k2 = tuple(field(control.times[0], o.combine(y, control.dt, (1.0,), [k1])))
        control.first(o.squares(control.one, (-1.0, 1.0), [k1, k2], y, y, rtol, atol))

    def attempt(self, field: nn.Module, remember: bool = False) -> Taken | None:
        """Try the step that is planned; nothing comes of it where the end is reached already."""
        o, control, error, rtol, atol = self.o, self.control, self.tableau.error, self.solver.rtol, self.solver.atol
        y, k1 = self.kept.read(self.place)
        taken = self._take(field, y, k1, remember)
        ks, y1 = [k1, *map(_plain, taken.slopes)], _plain(taken.inputs[-1])
        self.kept.write(self.place, y1, ks[-1])
        control.judge(o.squares(control.one, (1.0,), [y1], y1, y1, 1.0, 1.0) if error is None else
                      o.squares(control.dt, error, ks, y, y1, rtol, atol))
        return taken if remember else None

    def _take(self, field: nn.Module, y: State, k1: State, remember: bool) -> Taken:
        """The stages of a step; with `remember` each has a graph of its own, from its state to its slope."""
        taken, ks, times = Taken([], []), [k1], self.control.times
        if remember:
            self._together(len(self.tableau.a))
            times = times.clone()
        for i, row in enumerate(self.tableau.a, 1):
            yi = self.o.combine(y, self.control.dt, row, ks)
            if remember:
                yi = tuple(b.requires_grad_() for b in yi)
            with torch.set_grad_enabled(remember):
                k = tuple(field(times[i], yi))
            taken.inputs.append(yi)
            taken.slopes.append(k)
            ks.append(_plain(k))
        return taken

    def end(self) -> State:
        """The state after the last accepted step."""
        return self.kept.read(self.place)[0]

    # Backward -----------------------------------------------------------------------------------------------------

    def turn(self, grads: Sequence[Tensor | None]) -> None:
        """Start to go back from the gradients of the end's blocks."""
        self.control.turn()
        for kept, grad in zip(self.grad_y, grads, strict=True):
            kept.zero_() if grad is None else kept.copy_(grad)
        torch_private.zero_all(self.grad_k)

    def back(self, field: nn.Module, parameters: Sequence[nn.Parameter],
             add: Callable[[Sequence[Tensor | None]], None], taken: Taken | None = None) -> None:
        """Over one more step, taken again where it was not remembered; the parameters' gradients go to `add`."""
        o, control, rows = self.o, self.control, self.tableau.a
        control.back()
        taken = taken or self._take(field, *self.kept.read(self.back_place), remember=True)
        pulled: list[State] = []  # gradients of the stages' states, the last first
        for i in range(len(rows), 0, -1):
            y, k = taken.inputs[i - 1], taken.slopes[i - 1]
            if i == len(rows):
                found = _pull(k, y, self.grad_k, parameters, add)
                pulled.append(o.combine(self.grad_y, control.one, (1.0,), [found]))
                continue
            column = [row[i] for row in rows[:i - 1:-1]]  # what stage i added to those after it
            if any(column):
                seed = o.combine(None, control.dt, column, pulled)
                pulled.append(_pull(k, y, seed, parameters, add))
            else:
                pulled.append(tuple(torch.zeros_like(b) for b in y))
        o.combine(None, control.dt, [row[0] for row in reversed(rows)], pulled, out=self.grad_k)
        o.combine(None, control.one, [1.0] * len(pulled), pulled, out=self.grad_y)
        self._together(0)

    def back_to_start(self, field: nn.Module, parameters: Sequence[nn.Parameter],
                      add: Callable[[Sequence[Tensor | None]], None]) -> State:
        """Over the very first stage, which the first step starts with; the gradient of the state at the start."""
        self.control.restart()
        self._together(1)
        y = tuple(b.requires_grad_() for b in self.kept.read(self.zeroth)[0])
        with torch.enable_grad():
            k = tuple(field(self.control.times[0], y))
        found = _pull(k, y, self.grad_k, parameters, add)
        self._together(0)
        return self.o.combine(self.grad_y, self.control.one, (1.0,), [found])

    def _together(self, stages: int) -> None:
        if self.memory is not None:
            self.memory.begin(stages) if stages else self.memory.end()

    # The host -----------------------------------------------------------------------------------------------------

    def evaluations(self, told: Told, remembered: int) -> Evaluations:
        """What a solve has cost, there and back; of its tries the first ones were remembered."""
        stages, again = len(self.tableau.a), sum(i >= remembered for i in told.tries)
        first = 2 if self.tableau.adaptive else 1
        return Evaluations(first + stages * told.tried, 1 + stages * again, told.tried - len(told.sizes), told.sizes)


def _plain(y: State) -> State:
    return tuple(b.detach() for b in y)


def _pull(k: State, y: State, seed: State, parameters: Sequence[nn.Parameter],
          add: Callable[[Sequence[Tensor | None]], None]) -> State:
    """The gradient of y from that of the slope k."""
    found = torch.autograd.grad(k, (*y, *parameters), seed, allow_unused=True)
    add(found[len(y):])
    return tuple(torch.zeros_like(b) if g is None else g for b, g in zip(y, found[:len(y)], strict=True))
