"""The latent ODE: a series is encoded into z0 ~ q(z0), z(t) follows an ODE, and the values are read off z(t).

    z0 ~ N(mean, deviation²) = q(z0 | series)        dz/dt = f(z)        x(t) = W z(t) + b

With ACE the ODE layer is (z, a) of `acenode.ACENODE`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from acenode.attention import Correlation
from acenode.backend import ACCELERATED, Backend
from acenode.data.points import Points, SeriesBatch
from acenode.models.dense_layers import MLP
from acenode.ode.dense_output import SampledSolution
from acenode.ode.runge_kutta import Evaluations

CLASSIFIER_UNITS = 300  # of each hidden layer


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
