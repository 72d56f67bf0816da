"""One step of SGD for all seeds: the rule of torch.optim.SGD on stacked parameters, with a learning rate a seed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from acenode.accelerate.cuda_graph import sgd_update
from acenode.accelerate.many_seeds.stacked_model import StackedModel


def supports(optimiser: torch.optim.Optimizer) -> bool:
    """Return True for SGD with or without momentum and weight decay, and nothing else."""
    return sgd_update.recordable(optimiser) and not any(group["nesterov"] or group["maximize"]
                                                        for group in optimiser.param_groups)


class StackedSGD:
    """The optimisers of one group of parameters, one a seed; their momentum buffers become views of stacks."""

    def __init__(self, model: StackedModel, optimisers: Sequence[torch.optim.Optimizer]) -> None:
        self.optimisers = list(optimisers)
        self.momenta: dict[int, Tensor] = {}  # by id of the stack of the parameter
        for optimiser in optimisers:
            sgd_update.fill_momentum(optimiser)
        self.settings: list[tuple[Tensor, float, float]] = []  # stacked parameter, momentum, weight decay
        for groups in zip(*(o.param_groups for o in optimisers), strict=True):
            for each in zip(*(group["params"] for group in groups), strict=True):
                stack, momentum = model.stack_of(each[0]), groups[0]["momentum"]
                self.settings.append((stack, momentum, groups[0]["weight_decay"]))
                if momentum:
                    states = [o.state[p] for o, p in zip(optimisers, each, strict=True)]
                    buffers = torch.stack([state["momentum_buffer"] for state in states])
                    for i, state in enumerate(states):
                        state["momentum_buffer"] = buffers[i]
                    self.momenta[id(stack)] = buffers

    @property
    def stacks(self) -> list[Tensor]:
        return [stack for stack, _, _ in self.settings]

    @torch.no_grad()
    def step(self, gradients: dict[int, Tensor]) -> None:
        """Update the stacks that have a gradient, given by id of the stack."""
        rates = [float(o.param_groups[0]["lr"]) for o in self.optimisers]
        for stack, momentum, decay in self.settings:
            grad = gradients.get(id(stack))
            if grad is None:
                continue
            if decay:
                grad = grad + decay * stack
            if momentum:
                grad = self.momenta[id(stack)].mul_(momentum).add_(grad)
            if len(set(rates)) == 1:
                stack.add_(grad, alpha=-rates[0])
            else:
                rate = torch.tensor(rates, dtype=stack.dtype, device=stack.device)
                stack.sub_(grad * rate.view(-1, *[1] * (stack.dim() - 1)))
