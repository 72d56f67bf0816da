"""The networks of the playground while they train side by side, by the library's own trainer (Algorithm 1).

Their passes run in numpy (`acenode.accelerate.small_network`), which is several times as fast on so small a network.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from acenode.accelerate.small_network import SmallPass
from acenode.errors import SolveError
from acenode.node import ACENODE
from acenode.playground.networks import Network, build, solver
from acenode.playground.problems import PROBLEMS, Problem, drawn
from acenode.playground.settings import PlaygroundSettings
from acenode.training.task import Loss, Metric, ParameterGroups, Recipe, SilentListener
from acenode.training.trainer import Trainer

MOST = 300  # points of a curve


class History:
    """Values by step. When there are too many, every second one is dropped; the newest value is always there."""

    def __init__(self) -> None:
        self.every, self.count, self.last = 1, 0, float("nan")
        self._kept: list[float] = []

    def append(self, value: float) -> None:
        """Add the value of the next step."""
        if self.count % self.every == 0:
            self._kept.append(value)
        self.count, self.last = self.count + 1, value
        if len(self._kept) > MOST:
            self._kept, self.every = self._kept[::2], 2 * self.every

    def points(self) -> tuple[list[int], list[float]]:
        """Return steps, from 1 on, and their values."""
        steps, values = [1 + i * self.every for i in range(len(self._kept))], list(self._kept)
        if steps and steps[-1] != self.count:
            steps, values = [*steps, self.count], [*values, self.last]
        return steps, values


class PointsTask:
    """All points of a problem as one batch, for the trainer."""

    metric, iterations = Metric("loss", higher_is_better=False), 1

    def __init__(self, network: Network, problem: Problem) -> None:
        self.network, self.problem, self.model = network, problem, network.layer

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
        self.losses, self.error = History(), ""
        self.evaluations = 0  # of f in the last forward pass

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
        self.evaluations = record["nfe_forward"]
        if math.isfinite(record["L_h"]):
            self.losses.append(float(record["L_h"]))
        else:
            self.error = "The loss is no longer finite. Lower the learning rate and rewind."

    def change(self, settings: PlaygroundSettings) -> None:
        """Continue with another learning rate, tolerance and λ."""
        self.trainer.recipe = _recipe(settings)
        self.network.layer.solver = solver(settings.tolerance)
        if self.trainer.attention_optimiser is not None:
            self.trainer.phase_two = replace(self.trainer.phase_two, penalty_weight=settings.penalty_weight)


class SideBySide:
    """Three learners that take their steps together. Nothing in it is random but the seed."""

    def __init__(self, settings: PlaygroundSettings) -> None:
        self.settings = settings
        self.rewind()

    def rewind(self) -> None:
        """Start again from the seed; the same steps then give the same numbers."""
        settings = self.settings
        drawing = settings.problem == "drawn" and settings.strokes
        self.problem = drawn(settings.strokes) if drawing else PROBLEMS[settings.problem]()
        networks = build(self.problem.d, settings.hidden, settings.tolerance, settings.attention, settings.seed)
        self.learners = [Learner(network, self.problem, settings) for network in networks]
        self.steps = 0

    def step(self) -> None:
        """Train every network one step."""
        for learner in self.learners:
            learner.step()
        self.steps += 1

    def change(self, settings: PlaygroundSettings) -> None:
        """Apply settings: at once where networks can go on with them, from the beginning where they cannot."""
        old, self.settings = self.settings, settings
        if settings.needs_new_networks(old):
            return self.rewind()
        for learner in self.learners:
            learner.change(settings)


def _recipe(settings: PlaygroundSettings) -> Recipe:
    return Recipe(epochs=1, learning_rate=settings.learning_rate, penalty_weight=settings.penalty_weight,
                  optimiser=lambda parameters, rate, is_attention: torch.optim.Adam(parameters, rate, fused=True))
