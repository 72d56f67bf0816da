"""The three networks of the playground, built from the library's own ODE layers.

Each network also says how a place of the plane looks to one point. In a NODE, every point finds the same rate of change
there. In an augmented NODE it depends on the point's appended coordinate, and in ACE-NODE on the point's attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.attention import Dense, Elementwise, Pairwise
from acenode.models.layers import initialise
from acenode.node import ACENODE, NODE, AugmentedNODE, Trajectory
from acenode.ode.solve import Solver

EXTRA = 1  # coordinates that the augmented network appends


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

    sees_alone: ClassVar[bool] = False  # True if each point finds a field of its own

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return sum(p.numel() for p in self.layer.parameters())

    def attention(self, trajectory: Trajectory) -> tuple[Tensor, Tensor] | None:
        """Return the weights of attention (T, B, …) and what f reads, h′ (T, B, d); None without attention."""
        return None

    def field(self, places: Tensor, trajectory: Trajectory, at: range, point: int) -> Tensor:
        """Return dh/dt (F, N, d) at places (N, d) as one point finds it at some of the trajectory's times."""
        t = trajectory.t[list(at)].repeat_interleave(len(places))[:, None]
        rates = self.rates(places.repeat(len(at), 1), t, [x[list(at), point].repeat_interleave(len(places), 0)
                                                          for x in (trajectory.h, trajectory.a) if x is not None])
        return rates.reshape(len(at), len(places), self.d)

    def rates(self, places: Tensor, t: Tensor, state: list[Tensor]) -> Tensor:
        """Return dh/dt (N, d) at places (N, d) for a point whose state there is h, or h and a (each (N, …))."""
        return self.layer.f(places, t)


class AugmentedNetwork(Network):
    """A NODE with one appended coordinate."""

    sees_alone = True

    def rates(self, places: Tensor, t: Tensor, state: list[Tensor]) -> Tensor:
        return self.layer.f(torch.cat((places, state[0][:, self.d:]), -1), t)[:, :self.d]


class AttentiveNetwork(Network):
    """A NODE whose f reads h′, with attention that has an ODE of its own."""

    layer: ACENODE
    sees_alone = True

    def attention(self, trajectory: Trajectory) -> tuple[Tensor, Tensor] | None:
        assert trajectory.a is not None
        return self.layer.attend.weights(trajectory.a), self.layer.attend(trajectory.h, trajectory.a)

    def rates(self, places: Tensor, t: Tensor, state: list[Tensor]) -> Tensor:
        return self.layer.f(self.layer.attend(places, state[1]), t)


def solver(tolerance: float) -> Solver:
    """Return an adaptive solver whose steps all points share."""
    return Solver("bosh3", rtol=tolerance, atol=tolerance, per_sample=False)


def build(d: int, hidden: int, tolerance: float, attention: str, seed: int) -> list[Network]:
    """Build the three networks for points of d coordinates, each initialised from the seed.

    Args:
        attention: "elementwise" (Eq. 5) or "pairwise" (Eq. 4). With d = 1, the weight of a pairwise attention is
            always one, so that ACE-NODE is a NODE.
    """
    how, pairwise, more = solver(tolerance), attention == "pairwise", d + EXTRA
    ace = ACENODE(TimedField(d, hidden, (d,)), TimedField(d, hidden, (d, d) if pairwise else (d,)),
                  Dense((d,), attention, hidden), attend=Pairwise() if pairwise else Elementwise(), solver=how)
    found = [Network("node", NODE(TimedField(d, hidden, (d,)), how), d),
             AugmentedNetwork("augmented", AugmentedNODE(TimedField(more, hidden, (more,)), EXTRA, solver=how), d),
             AttentiveNetwork("ace", ace, d)]
    for network in found:
        initialise(network.layer, seed)
    return found
