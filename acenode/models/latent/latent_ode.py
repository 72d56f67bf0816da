"""The latent ODE: a series is encoded into z0 ~ q(z0), z(t) follows an ODE, and the values are read off z(t).

    z0 ~ N(mean, deviation²) = q(z0 | series)        dz/dt = f(z)        x(t) = W z(t) + b

With ACE the ODE layer is (z, a) of `acenode.ACENODE`. Its training objective is averaged as the protocol averages: a
variable's log-density over its own observed targets (zero where there are none), then over all variables and over the
records; the squared error likewise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from acenode.attention import Correlation
from acenode.backend import ACCELERATED, Backend
from acenode.data.points import Points, SeriesBatch
from acenode.models.layers import MLP
from acenode.node import NODE
from acenode.ode.dense_output import SampledSolution
from acenode.ode.options import Solver
from acenode.ode.runge_kutta import Evaluations, State

DEVIATION = 0.01  # standard deviation of an observation
POISSON = 0.1  # weight of the log-likelihood of the observation times
CLASSIFIER_UNITS = 300  # of each hidden layer
SCALE = 100  # the ODE's state holds Λ/100, of the size of z


def mean_over_targets(values: Tensor, m: Tensor) -> Tensor:
    """Average values (..., B, T, D) over each variable's observed targets, then variables, then records."""
    count = m.sum(-2)  # (B, D)
    return ((values * m).sum(-2) / count.clamp(min=1)).mean((-2, -1))


def log_likelihood(x: Tensor, target: Points, deviation: float = DEVIATION) -> Tensor:
    """Return the log-likelihood ℓ_k of predictions x (K, B, T, D), (K,)."""
    density = -0.5 * ((x - target.x) / deviation).square() - math.log(deviation) - 0.5 * math.log(2 * math.pi)
    return mean_over_targets(density, target.m)


def squared_error(x: Tensor, target: Points) -> Tensor:
    """Return the protocol's mean squared error of predictions x (K, B, T, D)."""
    return mean_over_targets((x - target.x).square(), target.m).mean()


def kl_to_standard_normal(mean: Tensor, deviation: Tensor) -> Tensor:
    """Return KL(N(mean, deviation²) ‖ N(0, 1)), averaged over records and latent coordinates."""
    variance = deviation.square()
    return (0.5 * (variance + mean.square() - 1) - deviation.clamp(min=1e-20).log()).mean()


def poisson_likelihood(log_rate: Tensor, integral: Tensor, m: Tensor) -> Tensor:
    """Return Σ_i log λ_j(t_i) − Λ_j, averaged over variables and records, (K,); zero for a variable never observed.

    Args:
        log_rate: log λ at the targets, (K, B, T, D).
        integral: Λ, (K, B, D).
        m: The targets' mask, (B, T, D).
    """
    observed = (m.sum(-2) > 0).to(log_rate)
    return (((log_rate * m).sum(-2) - integral) * observed).mean((-2, -1))


def negative_elbo(likelihood: Tensor, kl: Tensor, weight: float) -> Tensor:
    """Return −log Σ_k exp(ℓ_k − c KL) for the log-likelihoods ℓ (K,) and the weight c."""
    return -torch.logsumexp(likelihood - weight * kl, 0)


def kl_weight(epoch: int) -> float:
    """Return c: zero for ten epochs, then 1 − 0.99^(epoch − 10)."""
    return 0.0 if epoch < 10 else 1 - 0.99 ** (epoch - 10)


@dataclass(frozen=True)
class SeriesShape:
    """What a series model reads and predicts: the number of variables and, if it classifies, what."""

    variables: int
    classify: str | None = None  # "record", "points" or None
    classes: int = 1


@dataclass(frozen=True)
class Predictions:
    """What a model predicts of a batch with K samples of z0; None for what it does not predict."""

    x: Tensor | None  # (K, B, T, D) at the targets
    logits: Tensor | None  # (K, B) of records, (K, B, T, classes) of points
    posterior: tuple[Tensor, Tensor] | None = None  # mean and standard deviation of q(z0)
    times: Tensor | None = None  # (K,), log-likelihood of the observation times
    evaluations: Evaluations | None = None


class PerTrajectory(nn.Module):
    """Apply q to each of the K trajectories separately, so that a correlation is over one batch of records.

    h (K·B, d) holds the batches of all trajectories one after another.
    """

    def __init__(self, q: nn.Module, trajectories: int) -> None:
        super().__init__()
        self.q, self.trajectories = q, trajectories

    def forward(self, h: Tensor, t: Tensor | float = 0.0) -> Tensor:
        if not self.training or not isinstance(self.q, Correlation):
            return self.q(h, t)
        return self.q(h.unflatten(0, (self.trajectories, -1)), t).flatten(0, 1)


def sample_z0(mean: Tensor, deviation: Tensor, noise: Tensor | None) -> Tensor:
    """Return z0 (K, B, latent) for noise of that shape; without noise, the mean (1, B, latent)."""
    return mean.unsqueeze(0) if noise is None else torch.addcmul(mean, deviation, noise)


class LatentODE(nn.Module):
    """Encoder, ODE layer on z, linear emission, and a classifier of z0, of z at the end, or of every z(t).

    Args:
        classify: The state that `classifier` reads: "start", "end" or "points".
    """

    def __init__(self, encoder: nn.Module, ode: nn.Module, emission: nn.Module, classifier: nn.Module | None,
                 latent: int, classify: str = "start") -> None:
        super().__init__()
        self.encoder, self.ode, self.emission, self.classifier = encoder, ode, emission, classifier
        self.latent, self.classify = latent, classify
        self.backwards: bool | None = encoder.backwards  # type: ignore[assignment]

    def encode(self, batch: SeriesBatch, detach_attention: bool = False) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of q(z0), (B, latent)."""
        return self.encoder(batch.seen, batch.schedule, detach_attention)

    def forward(self, batch: SeriesBatch, *, detach_attention: bool = False) -> Predictions:
        posterior = self.encode(batch, detach_attention)
        z0 = sample_z0(*posterior, batch.noise)
        K, B, _ = z0.shape
        times = batch.target.t.expand(K, -1, -1).flatten(0, 1)  # (K·B, T)
        solution: SampledSolution = self.ode.at(  # type: ignore[operator]
            z0.flatten(0, 1), times, batch.span, detach_attention=detach_attention)
        z = solution.h.unflatten(0, (K, B))  # (K, B, T, d)
        return Predictions(self.emission(z), self._logits(z0, z, solution, K), posterior,
                           self._time_likelihood(z, solution, batch.target), solution.evaluations)

    def _logits(self, z0: Tensor, z: Tensor, solution: SampledSolution, K: int) -> Tensor | None:
        if self.classifier is None:
            return None
        if self.classify == "points":
            return self.classifier(z)
        state = z0 if self.classify == "start" else solution.end[0][:, :self.latent].unflatten(0, (K, -1))
        return self.classifier(state).squeeze(-1)

    def _time_likelihood(self, z: Tensor, solution: SampledSolution, target: Points) -> Tensor | None:
        """Return the log-likelihood of the observation times, (K,), if the model has one."""
        return None

    def trajectory(self, batch: SeriesBatch, t: list[float]) -> tuple[Tensor, Tensor | None]:
        """Return z and a at common times, (F, B, ...), from the posterior's mean."""
        path = self.ode(self.encode(batch)[0], t)
        return path.h, path.a


def classifier(inputs: int, outputs: int, backend: Backend = ACCELERATED) -> MLP:
    """Return the classifier of Rubanova et al.: two hidden layers of 300 units with ReLU."""
    return MLP(inputs, outputs, CLASSIFIER_UNITS, 3, nn.ReLU, backend=backend)


class PoissonField(nn.Module):
    """dz/dt = f(z), dΛ/dt = λ, with Λ divided by SCALE; z_λ starts at coordinate `part` of z."""

    def __init__(self, f: nn.Module, rate: nn.Module, part: int) -> None:
        super().__init__()
        self.f, self.rate, self.part = f, rate, part

    def forward(self, t: Tensor, state: State) -> State:
        z, _ = state
        return self.f(z, t), self.rate(z[..., self.part:]).exp() / SCALE


class PoissonODE(NODE):
    """The ODE layer of (z, Λ)."""

    def __init__(self, f: nn.Module, rate: nn.Module, part: int, variables: int, solver: Solver | None = None) -> None:
        super().__init__(f, solver)
        self.rate, self.part, self.variables = rate, part, variables

    def system(self, h0: Tensor, detach_attention: bool) -> tuple[nn.Module, State]:
        return PoissonField(self.f, self.rate, self.part), (h0, h0.new_zeros(*h0.shape[:-1], self.variables))


class LatentPoisson(LatentODE):
    """A latent ODE with a likelihood of the observation times; the emission reads z_y alone."""

    ode: PoissonODE

    def __init__(self, encoder: nn.Module, ode: PoissonODE, emission: nn.Module, classifier: nn.Module | None,
                 latent: int, classify: str = "start") -> None:
        super().__init__(encoder, ode, _FirstCoordinates(emission, latent // 2), classifier, latent, classify)

    def _time_likelihood(self, z: Tensor, solution: SampledSolution, target: Points) -> Tensor:
        integral = SCALE * solution.end[1].unflatten(0, z.shape[:2])  # Λ, (K, B, D)
        return poisson_likelihood(self.ode.rate(z[..., self.ode.part:]), integral, target.m)


class _FirstCoordinates(nn.Module):
    """Apply a module to the first `size` coordinates."""

    def __init__(self, inner: nn.Module, size: int) -> None:
        super().__init__()
        self.inner, self.size = inner, size

    def forward(self, z: Tensor) -> Tensor:
        return self.inner(z[..., :self.size])
