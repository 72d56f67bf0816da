"""One explicit Runge–Kutta step over a state of several tensors, and its dense output.

The step size is a Python number, so a step is a fixed sequence of tensor operations: autograd can record it, or it can
be taken again from its start to be differentiated later (gradient "checkpointed").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from acenode.device.torch_private import transforms_active
from acenode.errors import GradientError, UserError
from acenode.ode.tableaus import Tableau

State = tuple[Tensor, ...]  # the blocks that are integrated together, such as (h, a)
VectorField = Callable[[Tensor, State], State]  # (t, state) -> d(state)/dt, t a scalar tensor
Slope = Callable[[Any, State], State]  # the same with t as a Python number, or (B,)


@dataclass
class Evaluations:
    """Count what a solve costs: evaluations of the vector field and steps.

    `forward` and `backward` count evaluations in each pass, `rejected` the trial steps whose error was too large, and
    `step_sizes` has the signed size of every accepted step.
    """

    forward: int = 0
    backward: int = 0
    rejected: int = 0
    step_sizes: list[float] = field(default_factory=list)

    @property
    def accepted(self) -> int:
        return len(self.step_sizes)


@dataclass(frozen=True)
class Solution:
    """The result of `acenode.solve`.

    Args:
        states: one tensor (T, *block) per block of the state, at the T requested times; with an event that happened,
            at those before it and, last, at the event.
        evaluations: how often the field was evaluated and which steps were taken.
        t: (T,), the times of the states.
        event_t: the time at which an event ended the solve; None if none did.

    Examples:
        >>> import torch
        >>> from acenode import solve
        >>> solution = solve(lambda t, state: (-state[0],), (torch.ones(3, 2),), [0.0, 0.5, 1.0])
        >>> [block.shape for block in solution.states]
        [torch.Size([3, 3, 2])]
        >>> solution.evaluations.accepted == len(solution.evaluations.step_sizes)
        True
    """

    states: State
    evaluations: Evaluations
    t: Tensor
    event_t: Tensor | None = None


def parameters_of(field: VectorField) -> list[Tensor]:
    """Return the trained parameters of a vector field; a plain function has none."""
    return [p for p in field.parameters() if p.requires_grad] if isinstance(field, nn.Module) else []


def slopes_of(field: VectorField, t: Tensor, y: State) -> State:
    """Evaluate the field; raise a UserError unless it returns one slope per block, each of its block's shape."""
    slopes = field(t, y)
    if isinstance(slopes, Tensor):
        raise UserError("the field of a solve returns a tuple with one slope per block: return (slope,), not a tensor")
    slopes = tuple(slopes)
    if len(slopes) != len(y):
        raise UserError(f"the field gave {len(slopes)} slopes for a state of {len(y)} blocks: return one per block")
    for i, (slope, block) in enumerate(zip(slopes, y, strict=True)):
        if slope.shape != block.shape:
            source, target = getattr(field, "names", {}).get(i, ("the field", ""))
            wrong = (f"{source} gave {tuple(slope.shape)} where {target} is {tuple(block.shape)}" if target else
                     f"{source} gave a slope of {tuple(slope.shape)} for block {i} of {tuple(block.shape)}")
            raise UserError(f"{wrong}: they must be equal")
        if slope.dtype != block.dtype and torch.promote_types(slope.dtype, block.dtype) != block.dtype:
            raise UserError(f"the field gave a slope of {slope.dtype} for block {i} of {block.dtype}: convert the "
                            "state or the field")
    return slopes


class _Combine(torch.autograd.Function):
    """y + Σ w_i k_i as one node of the autograd graph. It is linear, so it saves no tensors."""

    @staticmethod
    def forward(ctx: Any, weights: Sequence[float], y: Tensor, *ks: Tensor) -> Tensor:
        ctx.weights = weights
        out = torch.add(y, ks[0], alpha=weights[0])
        for w, k in zip(weights[1:], ks[1:], strict=True):
            out.add_(k, alpha=w)
        return out

    @staticmethod
    def jvp(ctx: Any, _: None, y: Tensor | None, *ks: Tensor | None) -> Tensor | None:
        terms = [] if y is None else [y]
        terms += [w * k for w, k in zip(ctx.weights, ks, strict=True) if k is not None]
        return sum(terms[1:], terms[0]) if terms else None

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        return None, grad, *(grad * w if needed else None
                             for w, needed in zip(ctx.weights, ctx.needs_input_grad[2:], strict=True))


def combine(y: State, weights: Sequence[float], ks: Sequence[State]) -> State:
    """Return y + Σ w_i k_i for every block of the state; terms with weight zero are skipped."""
    used = [i for i, w in enumerate(weights) if w != 0]
    if not used:
        return y
    chosen = tuple(weights[i] for i in used)
    if transforms_active():  # torch.func differentiates ordinary operations only
        return tuple(sum((w * ks[i][n] for w, i in zip(chosen, used, strict=True)), y[n]) for n in range(len(y)))
    return tuple(_Combine.apply(chosen, y[n], *(ks[i][n] for i in used)) for n in range(len(y)))


def rows(v: Tensor, like: Tensor) -> Tensor:
    """Shape one number per sample, (B,), to broadcast against a block (B, ...)."""
    return v.to(like.dtype).view(-1, *[1] * (like.dim() - 1))


def move(y: State, dt: Any, weights: Sequence[Any], ks: Sequence[State]) -> State:
    """Return y + dt Σ w_i k_i. dt is a number, or (B,); then the weights may be (B,) too."""
    if not isinstance(dt, Tensor):
        return combine(y, [dt * w for w in weights], ks)
    total = tuple(torch.zeros_like(b) for b in y)
    if isinstance(weights[0], Tensor):
        for w, k in zip(weights, ks, strict=True):
            total = tuple(b + rows(w, b) * s for b, s in zip(total, k, strict=True))
    else:
        total = combine(total, weights, ks)
    return tuple(b + rows(dt, b) * s for b, s in zip(y, total, strict=True))


def dense_weights(x: Any, tableau: Tableau, stages: int) -> list[Any]:
    """Return the weight of each stage in the interpolated state y0 + dt Σ w_i(x) k_i.

    x is the fraction of the step, a number or a tensor or polynomial; the last stage is the slope at the step's end.
    """
    if tableau.mid is not None:  # quartic through y0, y1, F0, F1 and the midpoint
        end, mid = x**2 * (-8 * x**2 + 14 * x - 5), 16 * x**2 * (x - 1) ** 2
        first, last = x * (1 + x * (-4 + x * (5 - 2 * x))), x**2 * (1 + x * (2 * x - 3))
    else:  # cubic Hermite
        end, mid = x**2 * (3 - 2 * x), 0.0
        first, last = x * (1 - x) ** 2, x**2 * (x - 1)
    weights: list[Any] = [0.0] * stages
    for i, b in enumerate(tableau.b):
        weights[i] += end * b + (mid * tableau.mid[i] if tableau.mid is not None else 0.0)
    weights[0] += first
    weights[-1] += last
    return weights


@dataclass(frozen=True)
class Step:
    """One step of a method from (t, y0) to (t + dt, y1), with its stages k_i.

    t and dt are numbers, or (B,) where every sample takes a step of its own.
    """

    t: Any
    dt: Any
    y0: State
    ks: list[State]
    y1: State

    def dense(self, t: float, tableau: Tableau) -> State:
        return self.inside((t - self.t) / self.dt, tableau)

    def inside(self, x: Any, tableau: Tableau) -> State:
        """Interpolate the state after a fraction x of the step."""
        return move(self.y0, self.dt, dense_weights(x, tableau, len(self.ks)), self.ks)


def take_step(F: Slope, tableau: Tableau, t: Any, dt: Any, y: State, k1: State | None = None) -> Step:
    """Take one Runge–Kutta step; pass F(t, y) as `k1` if it is known already."""
    ks = [F(t, y) if k1 is None else k1]
    yi = y
    for c, row in zip(tableau.c, tableau.a, strict=True):
        yi = move(y, dt, row, ks)
        ks.append(F(t + c * dt, yi))
    y1 = yi if tableau.fsal else move(y, dt, tableau.b, ks)
    return Step(t, dt, y, ks, y1)


def with_end_slope(F: Slope, tableau: Tableau, step: Step) -> Step:
    """Append the slope at the step's end as the last stage: dense output needs it, and not every method has it."""
    if tableau.fsal:
        return step
    return replace(step, ks=[*step.ks, F(step.t + step.dt, step.y1)])


# What "checkpointed" and "adjoint" cannot differentiate. Both compute the gradient of a solve in a backward pass of
# their own, with respect to the initial state and the parameters of the field; it cannot be differentiated again.


def refuse_second_derivatives(reason: str, gradients: Sequence[Tensor | None],
                              inputs: Sequence[Tensor]) -> list[Tensor | None]:
    """Return the gradients of the inputs such that differentiating them raises a GradientError with this reason."""
    anchors = [x for x in inputs if x.requires_grad]
    present = [g for g in gradients if g is not None]
    if not torch.is_grad_enabled() or not anchors or not present:
        return list(gradients)
    refused = iter(_FirstOrderOnly.apply(reason, len(present), *present, *anchors))
    return [None if g is None else next(refused) for g in gradients]


class _FirstOrderOnly(torch.autograd.Function):
    """The identity of gradients that have no gradient themselves."""

    generate_vmap_rule = True

    @staticmethod
    def forward(reason: str, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(g.view_as(g) for g in tensors[:count])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.reason = inputs[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise GradientError(ctx.reason)


def no_second_derivatives(mode: str) -> str:
    return f'gradient "{mode}" has no second derivatives: use gradient "backprop"'


def check_outside_tensors(mode: str, slopes: Iterable[Tensor], known: Iterable[Tensor]) -> None:
    """Raise a GradientError if the field's slopes depend on a tensor that needs a gradient and will get none.

    The `known` tensors get a gradient, or their graph leads to such tensors.
    """
    allowed = {id(leaf) for leaf in _leaves(known)}
    if any(id(leaf) not in allowed for leaf in _leaves(slopes)):
        raise GradientError(f'the field uses a tensor that was computed outside of it, and gradient "{mode}" has none '
                            "for it: make the tensor a part of the state or a parameter of the field, or use gradient "
                            '"backprop"')


def check_has_input(mode: str, field: VectorField, y: State, t: Tensor, parameters: Sequence[Tensor]) -> None:
    """Check for outside tensors where neither the state nor a parameter needs a gradient.

    There will be no backward pass that could notice them, so the field is evaluated once more.
    """
    if torch.is_grad_enabled() and not any(x.requires_grad for x in (*y, *parameters)):
        check_outside_tensors(mode, slopes_of(field, t, y), ())


def _leaves(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return the tensors without a history that the graphs of these tensors begin with."""
    found = [x for x in tensors if x.requires_grad and x.grad_fn is None]
    nodes = [x.grad_fn for x in tensors if x.grad_fn is not None]
    visited: set[Any] = set(nodes)
    while nodes:
        node = nodes.pop()
        if hasattr(node, "variable"):  # accumulates the gradient of a leaf
            found.append(node.variable)
        for following, _ in node.next_functions:
            if following is not None and following not in visited:
                visited.add(following)
                nodes.append(following)
    return found
