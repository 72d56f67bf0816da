"""Fixed steps forward, and the adjoint equation backward in the same number of steps, as torchdiffeq takes them.

All steps are known beforehand, so the device asks the host nothing and a whole pass is one recording. Backward, the
state is integrated again from its end, together with its adjoint (Eqs. 7 and 8): dλ/dt = -λ ∂f/∂y, and the parameters'
gradient is the integral of λ ∂f/∂θ.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from acenode.accelerate.cuda_graph.device_steps import StageObserver
from acenode.accelerate.cuda_graph.stages import AddGradients
from acenode.accelerate.cuda_graph.step_operations import StepOperations
from acenode.ode.options import Solver
from acenode.ode.runge_kutta import Evaluations, State
from acenode.ode.stepping import fixed_grid
from acenode.ode.tableaus import TABLEAUS

MAX_STEPS = 16  # of a solve: all of them are in one recording


def can_record(solver: Solver) -> bool:
    """Return True for adjoint gradients of a fixed-step method that takes few steps from 0 to 1.

    Every stage must have a weight: the parameters' gradients are those of the weighted stages.
    """
    tableau = TABLEAUS.get(solver.method)
    return (solver.gradient == "adjoint" and solver.engine != "reference" and tableau is not None
            and not tableau.adaptive and all(tableau.b) and 1 / (solver.step_size or 1) <= MAX_STEPS)


class AdjointSteps:
    """The steps of a solve of a field and of its adjoint, for states of the shapes of `like`."""

    def __init__(self, like: State, span: tuple[float, float], solver: Solver, operations: StepOperations,
                 observer: StageObserver | None = None) -> None:
        self.tableau, self.operations, self.observer = TABLEAUS[solver.method], operations, observer
        self.grid = fixed_grid(list(span), solver.step_size, solver.max_steps)
        self.grid_back = fixed_grid([span[1], span[0]], solver.step_size, solver.max_steps)
        self.one = torch.ones((), dtype=torch.float64, device=like[0].device)
        self.times, self.times_back = (self._stage_times(grid, like[0]) for grid in (self.grid, self.grid_back))

    def _stage_times(self, grid: list[float], like: Tensor) -> Tensor:
        """Return the times of all stages, (steps, stages)."""
        return torch.tensor([[t + c * (end - t) for c in (0.0, *self.tableau.c)] for t, end in pairwise(grid)],
                            dtype=like.dtype, device=like.device)

    @property
    def stages(self) -> int:
        return len(self.tableau.b)

    @torch.no_grad()
    def forward(self, field: nn.Module, y: State) -> State:
        """Return the state at the end."""
        y = self.operations.arrange(y)
        for times, (t, end) in zip(self.times, pairwise(self.grid), strict=True):
            ks: list[State] = []
            for i, row in enumerate(((), *self.tableau.a)):
                ks.append(tuple(field(times[i], self._sum(y, end - t, row, ks))))
            y = self._sum(y, end - t, self.tableau.b, ks)
        return y

    @torch.no_grad()
    def backward(self, field: nn.Module, y: State, adjoint: State, parameters: Sequence[nn.Parameter],
                 add: AddGradients) -> State:
        """Return the gradient of the initial state from that of the end state y.

        The parameters' gradients are passed to `add`.
        """
        adjoint = self.operations.arrange(adjoint)
        for times, (t, end) in zip(self.times_back, pairwise(self.grid_back), strict=True):
            self._observe(self.stages)
            dt = end - t
            ks: list[State] = []
            adjoint_ks: list[State] = []
            for i, row in enumerate(((), *self.tableau.a)):
                stage, weight = self._sum(y, dt, row, ks), -dt * self.tableau.b[i]
                scaled = self.operations.combine(None, self.one, (weight,), [self._sum(adjoint, dt, row, adjoint_ks)])
                inputs = tuple(b.detach().requires_grad_() for b in stage)
                with torch.enable_grad():
                    k = tuple(field(times[i], inputs))
                found = torch.autograd.grad(k, (*inputs, *parameters), scaled, allow_unused=True)
                add(found[len(inputs):])
                ks.append(tuple(b.detach() for b in k))
                of_state = tuple(torch.zeros_like(b) if g is None else g
                                 for b, g in zip(inputs, found, strict=False))
                adjoint_ks.append(self.operations.combine(None, self.one, (-1 / weight,), [of_state]))
            y, adjoint = self._sum(y, dt, self.tableau.b, ks), self._sum(adjoint, dt, self.tableau.b, adjoint_ks)
            self._observe(0)
        return adjoint

    def _sum(self, y: State, dt: float, weights: Sequence[float], ks: Sequence[State]) -> State:
        """Return y + dt Σ w_i k_i."""
        if not any(weights):
            return y
        return self.operations.combine(y, self.one, tuple(dt * w for w in weights), ks)

    def _observe(self, stages: int) -> None:
        if self.observer is not None:
            self.observer.begin_step(stages) if stages else self.observer.end_step()

    def evaluations(self) -> Evaluations:
        """Return the cost of a solve and its backward pass."""
        sizes = [end - t for t, end in pairwise(self.grid)]
        return Evaluations(self.stages * len(sizes), self.stages * (len(self.grid_back) - 1), 0, sizes)
