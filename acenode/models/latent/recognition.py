"""What a series says about its latent start: recurrent encoders that read a record's own points.

The ODE encoder keeps a mean μ and a deviation s. Between two points μ follows an ODE by Euler steps; at a point both
are updated by gates that are small networks (Rubanova et al., Latent ODEs for irregularly-sampled time series).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.accelerate.dispatch import ACCELERATED, TORCH_OPERATIONS, Backend, encoder_states
from acenode.attention import Pairwise
from acenode.data.points import Points, RecurrentSchedule
from acenode.models.dense_layers import Field, Perceptron


class Drift(nn.Module):
    """dμ/dt = f(μ), one Euler step at a time."""

    def __init__(self, f: Field) -> None:
        super().__init__()
        self.f = f

    def start(self, mu: Tensor) -> Tensor | None:
        return None

    def step(self, mu: Tensor, a: Tensor | None, dt: Tensor, detach: bool) -> tuple[Tensor, Tensor | None]:
        return torch.addcmul(mu, dt, self.f(mu)), a


class AttentiveDrift(Drift):
    """dμ/dt = f(μ'), da/dt = g(μ') with μ' = σ(a) μ; a begins as the identity, the correlation of μ = 0."""

    def __init__(self, f: Field, g: Field) -> None:
        super().__init__(f)
        self.g, self.attend = g, Pairwise()

    def start(self, mu: Tensor) -> Tensor:
        return torch.eye(mu.shape[-1], dtype=mu.dtype, device=mu.device).expand(*mu.shape, -1)

    def step(self, mu: Tensor, a: Tensor | None, dt: Tensor, detach: bool) -> tuple[Tensor, Tensor | None]:
        assert a is not None
        attended = self.attend(mu, a.detach() if detach else a)
        return torch.addcmul(mu, dt, self.f(attended)), torch.addcmul(a, dt[:, None], self.g(attended))


@dataclass(frozen=True)
class _Fused:
    """The gates' weights side by side; what they make of the input is one product for all points."""

    given: Tensor  # (S, B, 3u): the first maps of the input
    gates: Tensor  # (2r, 2u): the first maps of the state, for update and reset
    gates_out: Tensor  # (2u, 2r), block by block
    gates_bias: Tensor
    new: Tensor  # (2r, u)
    new_out: Tensor  # (u, 2r)
    new_bias: Tensor


class GaussianGRU(nn.Module):
    """u, r = σ(MLP[μ, s, x̃]), [μ̃, s̃] = MLP[μ⊙r, s⊙r, x̃]; μ ← (1−u)μ̃ + uμ, s ← |(1−u)|s̃| + us|."""

    def __init__(self, inputs: int, size: int, units: int) -> None:
        super().__init__()
        self.size, self.units = size, units
        self.update = Perceptron(2 * size + inputs, size, units, 2)
        self.reset = Perceptron(2 * size + inputs, size, units, 2)
        self.state = Perceptron(2 * size + inputs, 2 * size, units, 2)

    def fuse(self, x: Tensor, point: Tensor) -> _Fused:
        """x (B, T, inputs) with the rows' points (S, B)."""
        r, u = self.size, self.units
        update, reset, state = (net.maps() for net in (self.update, self.reset, self.state))
        first = torch.cat([net[0].weight for net in (update, reset, state)])  # (3u, 2r + inputs)
        bias = torch.cat([net[0].bias for net in (update, reset, state)])
        given = F.linear(x, first[:, 2 * r:], bias)  # (B, T, 3u)
        rows = given[torch.arange(len(x), device=x.device), point]  # (S, B, 3u)
        own = first[:, :2 * r].T
        return _Fused(rows, own[:, :2 * u], torch.block_diag(update[1].weight, reset[1].weight).T,
                      torch.cat((update[1].bias, reset[1].bias)), own[:, 2 * u:], state[1].weight.T, state[1].bias)

    def forward(self, y: Tensor, given: Tensor, w: _Fused) -> Tensor:
        """y = [μ, s] (B, 2r) after one update."""
        r, u = self.size, self.units
        gates = torch.sigmoid(torch.addmm(w.gates_bias, torch.tanh(torch.addmm(given[:, :2 * u], y, w.gates)),
                                          w.gates_out))
        keep, let = gates.view(-1, 2, 1, r).expand(-1, 2, 2, r).unbind(1)  # the same for μ and s
        own = y.view(-1, 2, r)
        new = torch.tanh(torch.addmm(given[:, 2 * u:], (own * let).flatten(1), w.new))
        mean, deviation = torch.addmm(w.new_bias, new, w.new_out).view(-1, 2, r).unbind(1)
        mixed = torch.lerp(torch.stack((mean, deviation.abs()), 1), own, keep)
        return torch.stack((mixed[:, 0], mixed[:, 1].abs()), 1).flatten(1)


class ODERecurrence(nn.Module):
    """Drift between the points, a Gaussian GRU at them; a point where nothing is observed changes nothing."""

    def __init__(self, inputs: int, size: int, units: int, drift: Drift,
                 backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.backend = backend
        self.size, self.cell, self.drift = size, GaussianGRU(inputs, size, units), drift

    def forward(self, points: Points, schedule: RecurrentSchedule, detach_attention: bool = False) -> Tensor:
        """[μ, s] after every row, (S, B, 2r)."""
        w = self.cell.fuse(torch.cat((points.x, points.m), -1), schedule.point)
        dt, read = schedule.dt.unsqueeze(-1), schedule.read.unsqueeze(-1)
        f = self.drift.f
        if isinstance(self.drift, AttentiveDrift) or f.bounded:
            return self._by_rows(points, w, dt, read, detach_attention)
        maps = [p for layer in f.layers.maps() for p in (layer.weight.t(), layer.bias)]
        weights = w.gates, w.gates_out, w.gates_bias, w.new, w.new_out, w.new_bias, *maps
        found = encoder_states(self.backend, w.given, dt, read, weights)
        return self._by_rows(points, w, dt, read, detach_attention) if found is None else found

    def _by_rows(self, points: Points, w: _Fused, dt: Tensor, read: Tensor, detach: bool = False) -> Tensor:
        """The same as the graph's own operations, for any drift."""
        self.backend.report_series_by(TORCH_OPERATIONS)
        r, kept = self.size, []
        y = points.x.new_zeros(len(points.x), 2 * r)
        a = self.drift.start(y[:, :r])
        for i, given in enumerate(w.given):
            mu, a = self.drift.step(y[:, :r], a, dt[i], detach)
            y = torch.cat((mu, y[:, r:]), 1)
            y = torch.where(read[i], self.cell(y, given, w), y)
            kept.append(y)
        return torch.stack(kept)


class ODEEncoder(nn.Module):
    """q(z0): the recurrence backwards in time, then a small network to mean and deviation."""

    backwards = True

    def __init__(self, latent: int, recurrence: ODERecurrence, hidden: int = 100) -> None:
        super().__init__()
        self.recurrence, self.latent = recurrence, latent
        self.out = Perceptron(2 * recurrence.size, 2 * latent, hidden, 2)

    def forward(self, points: Points, schedule: RecurrentSchedule | None,
                detach_attention: bool = False) -> tuple[Tensor, Tensor]:
        assert schedule is not None
        return gaussian(self.out(self.recurrence(points, schedule, detach_attention)[-1]))


class RNNEncoder(nn.Module):
    """q(z0): a plain GRU over the reversed points [Δ, x, m], then a small network to mean and deviation."""

    backwards = None  # needs no schedule

    def __init__(self, variables: int, latent: int, size: int, units: int) -> None:
        super().__init__()
        self.gru = GRU(2 * variables + 1, size)
        self.out = Perceptron(size, 2 * latent, units, 2)

    def forward(self, points: Points, schedule: RecurrentSchedule | None,
                detach_attention: bool = False) -> tuple[Tensor, Tensor]:
        x = torch.cat((gaps(points).unsqueeze(-1), points.x, points.m), -1)
        h = self.gru(x.flip(1), points.observed.flip(1))[:, -1]
        return gaussian(self.out(h))


class GRU(nn.Module):
    """A GRU that reads only the points where something is observed; h elsewhere is what it was before."""

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.layer = _TorchGRU(inputs, size)

    def forward(self, x: Tensor, observed: Tensor, h0: Tensor | None = None) -> Tensor:
        """h after every point, (B, T, size)."""
        order = (~observed).to(torch.uint8).argsort(dim=1, stable=True)  # what is observed comes first, in its order
        packed = x.gather(1, order.unsqueeze(-1).expand_as(x))
        start = x.new_zeros(len(x), self.size) if h0 is None else h0
        after, _ = self.layer(packed, start.unsqueeze(0).contiguous())
        states = torch.cat((start.unsqueeze(1), after), 1)  # (B, 1 + T, size)
        count = observed.cumsum(1)  # so many have been read by then
        return states.gather(1, count.unsqueeze(-1).expand(-1, -1, self.size))


class _TorchGRU(nn.GRU):
    def __init__(self, inputs: int, size: int) -> None:
        super().__init__(inputs, size, batch_first=True)

    def initialise(self, generator: torch.Generator) -> None:
        bound = self.hidden_size ** -0.5
        for p in self.parameters():
            p.data.uniform_(-bound, bound, generator=generator)


def gaps(points: Points) -> Tensor:
    """Δ (B, T): the time from a point to the next one of its record, zero after the last."""
    return F.pad(points.t.diff(dim=1), (0, 1))


def gaussian(y: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation, which is made positive by its absolute value."""
    mean, deviation = y.chunk(2, -1)
    return mean, deviation.abs()
