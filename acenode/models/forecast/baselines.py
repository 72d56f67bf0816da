"""The forecasting baselines: GRU-Simple, GRU-D, T-LSTM, a neural ODE in a VAE, and a deep Kalman filter.

The recurrent ones predict every point before they read it: a step with nothing observed advances the state to the
point's time. After the last observation such steps lead from target to target.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.accelerate import dispatch
from acenode.backend import ACCELERATED, Backend
from acenode.data.points import Points
from acenode.data.schedule import NoiseSource, SporadicBatch
from acenode.models.forecast.gaussian import Affine, Forecast, Forecaster, elapsed, seen_and_targets
from acenode.models.layers import (
    GRUCell,
    LinearLayer,
    MaskedGRU,
    MissingDataGRU,
    MLPField,
    RecurrentInputs,
    run_recurrence,
    states_at,
    states_before,
)
from acenode.node import NODE
from acenode.ode.options import Solver

MIN_VARIANCE = 1e-6


# A recurrence has a state of `width` coordinates, of which the first `size` are h. `step_inputs` computes what `step`
# reads for all points at once; `run` returns the state after every point, (B, T, width).


class GRUSimple(nn.Module):
    """h ← GRU([x̂, m, δ], h), where x̂ has the training mean where x is unobserved (Che et al.)."""

    mean: Tensor

    def __init__(self, variables: int, size: int, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.size, self.width = size, size
        self.cell = GRUCell(3 * variables, size, backend)
        self.register_buffer("mean", torch.zeros(variables))  # of the observed training values

    def step_inputs(self, r: RecurrentInputs) -> tuple[Tensor, ...]:
        x = torch.where(r.m > 0, r.x, self.mean)
        return (self.cell.input(torch.cat((x, r.m, r.delta), -1)),)

    def step(self, state: Tensor, *given: Tensor) -> Tensor:
        return self.cell(given[0], state)

    def run(self, given: tuple[Tensor, ...], mask: Tensor, start: Tensor) -> Tensor:
        return self.cell.run(given[0], mask, start)


def gru_d(variables: int, size: int, backend: Backend = ACCELERATED) -> MissingDataGRU:
    """Return GRU-D with a decay for every coordinate of h (Che et al.)."""
    return MissingDataGRU(variables, size, gap=False, impute=True, decay=True, full=True, backend=backend)


class TimeLSTM(nn.Module):
    """An LSTM on [x, m] whose short-term memory decays with time (Baytas et al., T-LSTM).

    C_S = tanh(W_d C + b_d), C* = (C − C_S) + g(Δ) C_S, g(Δ) = 1/log(e + Δ);
    C ← f⊙C* + i⊙C̃, h ← o⊙tanh(C), with i, f, o = σ(W [x, m] + U h + b) and C̃ = tanh(W [x, m] + U h + b).
    """

    def __init__(self, variables: int, size: int, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.size, self.width, self.backend = size, 2 * size, backend
        bound = size ** -0.5  # as torch initialises an LSTM
        self.input = LinearLayer(2 * variables, 4 * size, bound=bound, backend=backend)
        self.hidden = LinearLayer(size, 4 * size, bound=bound, backend=backend)
        self.short = LinearLayer(size, size, bound=bound, backend=backend)

    def step_inputs(self, r: RecurrentInputs) -> tuple[Tensor, ...]:
        """Return W [x, m] + b for i, f, o and C̃, and g(Δ) − 1."""
        return self.input(torch.cat((r.x, r.m), -1)), 1 / torch.log(math.e + r.gap) - 1

    def step(self, state: Tensor, *given: Tensor) -> Tensor:
        row, lost = given
        h, C = state.chunk(2, -1)
        C = torch.addcmul(C, lost, torch.tanh(self.short(C)))
        y = row + self.hidden(h)
        i, f, o = torch.sigmoid(y[..., :-self.size]).chunk(3, -1)
        C = torch.addcmul(f * C, i, torch.tanh(y[..., -self.size:]))
        return torch.cat((o * torch.tanh(C), C), -1)

    def run(self, given: tuple[Tensor, ...], mask: Tensor, start: Tensor) -> Tensor:
        projected, lost = given
        fast = dispatch.recurrence(self.backend, "lstm", mask, start, (projected, lost), (
            self.hidden.weight, self.hidden.bias, self.short.weight, self.short.bias))
        return run_recurrence(self.step, given, mask, start) if fast is None else fast


class RecurrentForecaster(Forecaster):
    """Predict each target from h after a step to its time with nothing observed.

    `detach_attention` is unused here and below; all forecasting models share this signature.
    """

    def __init__(self, recurrence: GRUSimple | MissingDataGRU | TimeLSTM, variables: int, units: int,
                 dropout: float = 0.0) -> None:
        super().__init__(recurrence.size, variables, units, dropout)
        self.recurrence = recurrence

    def states(self, batch: SporadicBatch, read: RecurrentInputs) -> Tensor:
        """Return the state after every seen point, (B, T, width)."""
        start = read.x.new_zeros(len(read.x), self.recurrence.width)
        return self.recurrence.run(self.recurrence.step_inputs(read), batch.seen.valid, start)

    def forward(self, batch: SporadicBatch, *, detach_attention: bool = False) -> Forecast:
        read, targets = seen_and_targets(batch)
        states, given = self.states(batch, read), self.recurrence.step_inputs(targets)
        if batch.training:
            at = self.recurrence.step(states_before(states), *given)
        else:
            at = self.recurrence.run(given, batch.target.valid, states[:, -1])
        return self.predict(at[..., :self.latent], NoiseSource(batch.seed, at.device))

    def trajectory(self, batch: SporadicBatch, t: list[float]) -> tuple[Tensor, None]:
        states = self.states(batch, seen_and_targets(batch)[0])[..., :self.latent]
        return states_at(states, batch.seen, t), None


class ODEVAE(Forecaster):
    """q(z0) by a GRU over the reversed [x, Δ], or [x, m, Δ] with `mask`; dz/dt = f(z), two linear maps and a tanh.

    The ODE's time is in units of the horizon. z0 is a sample of q in training, its mean otherwise; `extra` is
    KL(q(z0) ‖ N(0, 1)).
    """

    def __init__(self, variables: int, latent: int, units: int, recognition: int, head: int, *, mask: bool,
                 solver: Solver, dropout: float = 0.0, backend: Backend = ACCELERATED) -> None:
        super().__init__(latent, variables, head, dropout)
        self.mask = mask
        self.gru = MaskedGRU((1 + mask) * variables + 1, recognition)
        self.out = Affine(recognition, 2 * latent)
        self.ode = NODE(MLPField(latent, latent, units, 2, backend=backend), solver)

    def encode(self, points: Points) -> tuple[Tensor, Tensor]:
        x = torch.cat((points.x, *((points.m,) if self.mask else ()), elapsed(points.t)), -1)
        mean, logvar = self.out(self.gru(x.flip(1), points.valid.flip(1))[:, -1]).chunk(2, -1)
        return mean, logvar

    def forward(self, batch: SporadicBatch, *, detach_attention: bool = False) -> Forecast:
        mean, logvar = self.encode(batch.seen)
        noise = NoiseSource(batch.seed, mean.device)
        z0 = mean
        if self.training:
            z0 = torch.addcmul(mean, (0.5 * logvar).exp(), noise.normal(*mean.shape).to(mean))
        found = self.ode.at(z0, batch.target.t / batch.horizon)
        extra = 0.5 * (logvar.exp() + mean.square() - 1 - logvar).sum()
        return replace(self.predict(found.h, noise, extra), evaluations=found.evaluations)

    def trajectory(self, batch: SporadicBatch, t: list[float]) -> tuple[Tensor, None]:
        mean, _ = self.encode(batch.seen)
        times = torch.tensor(t, dtype=mean.dtype, device=mean.device) / batch.horizon
        return self.ode.at(mean, times.expand(len(mean), -1)).h.transpose(0, 1), None


def positive(y: Tensor) -> Tensor:
    return F.softplus(y) + MIN_VARIANCE


def kl(mean: Tensor, variance: Tensor, prior_mean: Tensor, prior_variance: Tensor) -> Tensor:
    """Return KL(N(μ, σ²) ‖ N(μ', σ'²)) of every entry."""
    ratio = (variance + (mean - prior_mean).square()) / prior_variance
    return 0.5 * (ratio - 1 + prior_variance.log() - variance.log())


class IdentityAffine(Affine):
    """A linear layer that is initialised as the identity."""

    def initialise(self, generator: torch.Generator) -> None:
        nn.init.eye_(self.weight)
        nn.init.zeros_(self.bias)


class Transition(nn.Module):
    """p(z_t | z_{t−1}, Δ) = N(G, S): G = (1−g)⊙(W z + b) + g⊙H, S = softplus(W ReLU(H) + b).

    The gate g = σ(MLP(z, Δ)) and H = MLP(z, Δ) have one hidden layer of ReLU units each.
    """

    def __init__(self, latent: int, units: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(Affine(latent + 1, units), nn.ReLU(), Affine(units, latent), nn.Sigmoid())
        self.new = nn.Sequential(Affine(latent + 1, units), nn.ReLU(), Affine(units, latent))
        self.linear, self.spread = IdentityAffine(latent, latent), Affine(latent, latent)

    def forward(self, z: Tensor, gap: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.cat((z, gap), -1)
        new = self.new(y)
        return torch.lerp(self.linear(z), new, self.gate(y)), positive(self.spread(torch.relu(new)))


class Posterior(nn.Module):
    """q(z_t | z_{t−1}, x_{t:T}) = N(W c + b, softplus(W c + b)) with c = ½(tanh(W z_{t−1} + b) + b_t).

    b_t is the state of a GRU that reads [x, m, Δ] backwards, after point t.
    """

    def __init__(self, variables: int, latent: int, size: int) -> None:
        super().__init__()
        self.gru = MaskedGRU(2 * variables + 1, size)
        self.own, self.out = Affine(latent, size), Affine(size, 2 * latent)

    def ahead(self, r: RecurrentInputs, valid: Tensor) -> Tensor:
        """Return b_t of every point, (B, T, size)."""
        return self.gru(torch.cat((r.x, r.m, r.gap), -1).flip(1), valid.flip(1)).flip(1)

    def forward(self, z: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        mean, spread = self.out(0.5 * (torch.tanh(self.own(z)) + b)).chunk(2, -1)
        return mean, positive(spread)

    def sample(self, z: Tensor, b: Tensor, noise: Tensor) -> Tensor:
        mean, spread = self(z, b)
        return torch.addcmul(mean, spread.sqrt(), noise)


class SequentialVAE(Forecaster):
    """Predict x_t from z_t: a sample of q in training, its mean otherwise. After the last point z follows the prior.

    z starts at zero. `extra` is Σ_t KL(q(z_t | z_{t−1}, x_{t:T}) ‖ p(z_t | z_{t−1}, Δ)).
    """

    def __init__(self, variables: int, latent: int, units: int, recognition: int, head: int,
                 dropout: float = 0.0) -> None:
        super().__init__(latent, variables, head, dropout)
        self.prior, self.posterior = Transition(latent, units), Posterior(variables, latent, recognition)

    def infer(self, b: Tensor, valid: Tensor, noise: NoiseSource | None) -> Tensor:
        """Return z after every seen point, (B, T, latent)."""
        start, shape = b.new_zeros(len(b), self.latent), (*b.shape[:2], self.latent)
        drawn = b.new_zeros(shape) if noise is None else noise.normal(*shape).to(b)
        return run_recurrence(self.posterior.sample, (b, drawn), valid, start)

    def step(self, z: Tensor, gap: Tensor) -> Tensor:
        return self.prior(z, gap)[0]

    def forward(self, batch: SporadicBatch, *, detach_attention: bool = False) -> Forecast:
        (read, targets), valid = seen_and_targets(batch), batch.seen.valid
        noise, b = NoiseSource(batch.seed, valid.device), self.posterior.ahead(read, valid)
        z = self.infer(b, valid, noise if self.training else None)
        last = states_before(z)
        extra = (kl(*self.posterior(last, b), *self.prior(last, read.gap)) * valid.unsqueeze(-1)).sum()
        at = z if batch.training else run_recurrence(self.step, (targets.gap,), batch.target.valid, z[:, -1])
        return self.predict(at, noise, extra)

    def trajectory(self, batch: SporadicBatch, t: list[float]) -> tuple[Tensor, None]:
        valid = batch.seen.valid
        z = self.infer(self.posterior.ahead(seen_and_targets(batch)[0], valid), valid, None)
        return states_at(z, batch.seen, t), None
