"""A pass of Algorithm 1 for all seeds whose ODEs are solved together by the C kernel.

Encoder, q, read-out and optimisers are those of every seed; between them, one solve takes the steps of all seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from acenode.accelerate.many_seeds.kernel_solve import solve_seeds
from acenode.accelerate.many_seeds.kernel_steps import KeptTooMuchError, KernelSteps
from acenode.training.passes import PassResult, PassSpec, gradient_norm, train_only
from acenode.training.task import Loss, PiecewiseTask


class KernelPasses:
    """The passes of the tasks of several seeds.

    Args:
        tasks: one a seed; `kernel_steps.supports` accepts their ODE layers.
    """

    def __init__(self, tasks: Sequence[PiecewiseTask]) -> None:
        self.tasks, self.layers = list(tasks), [task.layer for task in tasks]
        self.parts = [list(range(len(tasks)))]  # seeds that are solved together; all, while memory suffices
        self.steps: dict[tuple[int, ...], KernelSteps] = {}  # by the first seed of the part and the shape of a state
        self.kept: dict[tuple[int, ...], list[Tensor]] = {}  # memory of the steps, by the shape of a state

    def run(self, specs: Sequence[PassSpec], batches: Sequence[tuple[Tensor, ...]]) -> list[PassResult]:
        """Do a pass of every seed on its own batch.

        Raises:
            SolveError: the solve of some seed failed. Nothing has changed then.
        """
        with ExitStack() as context:
            for task, spec in zip(self.tasks, specs, strict=True):
                context.enter_context(train_only(spec.trained, list(task.model.parameters())))
            try:
                losses = self._differentiate(specs, batches)
            except KeptTooMuchError:
                self.parts = [[i] for i in range(len(self.tasks))]
                self.steps, self.kept = {}, {}
                losses = self._differentiate(specs, batches)
            for spec in specs:
                for group in spec.groups:
                    group.optimiser.step()
        return [PassResult(loss.task.detach(), total.detach(), loss.metrics,
                           [gradient_norm(group.parameters) for group in spec.groups], loss.evaluations)
                for (loss, total), spec in zip(losses, specs, strict=True)]

    def _differentiate(self, specs: Sequence[PassSpec],
                       batches: Sequence[tuple[Tensor, ...]]) -> list[tuple[Loss, Tensor]]:
        """Compute the gradients of every seed; return its loss and what was differentiated, L_task + λ‖θ_g‖."""
        for spec in specs:
            for group in spec.groups:
                group.optimiser.zero_grad(set_to_none=True)
        found: list[tuple[Loss, Tensor]] = []
        for part in self.parts:
            detach = specs[0].detach_attention
            states = [self._start(i, batches[i], detach) for i in part]
            ends, costs = solve_seeds(self._steps(part, states[0][0]), states, detach)
            for i, end, cost in zip(part, ends, costs, strict=True):
                loss = Loss(*self.tasks[i].read_out(end, batches[i]), cost)
                found.append((loss, loss.task + specs[i].penalty_term()))
            if specs[0].trained:
                torch.stack([found[i][1] for i in part]).sum().backward()
        return found

    def _start(self, seed: int, batch: tuple[Tensor, ...], detach: bool) -> tuple[Tensor, ...]:
        layer: Any = self.layers[seed]
        return layer.system(self.tasks[seed].encode(batch), detach)[1]

    def _steps(self, part: Sequence[int], like: Tensor) -> KernelSteps:
        shape = tuple(like.shape)
        if (part[0], *shape) not in self.steps:
            kept = self.kept.setdefault(shape, [])
            self.steps[part[0], *shape] = KernelSteps([self.layers[i] for i in part], like, kept)
        return self.steps[part[0], *shape]
