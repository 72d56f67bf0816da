"""One network of the playground while it trains, by the library's own trainer (Algorithm 1).

Its passes run in numpy (`acenode.accelerate.small_network`), which is several times as fast on so small a network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from acenode.accelerate.small_network.numpy_pass import SmallPass
from acenode.errors import SolveError
from acenode.node import ACENODE
from acenode.playground.history import History
from acenode.playground.networks import Network, solver
from acenode.playground.problems import Problem
from acenode.playground.settings import PlaygroundSettings
from acenode.training.task import Loss, Metric, ParameterGroups, Recipe, SilentListener
from acenode.training.trainer import Trainer


class PointsTask:
    """All points of a problem as one batch, for the trainer."""

    metric, iterations = Metric("loss", higher_is_better=False), 1

    def __init__(self, network: Network, problem: Problem) -> None:
        self.network, self.problem = network, problem

    @property
    def model(self) -> nn.Module:
        return self.network.layer

    def groups(self, detach_attention: bool) -> ParameterGroups:
        layer = self.network.layer
        g, q = (layer.g, layer.q) if isinstance(layer, ACENODE) else (None, None)
        return ParameterGroups.split(layer, [g], q, detach_attention)

    def batch(self, epoch: int, iteration: int) -> Tensor:
        return self.problem.h0

    def loss(self, batch: Any, *, detach_attention: bool) -> Loss:
        trajectory = self.network.layer(batch, self.problem.times, detach_attention=detach_attention)
        return Loss(self.problem.goal.loss(trajectory.h[1:, :, :self.problem.d]), {}, trajectory.evaluations)

    def evaluate(self, split: str) -> dict[str, float]:
        return {}  # the points that train are all there are


class Learner:
    """A network with its trainer, its losses so far, and the reason why it stopped, if it did."""

    def __init__(self, network: Network, problem: Problem, settings: PlaygroundSettings) -> None:
        self.network = network
        self.fast = SmallPass(network.layer, problem.d, problem.times, problem.goal.loss)
        self.trainer = Trainer(PointsTask(network, problem), _recipe(settings), SilentListener(), self.fast)
        self.losses = History()
        self.evaluations = 0  # of f in the last forward pass
        self.error = ""

    def step(self) -> None:
        """Train one step; a solve that fails or a loss that is not finite stops this network alone."""
        if self.error:
            return
        self.network.layer.train()
        try:
            record = self.trainer.train_batch()
        except SolveError as error:
            self.error = f"The solve failed ({error.reason}). Lower the learning rate and rewind."
            return
        loss = float(record["L_h"])
        self.evaluations = record["nfe_forward"]
        if not math.isfinite(loss):
            self.error = "The loss is no longer finite. Lower the learning rate and rewind."
            return
        self.losses.append(loss)

    def change(self, settings: PlaygroundSettings) -> None:
        """Continue with another learning rate, tolerance and λ."""
        self.trainer.recipe = _recipe(settings)
        self.network.layer.solver = solver(settings.tolerance)
        if self.trainer.attention_optimiser is not None:
            self.trainer.phase_two = replace(self.trainer.phase_two, penalty_weight=settings.penalty_weight)


def _recipe(settings: PlaygroundSettings) -> Recipe:
    return Recipe(epochs=1, learning_rate=settings.learning_rate, optimiser=_adam,
                  penalty_weight=settings.penalty_weight)


def _adam(parameters: Sequence[nn.Parameter], rate: float, is_attention: bool) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, rate, fused=True)
