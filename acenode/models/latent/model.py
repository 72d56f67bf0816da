"""The latent models: a series is encoded into z0 ~ q, z0 evolves, and what is observed is read off z(t)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from acenode.attention import Correlation
from acenode.data.points import Points, SeriesBatch
from acenode.models.dense_layers import GRUCell, Perceptron
from acenode.models.latent.elbo import poisson_likelihood
from acenode.node import NODE
from acenode.ode.dense_output import SampledSolution
from acenode.ode.options import Solver
from acenode.ode.runge_kutta import Evaluations, State

CLASSIFIER = 300  # units of each hidden layer


@dataclass(frozen=True)
class Predictions:
    """What a model says of a batch; what it has no opinion on is None."""

    x: Tensor | None  # (K, B, T, D) at the targets
    logits: Tensor | None  # (K, B) of records, (K, B, T, classes) of points
    posterior: tuple[Tensor, Tensor] | None = None  # mean and deviation of q(z0)
    times: Tensor | None = None  # (K,), log-likelihood of when things were observed
    evaluations: Evaluations | None = None


class PerTrajectory(nn.Module):
    """q of each of the K trajectories by itself: their batches are laid one after another in h."""

    def __init__(self, q: nn.Module, trajectories: int) -> None:
        super().__init__()
        self.q, self.trajectories = q, trajectories

    def forward(self, h: Tensor, t: Tensor | float = 0.0) -> Tensor:
        if not self.training or not isinstance(self.q, Correlation):
            return self.q(h, t)
        return self.q(h.unflatten(0, (self.trajectories, -1)), t).flatten(0, 1)


def draw(mean: Tensor, deviation: Tensor, noise: Tensor | None) -> Tensor:
    """z0 (K, B, latent); the mean itself where there is no noise."""
    return mean.unsqueeze(0) if noise is None else torch.addcmul(mean, deviation, noise)


class LatentODE(nn.Module):
    """Encoder, an ODE layer on z, a linear emission, and a classifier of z0 or of every z(t)."""

    def __init__(self, encoder: nn.Module, ode: nn.Module, emission: nn.Module, classifier: nn.Module | None,
                 latent: int, classify: str = "start") -> None:
        super().__init__()
        self.encoder, self.ode, self.emission, self.classifier = encoder, ode, emission, classifier
        self.latent, self.classify = latent, classify
        self.backwards: bool | None = encoder.backwards  # type: ignore[assignment]

    def encode(self, batch: SeriesBatch, detach_attention: bool = False) -> tuple[Tensor, Tensor]:
        return self.encoder(batch.seen, batch.schedule, detach_attention)

    def forward(self, batch: SeriesBatch, *, detach_attention: bool = False) -> Predictions:
        posterior = self.encode(batch, detach_attention)
        z0 = draw(*posterior, batch.noise)
        K, B, _ = z0.shape
        times = batch.target.t.expand(K, -1, -1).flatten(0, 1)  # (K·B, T)
        found: SampledSolution = self.ode.at(  # type: ignore[operator]
            z0.flatten(0, 1), times, batch.span, detach_attention=detach_attention)
        z = found.h.unflatten(0, (K, B))  # (K, B, T, d)
        return Predictions(self.emission(z), self._logits(z0, z, found, K), posterior,
                           self._times(z, found, batch.target), found.evaluations)

    def _logits(self, z0: Tensor, z: Tensor, found: SampledSolution, K: int) -> Tensor | None:
        if self.classifier is None:
            return None
        if self.classify == "points":
            return self.classifier(z)
        read = z0 if self.classify == "start" else found.end[0][:, :self.latent].unflatten(0, (K, -1))
        return self.classifier(read).squeeze(-1)

    def _times(self, z: Tensor, found: SampledSolution, target: Points) -> Tensor | None:
        return None

    def trajectory(self, batch: SeriesBatch, t: list[float]) -> tuple[Tensor, Tensor | None]:
        """z and a from the posterior's mean at common times, (F, B, ...)."""
        path = self.ode(self.encode(batch)[0], t)
        return path.h, path.a


class PoissonField(nn.Module):
    """dz/dt = f(z) with the observation rates' integrals beside it: dΛ/dt = λ/100, log λ = MLP(z_λ)."""

    def __init__(self, f: nn.Module, rate: nn.Module, part: int) -> None:
        super().__init__()
        self.f, self.rate, self.part = f, rate, part

    def forward(self, t: Tensor, state: State) -> State:
        z, _ = state
        return self.f(z, t), self.rate(z[..., self.part:]).exp() / 100


class PoissonODE(NODE):
    """z = (z_y, z_λ) with Λ, a hundredth of the expected number of observations of each variable."""

    def __init__(self, f: nn.Module, rate: nn.Module, part: int, variables: int, solver: Solver | None = None) -> None:
        super().__init__(f, solver)
        self.rate, self.part, self.variables = rate, part, variables

    def system(self, h0: Tensor, detach_attention: bool) -> tuple[nn.Module, State]:
        return PoissonField(self.f, self.rate, self.part), (h0, h0.new_zeros(*h0.shape[:-1], self.variables))


class LatentPoisson(LatentODE):
    """A latent ODE that also explains when things were observed; the emission reads z_y alone."""

    ode: PoissonODE

    def __init__(self, encoder: nn.Module, ode: PoissonODE, emission: nn.Module, classifier: nn.Module | None,
                 latent: int, classify: str = "start") -> None:
        super().__init__(encoder, ode, _First(emission, latent // 2), classifier, latent, classify)

    def _times(self, z: Tensor, found: SampledSolution, target: Points) -> Tensor:
        integral = 100 * found.end[1].unflatten(0, z.shape[:2])  # (K, B, D)
        return poisson_likelihood(self.ode.rate(z[..., self.ode.part:]), integral, target.m)


class _First(nn.Module):
    """A map of the first coordinates."""

    def __init__(self, inner: nn.Module, size: int) -> None:
        super().__init__()
        self.inner, self.size = inner, size

    def forward(self, z: Tensor) -> Tensor:
        return self.inner(z[..., :self.size])


class RecurrentVAE(nn.Module):
    """z0 from a GRU over the reversed points; a GRU that starts at z0 and is fed what it said last."""

    def __init__(self, encoder: nn.Module, variables: int, latent: int, units: int, classifier: nn.Module | None,
                 classify: str = "start") -> None:
        super().__init__()
        self.encoder, self.latent, self.classify = encoder, latent, classify
        self.cell, self.emission = GRUCell(2 * variables + 1, latent), Perceptron(latent, variables, units, 2)
        self.classifier, self.variables = classifier, variables
        self.backwards: bool | None = None

    def forward(self, batch: SeriesBatch, *, detach_attention: bool = False) -> Predictions:
        posterior = self.encoder(batch.seen, batch.schedule)
        mean, deviation = posterior
        z0 = draw(mean, deviation, None if batch.noise is None else batch.noise[:1])[0]
        h, x = self.decode(z0, batch.target.t - batch.span[0])
        if self.classifier is None:
            logits = None
        elif self.classify == "points":
            logits = self.classifier(h)[None]
        else:
            logits = self.classifier(posterior[0]).squeeze(-1)[None]
        return Predictions(x[None], logits, posterior)

    def decode(self, h: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """States and what is read off them at times (B, T) after the start."""
        x, states, said = h.new_zeros(len(h), self.variables), [], []
        ones = torch.ones_like(x)
        for dt in t.diff(dim=1, prepend=torch.zeros_like(t[:, :1])).unsqueeze(-1).unbind(1):
            h = self.cell(self.cell.input(torch.cat((x, ones, dt), 1)), h)
            x = self.emission(h)
            states.append(h)
            said.append(x)
        return torch.stack(states, 1), torch.stack(said, 1)

    def trajectory(self, batch: SeriesBatch, t: list[float]) -> tuple[Tensor, Tensor | None]:
        mean, _ = self.encoder(batch.seen, batch.schedule)
        times = torch.tensor(t, dtype=mean.dtype, device=mean.device).expand(len(mean), -1)
        return self.decode(mean, times - times[:, :1])[0].transpose(0, 1), None


def classifier(inputs: int, outputs: int) -> Perceptron:
    return Perceptron(inputs, outputs, CLASSIFIER, 3, nn.ReLU)
