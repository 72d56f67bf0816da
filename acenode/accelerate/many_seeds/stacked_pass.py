"""One pass of Algorithm 1 for all seeds: forward, backward and update, every tensor with a leading seed axis.

The pieces of the task are mapped over the seeds. The solve is the one with steps per sample, with a seed as a sample:
each seed has its own time, step size and error norm, and a seed that has reached the end keeps its state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from acenode.accelerate.many_seeds.stacked_model import StackedModel
from acenode.accelerate.many_seeds.stacked_sgd import StackedSGD
from acenode.ode.options import Solver
from acenode.ode.per_sample import solve_per_sample
from acenode.ode.runge_kutta import Evaluations, State
from acenode.ode.solve import solve
from acenode.ode.tableaus import TABLEAUS
from acenode.training.passes import PassResult, PassSpec
from acenode.training.task import PiecewiseTask


class StackedPasses:
    """The passes of S tasks of one configuration.

    Args:
        tasks: one a seed; their parameters become views of stacks.
    """

    def __init__(self, tasks: Sequence[PiecewiseTask]) -> None:
        self.tasks, self.model = list(tasks), StackedModel([task.model for task in tasks])
        self.optimisers: dict[str, list[StackedSGD]] = {}  # of the passes, by name

    def run(self, specs: Sequence[PassSpec], batches: Sequence[tuple[Tensor, ...]]) -> list[PassResult]:
        """Do a pass of every seed on its own batch.

        Args:
            specs: the pass of every seed; they differ in their parameters only.
            batches: of equal shapes.

        Raises:
            SolveError: the solve of some seed failed. Nothing has changed then.
        """
        optimisers, spec = self._optimisers(specs), specs[0]
        trained = [self.model.stack_of(p) for p in spec.trained]
        for stack in trained:
            stack.requires_grad_()
        try:
            batch = tuple(torch.stack(each) for each in zip(*batches, strict=True))
            loss, metrics, costs = self._loss(batch, spec.detach_attention)
            total = loss + self._penalty(spec)
            found = torch.autograd.grad(total.sum(), trained, allow_unused=True) if trained else ()
        finally:
            for stack in trained:
                stack.requires_grad_(False)
        gradients = {id(stack): g for stack, g in zip(trained, found, strict=True) if g is not None}
        for optimiser in optimisers:
            optimiser.step(gradients)
        norms = [self._norm([gradients[id(x)] for x in o.stacks if id(x) in gradients], "l2") for o in optimisers]
        loss, total = loss.detach(), total.detach()
        return [PassResult(loss[i], total[i], {k: v[i] for k, v in metrics.items()}, [norm[i] for norm in norms], cost)
                for i, cost in enumerate(costs)]

    def _optimisers(self, specs: Sequence[PassSpec]) -> list[StackedSGD]:
        """Return an optimiser of the stacks for each group of the pass."""
        name = specs[0].name
        if name not in self.optimisers:
            groups = zip(*(spec.groups for spec in specs), strict=True)
            known = {id(o.optimisers[0]): o for made in self.optimisers.values() for o in made}
            self.optimisers[name] = [known.get(id(each[0].optimiser))
                                     or StackedSGD(self.model, [group.optimiser for group in each]) for each in groups]
        return self.optimisers[name]

    def _loss(self, batch: tuple[Tensor, ...],
              detach_attention: bool) -> tuple[Tensor, dict[str, Tensor], list[Evaluations]]:
        """Return L_task (S,), the metrics, (S,) each, and what the solve of each seed cost."""
        task, model = self.tasks[0], self.model
        layer: Any = task.layer
        h0 = model.map(lambda *b: task.encode(b), *batch)
        state = model.map(lambda h: layer.system(h, detach_attention)[1], h0)
        with torch.no_grad():
            field: nn.Module = layer.system(h0[0], detach_attention)[0]

        def slopes(t: Tensor, y: State) -> State:
            return model.map(lambda t, *y: field(t, y), t.expand(len(h0), *t.shape[1:]).reshape(-1), *y)

        end, costs = _solve(slopes, state, layer.solver)
        loss, metrics = model.map(lambda h1, *b: task.read_out(h1, b), end[0], *batch)
        return loss, metrics, costs

    def _penalty(self, spec: PassSpec) -> Tensor | float:
        """Return λ‖θ_g‖ of every seed, (S,), or 0 where nothing is penalised."""
        if not spec.penalised or spec.penalty == "none" or spec.penalty_weight == 0:
            return 0.0
        return spec.penalty_weight * self._norm([self.model.stack_of(p) for p in spec.penalised], spec.penalty)

    def _norm(self, stacks: Sequence[Tensor], kind: str) -> Tensor:
        """Return the norm of every seed over all entries of its tensors together, (S,)."""
        if not stacks:
            return torch.zeros(len(self.tasks))
        rows = torch.cat([x.flatten(1) for x in stacks], dim=1)
        return rows.abs().sum(1) if kind == "l1" else torch.linalg.vector_norm(rows, dim=1)


def _solve(field: Any, state: State, solver: Solver) -> tuple[State, list[Evaluations]]:
    """Integrate blocks (S, B, ...) from 0 to 1; return them at the end, and the cost of every seed."""
    seeds, times = len(state[0]), [0.0, 1.0]
    if not TABLEAUS[solver.method].adaptive:  # the same steps for all
        solution = solve(field, state, times, solver)
        return tuple(block[-1] for block in solution.states), [solution.evaluations] * seeds
    costs = [Evaluations() for _ in range(seeds)]
    states = solve_per_sample(field, state, times, solver, Evaluations(), costs=costs)
    return tuple(block[-1] for block in states), costs
