"""A deep Kalman filter: a latent Markov chain with one step per point, inferred from the points still to come.

Krishnan, Shalit and Sontag, Structured inference networks for nonlinear state space models; here a step also reads the
time Δ since the previous point.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.accelerate import dispatch
from acenode.backend import ACCELERATED, Backend
from acenode.data.sporadic import NoiseSource, SporadicBatch
from acenode.models.forecast.forecaster import Forecaster, seen_and_targets
from acenode.models.forecast.gaussian import Affine, Forecast
from acenode.models.gru import MaskedGRU, run_recurrence, states_at, states_before
from acenode.models.missing_data import RecurrentInputs

MIN_VARIANCE = 1e-6


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
        """Return mean and variance."""
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
        """Return mean and variance."""
        mean, spread = self.out(0.5 * (torch.tanh(self.own(z)) + b)).chunk(2, -1)
        return mean, positive(spread)

    def mean(self, z: Tensor, b: Tensor) -> Tensor:
        return self(z, b)[0]

    def sample(self, z: Tensor, b: Tensor, noise: Tensor) -> Tensor:
        mean, spread = self(z, b)
        return torch.addcmul(mean, spread.sqrt(), noise)


class SequentialVAE(Forecaster):
    """Predict x_t from z_t: a sample of q in training, its mean otherwise. After the last point z follows the prior.

    z starts at zero. `extra` is Σ_t KL(q(z_t | z_{t−1}, x_{t:T}) ‖ p(z_t | z_{t−1}, Δ)).
    """

    def __init__(self, variables: int, latent: int, units: int, recognition: int, head: int,
                 dropout: float = 0.0, backend: Backend = ACCELERATED) -> None:
        super().__init__(latent, variables, head, dropout)
        self.backend = backend
        self.prior, self.posterior = Transition(latent, units), Posterior(variables, latent, recognition)

    def infer(self, b: Tensor, valid: Tensor, noise: NoiseSource | None) -> Tensor:
        """Return z after every seen point, (B, T, latent)."""
        start, shape = b.new_zeros(len(b), self.latent), (*b.shape[:2], self.latent)
        drawn = b.new_zeros(shape) if noise is None else noise.normal(*shape).to(b)
        own, out = self.posterior.own, self.posterior.out
        fast = dispatch.sampled_posterior(self.backend, b, drawn, valid, start, (own.weight, own.bias),
                                          (out.weight, out.bias), MIN_VARIANCE)
        if fast is not None:
            return fast
        if noise is None:
            return run_recurrence(self.posterior.mean, (b,), valid, start)
        return run_recurrence(self.posterior.sample, (b, drawn), valid, start)

    def step(self, z: Tensor, gap: Tensor) -> Tensor:
        """Return the prior's mean after time Δ."""
        return self.prior(z, gap)[0]

    def forward(self, batch: SporadicBatch, *, detach_attention: bool = False) -> Forecast:
        """Predict the targets. `detach_attention` is unused; all forecasting models share this signature."""
        (read, targets), valid = seen_and_targets(batch), batch.seen.valid
        noise, b = NoiseSource(batch.seed, valid.device), self.posterior.ahead(read, valid)
        z = self.infer(b, valid, noise if self.training else None)
        last = states_before(z)
        extra = (kl(*self.posterior(last, b), *self.prior(last, read.gap)) * valid.unsqueeze(-1)).sum()
        at = z if batch.training else run_recurrence(self.step, (targets.gap,), batch.target.valid, z[:, -1])
        return self.predict(at, noise, extra)

    def trajectory(self, batch: SporadicBatch, t: list[float]) -> tuple[Tensor, None]:
        """Return z at common times, by the posterior's means: that of the last point before."""
        valid = batch.seen.valid
        z = self.infer(self.posterior.ahead(seen_and_targets(batch)[0], valid), valid, None)
        return states_at(z, batch.seen, t), None
