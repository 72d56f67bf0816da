"""Models of one architecture with their parameters stacked along a leading seed axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call


class StackedModel:
    """The parameters of S models in one tensor (S, ...) each.

    The parameters of the models become views of the stacks: what a batched update changes is seen by every model at
    once, so that each seed validates and saves its own model as if it were trained alone.
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        self.models = list(models)
        self.stacks: dict[str, Tensor] = {}
        self.names: dict[int, str] = {}  # of the parameters of the first model, by id
        for name, first in models[0].named_parameters():
            each = [model.get_parameter(name) for model in models]
            stack = torch.stack([p.detach() for p in each])
            for i, p in enumerate(each):
                p.data = stack[i]
            self.stacks[name], self.names[id(first)] = stack, name

    def stack_of(self, parameter: nn.Parameter) -> Tensor:
        """Return the stack of which a parameter of the first model is the first row."""
        return self.stacks[self.names[id(parameter)]]

    def map(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call `function` for all seeds at once; within it the first model has the parameters of each seed.

        Args:
            function: uses the first model; takes and returns tensors without the seed axis.
            args: tensors (S, ...), or tuples of them.
        """
        caller = _Caller(self.models[0], function)

        def one_seed(stacks: dict[str, Tensor], *given: Any) -> Any:
            return functional_call(caller, {f"model.{name}": row for name, row in stacks.items()}, given)

        return torch.vmap(one_seed)(self.stacks, *args)


class _Caller(nn.Module):
    """Calls a function that uses a model, so that `functional_call` can replace the model's parameters."""

    def __init__(self, model: nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.function = model, function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)
