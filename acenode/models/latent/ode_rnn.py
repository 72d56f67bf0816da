"""ODE-RNN: a Gaussian state that follows an ODE between observations and is updated by gates at them.

Rubanova et al., Latent ordinary differential equations for irregularly-sampled time series. With mean μ and standard
deviation s, both of size r, and x̃ = [x, m] the values and mask of a point:

    between points      dμ/dt = f(μ), by Euler steps
    at a point          u, g = σ(MLP[μ, s, x̃])        [μ̃, s̃] = MLP[μ ⊙ g, s ⊙ g, x̃]
                        μ ← (1−u) ⊙ μ̃ + u ⊙ μ         s ← |(1−u) ⊙ |s̃| + u ⊙ s|
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from acenode.accelerate import dispatch
from acenode.attention import Pairwise
from acenode.backend import ACCELERATED, Backend
from acenode.data.passes import EncoderRows, GateLayers
from acenode.data.points import Points, RecurrentSchedule
from acenode.models.layers import MLP, MLPField
from acenode.models.recurrent import MaskedGRU, time_to_next


class Drift(nn.Module):
    """dμ/dt = f(μ), by Euler steps."""

    def __init__(self, f: MLPField) -> None:
        super().__init__()
        self.f = f

    def initial_attention(self, mu: Tensor) -> Tensor | None:
        return None

    def step(self, mu: Tensor, a: Tensor | None, dt: Tensor, detach: bool) -> tuple[Tensor, Tensor | None]:
        """Return μ (B, r) and a after a step of length dt (B, 1). With `detach`, no gradient flows through a."""
        return torch.addcmul(mu, dt, self.f(mu)), a


class AttentiveDrift(Drift):
    """dμ/dt = f(μ'), da/dt = g(μ') with μ' = softmax(a) μ. a(0) is the identity, the correlation of μ = 0."""

    def __init__(self, f: MLPField, g: MLPField) -> None:
        super().__init__(f)
        self.g, self.attend = g, Pairwise()

    def initial_attention(self, mu: Tensor) -> Tensor:
        return torch.eye(mu.shape[-1], dtype=mu.dtype, device=mu.device).expand(*mu.shape, -1)  # (B, r, r)

    def step(self, mu: Tensor, a: Tensor | None, dt: Tensor, detach: bool) -> tuple[Tensor, Tensor | None]:
        assert a is not None
        attended = self.attend(mu, a.detach() if detach else a)
        return torch.addcmul(mu, dt, self.f(attended)), torch.addcmul(a, dt[:, None], self.g(attended))


class GaussianGRU(nn.Module):
    """The update at a point: gates u and g and a new state [μ̃, s̃], each by an MLP with one hidden layer."""

    def __init__(self, inputs: int, size: int, units: int, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.update = MLP(2 * size + inputs, size, units, 2, backend=backend)
        self.reset = MLP(2 * size + inputs, size, units, 2, backend=backend)
        self.state = MLP(2 * size + inputs, 2 * size, units, 2, backend=backend)

    def forward(self, mu: Tensor, s: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return μ and s (B, r) after reading x (B, inputs)."""
        y = torch.cat((mu, s, x), -1)
        u, g = torch.sigmoid(self.update(y)), torch.sigmoid(self.reset(y))
        new_mu, new_s = self.state(torch.cat((mu * g, s * g, x), -1)).chunk(2, -1)
        return (1 - u) * new_mu + u * mu, ((1 - u) * new_s.abs() + u * s).abs()

    def layers(self) -> GateLayers:
        """Return weights and biases, for an accelerated implementation."""
        return GateLayers(*(_weights(net) for net in (self.update, self.reset, self.state)))


class ODERNN(nn.Module):
    """A drift between the points and a Gaussian GRU at them; a point without observations changes nothing."""

    def __init__(self, inputs: int, size: int, units: int, drift: Drift, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.size, self.backend = size, backend
        self.cell, self.drift = GaussianGRU(inputs, size, units, backend), drift

    def forward(self, points: Points, schedule: RecurrentSchedule, detach_attention: bool = False) -> Tensor:
        """Return [μ, s] after every row of the schedule, (S, B, 2r)."""
        x = torch.cat((points.x, points.m), -1)  # (B, T, 2D)
        rows = EncoderRows(x, schedule.point, schedule.dt.unsqueeze(-1), schedule.read.unsqueeze(-1))
        plain_drift = type(self.drift) is Drift and not self.drift.f.bounded
        f = _weights(self.drift.f.layers) if plain_drift else None
        fast = dispatch.ode_rnn(self.backend, rows, self.cell.layers(), f, self.drift, detach_attention)
        return self.integrate(rows, detach_attention) if fast is None else fast

    def integrate(self, rows: EncoderRows, detach_attention: bool = False) -> Tensor:
        """Return the same row by row, as the equations read."""
        mu = s = rows.x.new_zeros(len(rows.x), self.size)
        a, states, series = self.drift.initial_attention(mu), [], torch.arange(len(rows.x), device=rows.x.device)
        for point, dt, read in zip(rows.point, rows.dt, rows.read, strict=True):
            mu, a = self.drift.step(mu, a, dt, detach_attention)
            new_mu, new_s = self.cell(mu, s, rows.x[series, point])
            mu, s = torch.where(read, new_mu, mu), torch.where(read, new_s, s)
            states.append(torch.cat((mu, s), 1))
        return torch.stack(states)


def _weights(net: MLP) -> list[tuple[Tensor, Tensor]]:
    return [(layer.weight, layer.bias) for layer in net.linear_layers()]


class ODEEncoder(nn.Module):
    """An ODE-RNN backwards in time, then an MLP from its last state to mean and standard deviation of z0."""

    backwards = True  # direction of the schedule that the encoder needs

    def __init__(self, latent: int, recurrence: ODERNN, hidden: int = 100) -> None:
        super().__init__()
        self.recurrence, self.latent = recurrence, latent
        self.out = MLP(2 * recurrence.size, 2 * latent, hidden, 2, backend=recurrence.backend)

    def forward(self, points: Points, schedule: RecurrentSchedule | None,
                detach_attention: bool = False) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of z0, (B, latent)."""
        assert schedule is not None
        return mean_and_deviation(self.out(self.recurrence(points, schedule, detach_attention)[-1]))


class RNNEncoder(nn.Module):
    """A GRU over the reversed points [Δ, x, m], then an MLP to mean and standard deviation of z0."""

    backwards = None  # needs no schedule

    def __init__(self, variables: int, latent: int, size: int, units: int, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.gru = MaskedGRU(2 * variables + 1, size)
        self.out = MLP(size, 2 * latent, units, 2, backend=backend)

    def forward(self, points: Points, schedule: RecurrentSchedule | None,
                detach_attention: bool = False) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of z0, (B, latent)."""
        x = torch.cat((time_to_next(points).unsqueeze(-1), points.x, points.m), -1)
        h = self.gru(x.flip(1), points.observed.flip(1))[:, -1]
        return mean_and_deviation(self.out(h))


def mean_and_deviation(y: Tensor) -> tuple[Tensor, Tensor]:
    """Split y (..., 2d) into a mean and a standard deviation, which is the absolute value of the second half."""
    mean, deviation = y.chunk(2, -1)
    return mean, deviation.abs()
