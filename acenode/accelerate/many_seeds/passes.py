"""A pass of Algorithm 1 for several seeds whose ODEs are solved together by the C kernel.

Encoder, q, read-out and optimisers are those of every seed; between them, one solve takes the steps of all seeds, each
with its own time, step size and error norm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from acenode.accelerate.many_seeds.steps import KeptTooMuchError, KernelSteps
from acenode.errors import LOOSEN, RAISE_LIMIT, SolveError
from acenode.ode.runge_kutta import Evaluations
from acenode.ode.step_size import first_step_size, next_step_size, trial_step_size
from acenode.training.passes import PassResult, PassSpec, gradient_norm, train_only
from acenode.training.task import Loss, PiecewiseTask


class SeedPasses:
    """The passes of the tasks of several seeds.

    Args:
        tasks: one a seed; `supports` accepts their ODE layers.
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


@dataclass(frozen=True)
class _SeedsAttempt:
    """An attempted step: where each seed was, its step size, and which seeds accepted it."""

    t: list[float]
    dt: list[float]
    accepted: list[int]


def solve_seeds(steps: KernelSteps, states: Sequence[Sequence[Tensor]],
                detach_attention: bool) -> tuple[list[Tensor], list[Evaluations]]:
    """Integrate from 0 to 1 and return h(1) of every seed, (B, C, H, W), and what its solve cost.

    Args:
        steps: the kernel for layers and states of these shapes.
        states: the blocks of every seed, (B, C, H, W) each.
        detach_attention: treat a(t) as a constant in the gradient.

    Raises:
        SolveError: the solve of some seed failed.
    """
    costs = [Evaluations() for _ in states]
    parameters = [p for field in steps.fields for each in field.parameters() for p in each]
    blocks = [b for state in states for b in state]
    ends = _Solve.apply(steps, costs, detach_attention, len(blocks), *blocks, *parameters)
    return list(ends), costs


class _Solve(torch.autograd.Function):
    """The steps of all seeds, and their exact gradient."""

    @staticmethod
    def forward(ctx: Any, steps: KernelSteps, costs: list[Evaluations], detach: bool, blocks: int,
                *tensors: Tensor) -> tuple[Tensor, ...]:
        each = len(tensors[:blocks]) // steps.seeds
        y = torch.stack([_to_pixels(b) for b in tensors[:blocks]]).unflatten(0, (steps.seeds, each))
        y = y.transpose(1, 2).contiguous()  # (S, B, blocks, P, C)
        steps.begin(detach)
        ctx.steps, ctx.attempts = steps, _take_steps(steps, y, costs)
        ctx.blocks, ctx.parameters = blocks, len(tensors) - blocks
        return tuple(_to_map(h, steps.map) for h in y[:, :, 0])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        steps: KernelSteps = ctx.steps
        dy = torch.zeros(steps.shape)
        dy[:, :, 0] = torch.stack([_to_pixels(g) for g in grads])
        dk = torch.zeros(steps.shape)
        end_used = torch.zeros(steps.seeds, dtype=torch.int64)
        for i, attempt in reversed(list(enumerate(ctx.attempts))):
            if attempt.accepted:
                steps.call("attempt_back", attempt.accepted, attempt.t, attempt.dt, end_used=end_used,
                           kept=steps.kept_for(i), dy=dy, dk=dk)
                end_used[attempt.accepted] = 1
        steps.call("first_back", range(steps.seeds), [0.0] * steps.seeds, kept=steps.first_kept, dy=dy, dk=dk)
        of_state = [_to_map(b, steps.map) for seed in dy for b in seed.unbind(1)]
        sums = steps.gradients.sum(1).split([field.gradient_size for field in steps.fields], dim=1)
        of_parameters = [g[i] for field, rows in zip(steps.fields, sums, strict=True)
                         for found in [field.unpack(rows)] for i in range(steps.seeds) for g in found]
        return None, None, None, None, *of_state, *of_parameters


def _take_steps(steps: KernelSteps, y: Tensor, costs: list[Evaluations]) -> list[_SeedsAttempt]:
    """Integrate y from 0 to 1 in place and return the attempted steps."""
    solver, order, S = steps.solver, steps.tableau.order, steps.seeds
    if not bool(torch.isfinite(y).all()):
        raise SolveError("the initial state is NaN or infinite", 0.0, 0.0, "check what the ODE is started from")
    t, k = [0.0] * S, torch.empty(steps.shape)
    steps.call("first", range(S), t, y=y, k1=k, kept=steps.first_kept)
    size, ratio = _first_sizes(steps, y, k), [0.0] * S
    attempts: list[_SeedsAttempt] = []
    active = list(range(S))
    for cost in costs:
        cost.forward += 2
    for number in range(solver.max_steps):
        last = [not size[s] < 1.0 - t[s] for s in range(S)]
        dt = [1.0 - t[s] if last[s] else size[s] for s in range(S)]
        for s in active:
            if not math.isfinite(size[s]) or t[s] + dt[s] == t[s]:
                broken = not (math.isfinite(size[s]) and math.isfinite(ratio[s]))
                raise SolveError("the field gave NaN or infinity" if broken else "underflow in dt", t[s], dt[s], LOOSEN)
        steps.call("attempt", active, t, dt, y=y, k=k, y1=steps.y1, k1=steps.k1, kept=steps.kept_for(number))
        means = steps.squares.sum(1).div_(steps.shape[1] * steps.shape[3] * steps.shape[4]).sqrt_().tolist()
        attempt = _SeedsAttempt(list(t), dt, [])
        attempts.append(attempt)
        for s in list(active):
            ratio[s] = math.nan if any(map(math.isnan, means[s])) else max(means[s])
            accepted = ratio[s] <= 1
            costs[s].forward += len(steps.tableau.a)
            if accepted:
                attempt.accepted.append(s)
                costs[s].step_sizes.append(dt[s])
                y[s], k[s] = steps.y1[s], steps.k1[s]
                t[s] += dt[s]
                if last[s]:
                    active.remove(s)
            else:
                costs[s].rejected += 1
            size[s] = next_step_size(dt[s], ratio[s], accepted, order)
        if not active:
            return attempts
    raise SolveError(f"the step limit of {solver.max_steps} was reached", min(t), min(size), RAISE_LIMIT)


def _first_sizes(steps: KernelSteps, y: Tensor, k: Tensor) -> list[float]:
    """Return the size of every seed's first step; evaluates the fields once more."""
    scale = y.abs().mul_(steps.solver.rtol).add_(steps.solver.atol)

    def norms(x: Tensor) -> list[float]:
        return (x / scale).square_().mean((1, 3, 4)).sqrt_().amax(1).tolist()

    slope_norm = norms(k)
    h0 = [trial_step_size(a, b) for a, b in zip(norms(y), slope_norm, strict=True)]
    if not all(0 < h < math.inf for h in h0):
        return [math.nan] * len(h0)
    moved = torch.addcmul(y, k, torch.tensor(h0).view(-1, 1, 1, 1, 1))
    steps.call("first", range(steps.seeds), h0, y=moved, k1=steps.k1, kept=steps.trial_kept)
    changes = norms(steps.k1 - k)
    return [first_step_size(h, slope, change, steps.tableau.order)
            for h, slope, change in zip(h0, slope_norm, changes, strict=True)]


def _to_pixels(b: Tensor) -> Tensor:
    """(B, C, H, W) -> (B, P, C)."""
    return b.flatten(2).transpose(1, 2)


def _to_map(b: Tensor, shape: tuple[int, int]) -> Tensor:
    """(B, P, C) -> (B, C, H, W), contiguous."""
    return b.transpose(1, 2).unflatten(2, shape).contiguous()
