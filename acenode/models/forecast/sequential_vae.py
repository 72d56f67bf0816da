"""A deep Kalman filter: a latent Markov chain with a step at every point, inferred from what is still to come.

Krishnan, Shalit and Sontag, Structured inference networks for nonlinear state space models; here a step knows the
time Δ it takes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.data.sporadic import NoiseSource, SporadicBatch
from acenode.models.forecast.forecaster import Forecaster, met
from acenode.models.forecast.gaussian import Affine, Forecast
from acenode.models.latent.recognition import GRU
from acenode.models.latent.recurrence import Readings, before, held, run

FLOOR = 1e-6  # of a variance


def positive(y: Tensor) -> Tensor:
    return F.softplus(y) + FLOOR


def kl(mean: Tensor, variance: Tensor, prior_mean: Tensor, prior_variance: Tensor) -> Tensor:
    """KL(N(μ, σ²) ‖ N(μ', σ'²)), entry by entry."""
    apart = (variance + (mean - prior_mean).square()) / prior_variance
    return 0.5 * (apart - 1 + prior_variance.log() - variance.log())


class Still(Affine):
    """A linear map that begins as the identity."""

    def initialise(self, generator: torch.Generator) -> None:
        nn.init.eye_(self.weight)
        nn.init.zeros_(self.bias)


class Transition(nn.Module):
    """p(z_t | z_{t−1}, Δ) = N(G, S): G = (1−g)⊙(W z + b) + g⊙H, S = softplus(W ReLU(H) + b).

    Both the gate g = σ(MLP(z, Δ)) and H = MLP(z, Δ) have one hidden layer of ReLU units.
    """

    def __init__(self, latent: int, units: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(Affine(latent + 1, units), nn.ReLU(), Affine(units, latent), nn.Sigmoid())
        self.new = nn.Sequential(Affine(latent + 1, units), nn.ReLU(), Affine(units, latent))
        self.linear, self.spread = Still(latent, latent), Affine(latent, latent)

    def forward(self, z: Tensor, gap: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance."""
        y = torch.cat((z, gap), -1)
        new = self.new(y)
        return torch.lerp(self.linear(z), new, self.gate(y)), positive(self.spread(torch.relu(new)))


class Posterior(nn.Module):
    """q(z_t | z_{t−1}, x_{t:T}) = N(W c + b, softplus(W c + b)) with c = ½(tanh(W z_{t−1} + b) + b_t).

    b_t is the state of a GRU that has read [x, m, Δ] backwards down to the point.
    """

    def __init__(self, variables: int, latent: int, size: int) -> None:
        super().__init__()
        self.gru = GRU(2 * variables + 1, size)
        self.own, self.out = Affine(latent, size), Affine(size, 2 * latent)

    def ahead(self, r: Readings, there: Tensor) -> Tensor:
        """b_t of every point, (B, T, size)."""
        return self.gru(torch.cat((r.x, r.m, r.gap), -1).flip(1), there.flip(1)).flip(1)

    def forward(self, z: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance."""
        mean, spread = self.out(0.5 * (torch.tanh(self.own(z)) + b)).chunk(2, -1)
        return mean, positive(spread)

    def mean(self, z: Tensor, b: Tensor) -> Tensor:
        return self(z, b)[0]

    def sample(self, z: Tensor, b: Tensor, noise: Tensor) -> Tensor:
        mean, spread = self(z, b)
        return torch.addcmul(mean, spread.sqrt(), noise)


class SequentialVAE(Forecaster):
    """x_t is read off z_t: a sample of q in training, its mean otherwise. Past the last point z follows the prior.

    z starts at zero. `extra` is Σ_t KL(q(z_t | z_{t−1}, x_{t:T}) ‖ p(z_t | z_{t−1}, Δ)).
    """

    def __init__(self, variables: int, latent: int, units: int, recognition: int, head: int,
                 dropout: float = 0.0) -> None:
        super().__init__(latent, variables, head, dropout)
        self.prior, self.posterior = Transition(latent, units), Posterior(variables, latent, recognition)

    def infer(self, b: Tensor, there: Tensor, draws: NoiseSource | None) -> Tensor:
        """z after every seen point, (B, T, latent)."""
        start = b.new_zeros(len(b), self.latent)
        if draws is None:
            return run(self.posterior.mean, (b,), there, start)
        noise = draws.normal(*b.shape[:2], self.latent).to(b)
        return run(self.posterior.sample, (b, noise), there, start)

    def step(self, z: Tensor, gap: Tensor) -> Tensor:
        """The prior's mean after a time Δ."""
        return self.prior(z, gap)[0]

    def forward(self, batch: SporadicBatch, *, detach_attention: bool = False) -> Forecast:
        """`detach_attention` is there so that all models are called alike; there is none here."""
        (read, asked), there = met(batch), batch.seen.valid
        draws, b = NoiseSource(batch.seed, there.device), self.posterior.ahead(read, there)
        z = self.infer(b, there, draws if self.training else None)
        last = before(z)
        extra = (kl(*self.posterior(last, b), *self.prior(last, read.gap)) * there.unsqueeze(-1)).sum()
        at = z if batch.training else run(self.step, (asked.gap,), batch.target.valid, z[:, -1])
        return self.say(at, draws, extra)

    def trajectory(self, batch: SporadicBatch, t: list[float]) -> tuple[Tensor, None]:
        """z by the posterior's means as it stands at common times."""
        there = batch.seen.valid
        z = self.infer(self.posterior.ahead(met(batch)[0], there), there, None)
        return held(z, batch.seen, t), None
