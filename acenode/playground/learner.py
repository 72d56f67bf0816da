"""The three networks of the playground, built from the library's own ODE layers, and their training side by side.

Each network also says how a place of the plane looks to one point. In a NODE, every point finds the same rate of change
there. In an augmented NODE it depends on the point's appended coordinate, and in ACE-NODE on the point's attention.
They are trained by the library's own trainer (Algorithm 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.attention import Dense, Elementwise, Pairwise
from acenode.errors import SolveError
from acenode.models.layers import initialise
from acenode.node import ACENODE, NODE, AugmentedNODE, Trajectory
from acenode.ode.solve import Solver
from acenode.playground.problems import PROBLEMS, Problem, drawn
from acenode.playground.settings import PlaygroundSettings
from acenode.training.task import Loss, Metric, ParameterGroups, Recipe, SilentListener
from acenode.training.trainer import Trainer

EXTRA = 1  # coordinates that the augmented network appends
MOST = 300  # points of a curve


class TimedField(nn.Module):
    """f(h, t) or g(h, t): one hidden layer of tanh units that read h and t."""

    def __init__(self, d: int, hidden: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.read, self.time = nn.Linear(d, hidden), nn.Linear(1, hidden, bias=False)
        self.write, self.shape = nn.Linear(hidden, torch.Size(shape).numel()), shape

    def forward(self, h: Tensor, t: Tensor) -> Tensor:
        shift = torch.addcmul(self.read.bias, self.time.weight[:, 0], t.to(h))  # t: a number, or (B, 1)
        y: Tensor = self.write(torch.tanh(F.linear(h, self.read.weight) + shift))
        return y if len(self.shape) == 1 else y.unflatten(-1, self.shape)


@dataclass(frozen=True)
class Network:
    """An ODE layer with its name; d is the number of coordinates of a point."""

    name: str
    layer: NODE | ACENODE
    d: int

    @property
    def sees_alone(self) -> bool:
        """True if each point finds a field of its own: it depends on appended coordinates or on attention."""
        return isinstance(self.layer, AugmentedNODE | ACENODE)

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return sum(p.numel() for p in self.layer.parameters())

    def attention(self, trajectory: Trajectory) -> tuple[Tensor, Tensor] | None:
        """Return the weights of attention (T, B, …) and what f reads, h′ (T, B, d); None without attention."""
        if not isinstance(self.layer, ACENODE) or trajectory.a is None:
            return None
        return self.layer.attend.weights(trajectory.a), self.layer.attend(trajectory.h, trajectory.a)

    def field(self, places: Tensor, trajectory: Trajectory, at: range, point: int) -> Tensor:
        """Return dh/dt (F, N, d) at places (N, d) as one point finds it at some of the trajectory's times."""
        t = trajectory.t[list(at)].repeat_interleave(len(places))[:, None]
        rates = self.rates(places.repeat(len(at), 1), t, [x[list(at), point].repeat_interleave(len(places), 0)
                                                          for x in (trajectory.h, trajectory.a) if x is not None])
        return rates.reshape(len(at), len(places), self.d)

    def rates(self, places: Tensor, t: Tensor, state: list[Tensor]) -> Tensor:
        """Return dh/dt (N, d) at places (N, d) for a point whose state there is h, or h and a (each (N, …))."""
        if isinstance(self.layer, ACENODE):
            return self.layer.f(self.layer.attend(places, state[1]), t)
        rates: Tensor = self.layer.f(torch.cat((places, state[0][:, self.d:]), -1), t)
        return rates[:, :self.d]


def solver(tolerance: float) -> Solver:
    """Return an adaptive solver whose steps all points share."""
    return Solver("bosh3", rtol=tolerance, atol=tolerance, per_sample=False)


def build(d: int, hidden: int, tolerance: float, attention: str, seed: int) -> list[Network]:
    """Build the three networks for points of d coordinates, each initialised from the seed.

    Attention is "elementwise" (Eq. 5) or "pairwise" (Eq. 4). With d = 1, the weight of a pairwise one is always one, so
    that ACE-NODE is a NODE.
    """
    how, pairwise, more = solver(tolerance), attention == "pairwise", d + EXTRA
    ace = ACENODE(TimedField(d, hidden, (d,)), TimedField(d, hidden, (d, d) if pairwise else (d,)),
                  Dense((d,), attention, hidden), attend=Pairwise() if pairwise else Elementwise(), solver=how)
    found = [Network("node", NODE(TimedField(d, hidden, (d,)), how), d),
             Network("augmented", AugmentedNODE(TimedField(more, hidden, (more,)), EXTRA, solver=how), d),
             Network("ace", ace, d)]
    for network in found:
        initialise(network.layer, seed)
    return found


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
        self.trainer = Trainer(PointsTask(network, problem), _recipe(settings), SilentListener())
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
