"""Latent ODEs and recurrent baselines: interpolation, extrapolation and classification of irregular series.

The latent ODE: a series is encoded into z0 ~ q(z0), z(t) follows an ODE, and the values are read off z(t).

    z0 ~ N(mean, deviation²) = q(z0 | series)        dz/dt = f(z)        x(t) = W z(t) + b

With ACE the ODE layer is (z, a) of `acenode.ACENODE`. Its training objective is averaged as the protocol averages: a
variable's log-density over its own observed targets (zero where there are none), then over all variables and over the
records; the squared error likewise.

ODE-RNN (Rubanova et al., Latent ordinary differential equations for irregularly-sampled time series): a Gaussian state
that follows an ODE between observations and is updated by gates at them. With mean μ and standard deviation s, both of
size r, and x̃ = [x, m] the values and mask of a point:

    between points      dμ/dt = f(μ), by Euler steps
    at a point          u, g = σ(MLP[μ, s, x̃])        [μ̃, s̃] = MLP[μ ⊙ g, s ⊙ g, x̃]
                        μ ← (1−u) ⊙ μ̃ + u ⊙ μ         s ← |(1−u) ⊙ |s̃| + u ⊙ s|

Below them, the recurrent baselines: autoregressive networks, and a variational autoencoder of GRUs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from acenode.accelerate import dispatch
from acenode.attention import Correlation, Pairwise
from acenode.backend import ACCELERATED, TORCH_OPERATIONS, Backend
from acenode.data.passes import EncoderRows, GateLayers
from acenode.data.points import Points, RecurrentSchedule, SeriesBatch
from acenode.models.layers import MLP, GRUCell, MaskedGRU, MissingDataGRU, MLPField, states_at, time_to_next
from acenode.node import NODE
from acenode.ode.dense_output import SampledSolution
from acenode.ode.options import Solver
from acenode.ode.runge_kutta import Evaluations, State

POISSON = 0.1  # weight of the log-likelihood of the observation times
CLASSIFIER_UNITS = 300  # of each hidden layer
SCALE = 100  # the ODE's state holds Λ/100, of the size of z


def mean_over_targets(values: Tensor, m: Tensor) -> Tensor:
    """Average values (..., B, T, D) over each variable's observed targets, then variables, then records."""
    count = m.sum(-2)  # (B, D)
    return ((values * m).sum(-2) / count.clamp(min=1)).mean((-2, -1))


def log_likelihood(x: Tensor, target: Points, deviation: float) -> Tensor:
    """Return the log-likelihood ℓ_k of predictions x (K, B, T, D), (K,), for observations of this deviation."""
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

    log λ at the targets is (K, B, T, D), the integral Λ (K, B, D), and the targets' mask m (B, T, D).
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


def class_logits(model: LatentODE | Autoregressive | RecurrentVAE, states: Tensor, state: Tensor) -> Tensor | None:
    """Return the logits of every point, from its state, or of the record; None if the model does not classify."""
    if model.classifier is None:
        return None
    return model.classifier(states) if model.classify == "points" else model.classifier(state).squeeze(-1)


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
    """Encoder, ODE layer on z, linear emission, and a classifier of z0 ("start"), z at the "end", or every z(t)."""

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
        state = solution.end[0][:, :self.latent].unflatten(0, (K, B)) if self.classify == "end" else z0
        return Predictions(self.emission(z), class_logits(self, z, state), posterior,
                           self._time_likelihood(z, solution, batch.target), solution.evaluations)

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
        fast = None
        if type(self.drift) is Drift and not self.drift.f.bounded:
            fast = dispatch.ode_rnn(self.backend, rows, self.cell.layers(), _weights(self.drift.f.layers))
        return self.integrate(rows, detach_attention) if fast is None else fast

    def integrate(self, rows: EncoderRows, detach_attention: bool = False) -> Tensor:
        """Return the same row by row, as the equations read."""
        self.backend.report_series_by(TORCH_OPERATIONS)
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


class Autoregressive(nn.Module):
    """h at each point by a recurrence; one network predicts the next point from h, another the class."""

    def __init__(self, recurrence: MissingDataGRU | ODERNN, variables: int, size: int, units: int,
                 classifier: nn.Module | None, classify: str, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.recurrence, self.latent, self.classify = recurrence, size, classify
        self.output, self.classifier = MLP(size, variables, units, 2, backend=backend), classifier
        self.backwards: bool | None = False if isinstance(recurrence, ODERNN) else None

    def states(self, batch: SeriesBatch) -> Tensor:
        """Return h after every observed point, (B, T, size)."""
        if isinstance(self.recurrence, MissingDataGRU):
            return self.recurrence(batch.seen)
        assert batch.schedule is not None
        means = self.recurrence(batch.seen, batch.schedule)[..., :self.latent]  # μ after every row, (S, B, r)
        return means[batch.schedule.row, torch.arange(len(batch.seen.t), device=means.device)[:, None]]

    def forward(self, batch: SeriesBatch, *, detach_attention: bool = False) -> Predictions:
        h, seen = self.states(batch), batch.seen
        x = torch.cat((seen.x[:, :1], self.output(h[:, :-1])), 1)  # the first point is not predicted
        end = h[torch.arange(len(h), device=h.device), seen.valid.sum(1).clamp(min=1) - 1]
        logits = class_logits(self, h, end)
        return Predictions(x[None], None if logits is None else logits[None])

    def trajectory(self, batch: SeriesBatch, t: list[float]) -> tuple[Tensor, Tensor | None]:
        """Return h at common times, (F, B, size): the state after the last point so far."""
        return states_at(self.states(batch), batch.seen, t), None


class RecurrentVAE(nn.Module):
    """z0 from a GRU over the reversed points; the decoder reads its own previous output and the time gap."""

    def __init__(self, encoder: nn.Module, variables: int, latent: int, units: int, classifier: nn.Module | None,
                 classify: str = "start", backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.encoder, self.latent, self.classify = encoder, latent, classify
        self.cell = GRUCell(2 * variables + 1, latent, backend)
        self.emission = MLP(latent, variables, units, 2, backend=backend)
        self.classifier, self.variables = classifier, variables
        self.backwards: bool | None = None  # the encoder needs no schedule

    def forward(self, batch: SeriesBatch, *, detach_attention: bool = False) -> Predictions:
        posterior = self.encoder(batch.seen, batch.schedule)
        mean, deviation = posterior
        z0 = sample_z0(mean, deviation, None if batch.noise is None else batch.noise[:1])[0]
        h, x = self.decode(z0, batch.target.t - batch.span[0])
        logits = class_logits(self, h, mean)
        return Predictions(x[None], None if logits is None else logits[None], posterior)

    def decode(self, h: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return states (B, T, latent) and values (B, T, D) at times t (B, T) after the start."""
        x, states, values = h.new_zeros(len(h), self.variables), [], []
        ones = torch.ones_like(x)  # the mask of the decoder's own output
        for dt in t.diff(dim=1, prepend=torch.zeros_like(t[:, :1])).unsqueeze(-1).unbind(1):
            h = self.cell(self.cell.input(torch.cat((x, ones, dt), 1)), h)
            x = self.emission(h)
            states.append(h)
            values.append(x)
        return torch.stack(states, 1), torch.stack(values, 1)

    def trajectory(self, batch: SeriesBatch, t: list[float]) -> tuple[Tensor, Tensor | None]:
        """Return h at common times, (F, B, latent), from the posterior's mean."""
        mean, _ = self.encoder(batch.seen, batch.schedule)
        times = torch.tensor(t, dtype=mean.dtype, device=mean.device).expand(len(mean), -1)
        return self.decode(mean, times - times[:, :1])[0].transpose(0, 1), None
