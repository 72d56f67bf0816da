"""Say in words which gradients "checkpointed" and "adjoint" cannot compute, instead of leaving them out.

Both compute the gradient of a solve in a backward pass of their own, with respect to the initial state and the
parameters of the field, and that pass cannot be differentiated again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from acenode.errors import GradientError
from acenode.ode.runge_kutta import State, VectorField, slopes_of


def refuse_second_derivatives(reason: str, gradients: Sequence[Tensor | None],
                              inputs: Sequence[Tensor]) -> list[Tensor | None]:
    """Return the gradients such that differentiating them raises a GradientError.

    Args:
        reason: the message of that error.
        gradients: of the inputs, computed without a graph.
        inputs: what the gradients depend on.
    """
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
    """Raise a GradientError if slopes depend on a tensor that needs a gradient and will get none.

    Args:
        mode: the gradient that is computed, for the message.
        slopes: what the field computed, with its graph.
        known: the tensors that get a gradient, or whose graph leads to such tensors.
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
