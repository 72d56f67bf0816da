"""Passes of Algorithm 1 on a small network in numpy, for the trainer, and trajectories for pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acenode.accelerate.small_network.fields import (
    Array,
    SmallElementwise,
    SmallField,
    SmallMLP,
    SmallPairwise,
    SmallPlain,
)
from acenode.accelerate.small_network.solve import SmallSolve
from acenode.attention import Dense, Pairwise
from acenode.node import ACENODE, NODE, AugmentedNODE, Trajectory
from acenode.training.passes import PassResult, PassSpec, gradient_norm


class SmallNetwork:
    """The arrays of an ODE layer: its field, and q if it has attention. They share the memory of the torch parameters.

    Args:
        layer: whose f and g are `TimedMLP`, and whose q is `Dense`.
        d: the number of coordinates of h(0).
    """

    def __init__(self, layer: NODE | ACENODE, d: int) -> None:
        self.layer, self.d = layer, d
        self.q: SmallMLP | None = None
        self.field: SmallField
        self.extra = layer.extra if isinstance(layer, AugmentedNODE) else 0
        if isinstance(layer, ACENODE):
            assert isinstance(layer.q, Dense)
            self.q = SmallMLP(layer.q)
            self.field = (SmallPairwise if isinstance(layer.attend, Pairwise) else SmallElementwise)(layer, d)
        else:
            self.field = SmallPlain(layer, d + self.extra)

    def solve(self, h0: Array, times: Sequence[float]) -> tuple[SmallSolve, Array | None]:
        """Integrate from h0 (B, d); also return the hidden units of q."""
        if self.q is None:
            y0, z = np.concatenate((h0, np.zeros((len(h0), self.extra), np.float32)), 1), None
        else:
            a0, z = self.q.forward(h0, 0.0)
            y0 = np.concatenate((h0, a0), 1)
        return SmallSolve(self.field, y0, times, self.layer.solver), z

    @np.errstate(over="ignore", invalid="ignore")  # a solve that diverges raises a SolveError
    def trajectory(self, h0: Tensor, times: Sequence[float]) -> Trajectory:
        """Return what the layer returns, without gradients."""
        solved, _ = self.solve(h0.numpy(), times)
        split = self.d + self.extra
        h, a = torch.from_numpy(solved.states[..., :split]), None
        if isinstance(self.layer, ACENODE):
            a = torch.from_numpy(solved.states[..., split:].copy())
            if isinstance(self.layer.attend, Pairwise):
                a = a.unflatten(-1, (split, split))
        return Trajectory(torch.tensor(times, dtype=torch.float64), h, a, solved.evaluations)


class SmallPass:
    """Runs a pass for the trainer: loss and gradients in numpy, the update by the pass's own optimisers.

    Args:
        layer: see `SmallNetwork`.
        d: the number of coordinates of h(0).
        times: t = 0 and the K times that the loss reads.
        loss: computes the loss from the first d coordinates at those times, (K, B, d).
    """

    def __init__(self, layer: NODE | ACENODE, d: int, times: Sequence[float],
                 loss: Callable[[Tensor], Tensor]) -> None:
        self.small, self.times, self.loss = SmallNetwork(layer, d), times, loss

    @np.errstate(over="ignore", invalid="ignore")
    def run(self, spec: PassSpec, batch: Any) -> PassResult | None:
        """Do one pass; None, so that torch does it, if a(t) is to be held constant in the gradient."""
        if spec.detach_attention:
            return None
        h0, d = batch.numpy(), self.small.d
        for network in self._networks():
            network.tape.clear()
        solved, z = self.small.solve(h0, self.times)
        visible = torch.from_numpy(solved.states[1:, :, :d]).requires_grad_()
        loss = self.loss(visible)
        (seen,) = torch.autograd.grad(loss, visible)
        g = np.zeros_like(solved.states)
        g[1:, :, :d] = seen.numpy()
        g0 = solved.backward(g)
        if self.small.q is not None and z is not None:
            self.small.q.backward(h0, 0.0, z, g0[:, d:])
        penalty = self._update(spec)
        return PassResult(loss.detach(), loss.detach() + penalty, {},
                          [gradient_norm(group.parameters) for group in spec.groups], solved.evaluations)

    def _networks(self) -> list[SmallMLP]:
        return self.small.field.networks + ([self.small.q] if self.small.q is not None else [])

    def _update(self, spec: PassSpec) -> Tensor | float:
        """Set the gradients of the parameters that the pass trains, update them, and return λ‖θ_g‖."""
        trained = {id(p) for p in spec.trained}
        for network in self._networks():
            if id(network.parameters[0]) in trained:
                for p, gradient in zip(network.parameters, network.gradients(), strict=True):
                    p.grad = torch.from_numpy(gradient)
        penalty = spec.penalty_term()
        if isinstance(penalty, Tensor):
            penalty.backward()
        for group in spec.groups:
            group.optimiser.step()
        return penalty.detach() if isinstance(penalty, Tensor) else penalty
