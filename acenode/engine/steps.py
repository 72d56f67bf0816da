"""Runge–Kutta steps whose size and time are on the device: begin, try a step, go back over one.

Each is a fixed sequence of operations on tensors of fixed place, so it is recorded once and replayed for every step.
Going back takes a step again from where it started and differentiates it, stage by stage: the exact gradient of the
steps that were taken, with the memory of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from acenode.engine.control import Span
from acenode.engine.operations import Operations
from acenode.runge_kutta import Evaluations, State
from acenode.solver import Solver
from acenode.tableaus import TABLEAUS, Tableau

PLACES = 32  # accepted steps that are kept; a solve that needs more is done by the native engine


def first_same_as_last(tableau: Tableau) -> Tableau:
    """The method with the slope at a step's end as its last stage, where it has not that stage already."""
    if tableau.fsal:
        return tableau
    assert tableau.error is not None
    return Tableau(tableau.order, (*tableau.c, 1.0), (*tableau.a, tableau.b), (*tableau.b, 0.0), (*tableau.error, 0.0))


class Steps:
    """The steps of one solve of `field` from states like `like`, whatever the states' values."""

    def __init__(self, like: State, span: tuple[float, float], solver: Solver, operations: Operations,
                 places: int = PLACES) -> None:
        self.like, self.solver, self.o = like, solver, operations
        self.tableau = first_same_as_last(TABLEAUS[solver.method])
        self.span = Span(*span, self.tableau.order, solver.max_steps, places)
        self.control = operations.control(self.span, self.tableau.c, like)
        self.kept = operations.keep(like, places + 2)  # a try beyond the last goes nowhere
        self.place, self.back_place = self.control.place[0], self.control.place[1]
        self.before, self.zeroth = self.control.place.new_full((), -1), self.control.place.new_zeros(())
        self.grad_y = tuple(torch.zeros_like(b) for b in like)
        self.grad_k = tuple(torch.zeros_like(b) for b in like)

    # Forward ------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def begin(self, field: nn.Module, y: State) -> None:
        """From y: the first slope and the first step size."""
        o, control, rtol, atol = self.o, self.control, self.solver.rtol, self.solver.atol
        y = o.arrange(y)
        control.start()
        k1 = self._rate(field, 0, y)
        control.guess(o.squares(control.one, (1.0,), [y], y, y, rtol, atol),
                      o.squares(control.one, (1.0,), [k1], y, y, rtol, atol))
        k2 = self._rate(field, 0, o.combine(y, control.dt, (1.0,), [k1]))
        control.first(o.squares(control.one, (-1.0, 1.0), [k1, k2], y, y, rtol, atol))
        self.kept.write(self.before, y, k1)

    @torch.no_grad()
    def attempt(self, field: nn.Module) -> None:
        """Try the step that is planned; nothing comes of it where the end is reached already."""
        o, control, tableau = self.o, self.control, self.tableau
        assert tableau.error is not None
        y, k1 = self.kept.read(self.place)
        ks, yi = [k1], y
        for i, row in enumerate(tableau.a, 1):
            yi = o.combine(y, control.dt, row, ks)
            ks.append(self._rate(field, i, yi))
        self.kept.write(self.place, yi, ks[-1])
        control.judge(o.squares(control.dt, tableau.error, ks, y, yi, self.solver.rtol, self.solver.atol))

    def end(self) -> State:
        """The state after the last accepted step."""
        return self.kept.read(self.place)[0]

    # Backward -----------------------------------------------------------------------------------------------------

    def turn(self, grads: Sequence[Tensor | None]) -> None:
        """Start to go back from the gradients of the end's blocks."""
        self.control.turn()
        for kept, grad in zip(self.grad_y, grads, strict=True):
            kept.zero_() if grad is None else kept.copy_(grad)
        torch._foreach_zero_(self.grad_k)

    def back(self, field: nn.Module, parameters: Sequence[nn.Parameter],
             add: Callable[[Sequence[Tensor | None]], None]) -> None:
        """Over one more step; the parameters' gradients are handed to `add`."""
        o, control, rows = self.o, self.control, self.tableau.a
        control.back()
        y, k1 = self.kept.read(self.back_place)
        ks: list[State] = [k1]
        inputs: list[State] = [y]
        for i, row in enumerate(rows, 1):
            yi = tuple(b.requires_grad_() for b in o.combine(y, control.dt, row, [_plain(k) for k in ks]))
            with torch.enable_grad():
                ks.append(self._rate(field, i, yi))
            inputs.append(yi)
        pulled: list[State] = []  # gradients of the inputs of the stages, the last first
        for i in range(len(rows), 0, -1):
            if i == len(rows):
                found = _pull(ks[i], inputs[i], self.grad_k, parameters, add)
                pulled.append(o.combine(self.grad_y, control.one, (1.0,), [found]))
                continue
            column = [row[i] for row in rows[:i - 1:-1]]  # what stage i added to those after it
            if any(column):
                seed = o.combine(None, control.dt, column, pulled)
                pulled.append(_pull(ks[i], inputs[i], seed, parameters, add))
            else:
                pulled.append(tuple(torch.zeros_like(b) for b in y))
        o.combine(None, control.dt, [row[0] for row in reversed(rows)], pulled, out=self.grad_k)
        o.combine(None, control.one, [1.0] * len(pulled), pulled, out=self.grad_y)

    def back_to_start(self, field: nn.Module, parameters: Sequence[nn.Parameter],
                      add: Callable[[Sequence[Tensor | None]], None]) -> State:
        """Over the very first stage, which every first step starts with; the gradient of the state at the start."""
        self.control.restart()
        y = tuple(b.requires_grad_() for b in self.kept.read(self.zeroth)[0])
        with torch.enable_grad():
            k = self._rate(field, 0, y)
        found = _pull(k, y, self.grad_k, parameters, add)
        return self.o.combine(self.grad_y, self.control.one, (1.0,), [found])

    def _rate(self, field: nn.Module, stage: int, y: State) -> State:
        return tuple(field(self.control.times[stage], y))

    # The host -----------------------------------------------------------------------------------------------------

    def evaluations(self, tried: int, sizes: list[float]) -> Evaluations:
        """What a solve of so many tries has cost, once it has been gone back over."""
        stages = len(self.tableau.a)
        return Evaluations(2 + stages * tried, 1 + stages * len(sizes), tried - len(sizes), sizes)


def _plain(y: State) -> State:
    return tuple(b.detach() for b in y)


def _pull(k: State, y: State, seed: State, parameters: Sequence[nn.Parameter],
          add: Callable[[Sequence[Tensor | None]], None]) -> State:
    """The gradient of y from that of the slope k."""
    found = torch.autograd.grad(k, (*y, *parameters), seed, allow_unused=True)
    add(found[len(y):])
    return tuple(torch.zeros_like(b) if g is None else g for b, g in zip(y, found[:len(y)], strict=True))
