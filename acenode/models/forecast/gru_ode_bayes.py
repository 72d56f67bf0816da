"""GRU-ODE-Bayes (De Brouwer et al., 2019) and ACE on it: GRU-ODE between observations, GRU-Bayes at them.

    h(0) = tanh(MLP(0))                     no covariates: equal for all series
    dh/dt = GRU-ODE(h)                      by Euler steps; with attention GRU-ODE(h'), h' = h σ(a)ᵀ, da/dt = g(a, h')
    p(x(t)) = N(μ, σ²), [μ, log σ²] = MLP(h(t))
    h(t⁺) = GRU(features(x, p), h(t⁻))      at an observation x: the jump

Loss: the negative log-likelihood of x under p before each jump, plus `mixing` times KL(p after the jump ‖ N(x, 0.01²)).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.accelerate import dispatch
from acenode.backend import ACCELERATED, TORCH_OPERATIONS, Backend
from acenode.data.passes import AttentionInputs, CellWeights, PassInputs, PassOutputs
from acenode.data.points import Points
from acenode.data.schedule import NoiseSource, ScheduledPoints, SporadicBatch, StepSchedule, make_schedule
from acenode.models.forecast.gaussian import Affine, Forecast, Gaussian
from acenode.models.forecast.gru_ode import GRUODE, AttentionState, GRUAttention, RowGRU
from acenode.models.layers import GRUCell, common_times
from acenode.ode.runge_kutta import Evaluations

OBSERVATION_DEVIATION = 0.01  # standard deviation of an observation in the loss after the jump
FEATURE_BIAS = 0.1  # initial


class InitialState(nn.Module):
    """h(0) = tanh(Linear(dropout(ReLU(Linear(0)))))."""

    def __init__(self, size: int, units: int = 50) -> None:
        super().__init__()
        self.hidden, self.out = Affine(1, units), Affine(units, size)

    def forward(self, batch: int, dropout: Tensor | None = None) -> Tensor:
        y = torch.relu(self.hidden(self.hidden.weight.new_zeros(1, 1))).expand(batch, -1)
        return torch.tanh(self.out(y if dropout is None else y * dropout))


class GRUBayes(nn.Module):
    """The jump: h ← GRU(features, h), with features ReLU(W_d [x_d, μ_d, log σ_d², (x_d − μ_d)/σ_d] + b_d) ⊙ m_d."""

    def __init__(self, size: int, variables: int, features: int, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(variables, 4, features))
        self.bias = nn.Parameter(torch.empty(variables, features))
        self.cell = GRUCell(variables * features, size, backend)

    def initialise(self, generator: torch.Generator) -> None:
        self.weight.data.normal_(0.0, math.sqrt(2 / (4 + self.weight.shape[2])), generator=generator)
        self.bias.data.fill_(FEATURE_BIAS)

    def forward(self, h: Tensor, mean: Tensor, logvar: Tensor, x: Tensor, m: Tensor) -> Tensor:
        """Return h (n, size) after observing x (n, D) where the mask m is one."""
        D, four, P = self.weight.shape
        same = torch.eye(D, dtype=self.weight.dtype, device=self.weight.device).view(1, D, D, 1)
        # all W_d as one matrix on [x, μ, log σ², error], zero between different variables
        W = (self.weight.transpose(0, 1).unsqueeze(2) * same).reshape(four * D, D * P)
        read = torch.cat((x, mean, logvar, (x - mean) * torch.exp(-0.5 * logvar)), -1)
        features = torch.relu(read @ W + self.bias.flatten()) * m.repeat_interleave(P, -1)
        return self.cell(self.cell.input(features), h)


def kl_to_observation(mean: Tensor, logvar: Tensor, x: Tensor, deviation: float = OBSERVATION_DEVIATION) -> Tensor:
    """Return KL(N(μ, σ²) ‖ N(x, deviation²)) of every entry."""
    spread = (logvar.exp() + (mean - x).square()) / (2 * deviation**2)
    return math.log(deviation) - 0.5 * logvar + spread - 0.5


class GRUODEBayes(nn.Module):
    """The whole model. `extra` zeros are appended to h(0) (augmentation); with `attention` h and a co-evolve."""

    def __init__(self, variables: int, size: int, units: int, features: int, *, step: float = 0.1, dropout: float = 0.0,
                 mixing: float = 1e-4, minimal: bool = False, impute: bool = False, extra: int = 0,
                 attention: GRUAttention | None = None, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.backend = backend
        self.latent, self.extra = size + extra, extra
        self.step_size, self.dropout, self.mixing = step, dropout, mixing
        self.start = InitialState(size)
        self.f = GRUODE(self.latent, 2 * variables if impute else 0, minimal)
        self.p = Gaussian(self.latent, variables, units)
        self.jump = GRUBayes(self.latent, variables, features, backend)
        self.attention = attention

    def forward(self, batch: SporadicBatch, *, detach_attention: bool = False) -> Forecast:
        """Predict the observations before each jump (training), or the targets after the last one."""
        schedule = batch.schedule or make_schedule(batch.seen, None if batch.training else batch.target, self.step_size)
        noise = NoiseSource(batch.seed, batch.seen.t.device) if self.training and self.dropout > 0 else None
        x, m = observations(batch.seen, schedule)
        h0, dropout = self.initial_state(len(batch.seen.t), noise), self.dropout_mask(len(x), noise)
        a0 = self.attention.initial(self.initial_state(len(h0), None)) if self.attention is not None else None
        out = self._integrate(schedule, h0, a0, x, m, batch.horizon, dropout=dropout, noise=noise,
                              detach=detach_attention)
        steps = Evaluations(schedule.rows - 1, step_sizes=schedule.step_sizes)
        if not batch.training:
            return Forecast(*by_point(torch.cat(self.p(out.read), -1), schedule.reads, batch.target.x),
                            evaluations=steps)
        mean, logvar = self.p(out.updated, self.dropout_mask(len(x), noise))
        extra = self.mixing * (kl_to_observation(mean, logvar, x) * m).sum()
        mean, logvar = by_point(out.predicted, schedule.observations, batch.seen.x)
        return Forecast(mean, logvar, extra, steps)

    def initial_state(self, B: int, noise: NoiseSource | None) -> Tensor:
        dropout = None if noise is None else noise.dropout_mask(self.dropout, B, self.start.hidden.out_features)
        return F.pad(self.start(B, dropout), (0, self.extra))

    def dropout_mask(self, count: int, noise: NoiseSource | None) -> Tensor | None:
        """Return the dropout mask of p's hidden layer for `count` predictions, or None without dropout."""
        return None if noise is None else noise.dropout_mask(self.dropout, count, self.p.hidden.out_features)

    def integrate_plain(self, schedule: StepSchedule, h: Tensor, a: Tensor | None, x: Tensor, m: Tensor,
                        horizon: float, *, dropout: Tensor | None = None, noise: NoiseSource | None = None,
                        detach: bool = False, with_attention: bool = False) -> PassOutputs:
        """Integrate from h(0) and a(0) with torch operations and autograd: the reference for all faster versions.

        Args:
            x, m: values and mask of the observations, (N, D), in the order of the schedule.
            horizon: unit of time of fixed and recomputed attention, and of g if it gives the whole matrix.
            dropout: mask of p's hidden layer before each observation, (N, units).
            noise: draws the dropout masks of imputed inputs.
            detach: treat a as a constant in the gradient.
            with_attention: also return a at the read points.
        """
        self.backend.report_series_by(TORCH_OPERATIONS)
        attention = AttentionState(self.attention, a, horizon, detach) if self.attention is not None else None
        predicted, updated, read = [h.new_zeros(0, 2 * x.shape[1])], [h[:0]], [h[:0]]
        read_a: list[Tensor] = []
        for i, dt in enumerate(schedule.dt):
            if i > 0:  # Euler step of dh/dt = f(h)
                imputed = None
                if self.f.given is not None:
                    imputed = torch.cat(self.p(h, self.dropout_mask(len(h), noise)), -1)
                if attention is None:
                    h = h + dt * self.f(h, imputed)
                else:
                    h = attention.step(self.f, h, imputed, dt)
                    attention.recompute_in_evaluation(h)
            lo, hi = schedule.reads.offsets[i:i + 2]
            if hi > lo:
                series = schedule.reads.series[lo:hi]
                read.append(h.index_select(0, series))
                if attention is not None and with_attention:
                    read_a.append(attention.current(h)[series])
            lo, hi = schedule.observations.offsets[i:i + 2]
            if hi > lo:  # the jump
                series = schedule.observations.series[lo:hi]
                before = h.index_select(0, series)
                mean, logvar = self.p(before, None if dropout is None else dropout[lo:hi])
                predicted.append(torch.cat((mean, logvar), 1))
                updated.append(self.jump(before, mean, logvar, x[lo:hi], m[lo:hi]))
                h = h.index_copy(0, series, updated[-1])
                if attention is not None and (self.training or attention.attention.at_jump != "recompute"):
                    attention.observe(h, series)
        return PassOutputs(torch.cat(predicted), torch.cat(updated), torch.cat(read),
                           torch.cat(read_a) if read_a else None)

    def _integrate(self, schedule: StepSchedule, h0: Tensor, a0: Tensor | None, x: Tensor, m: Tensor, horizon: float, *,
                   dropout: Tensor | None = None, noise: NoiseSource | None = None, detach: bool = False,
                   with_attention: bool = False) -> PassOutputs:
        """Integrate by the fastest version the backend has for this model; see `integrate_plain`."""
        with_attention = with_attention and self.attention is not None
        followed = schedule.read_everywhere(len(h0)) if with_attention else schedule
        inputs = self._pass_inputs(followed, h0, a0, x, m, dropout, detach)
        out = None if inputs is None else dispatch.gru_ode_bayes(self.backend, inputs)
        if out is None:
            return self.integrate_plain(schedule, h0, a0, x, m, horizon, dropout=dropout, noise=noise, detach=detach,
                                        with_attention=with_attention)
        if not with_attention or self.attention is None or a0 is None:
            return out
        observed, reads = schedule.observations, schedule.reads
        h = out.read.view(schedule.rows, *h0.shape)
        before = h.index_put((observed.row, observed.series), out.updated)  # the next row starts after the jump
        a = self.attention.at_rows(a0, before[:-1], schedule.dt[1:], reads.row, reads.series, horizon)
        return PassOutputs(out.predicted, out.updated, h[reads.row, reads.series], a)

    def _pass_inputs(self, schedule: StepSchedule, h0: Tensor, a0: Tensor | None, x: Tensor, m: Tensor,
                     dropout: Tensor | None, detach: bool) -> PassInputs | None:
        """Return this model as tensors for the dispatcher.

        None for models without a faster version: the minimal cell, imputed inputs, fixed or recomputed attention, and a
        g that gives the whole matrix.
        """
        f, p, gru, attention = self.f, self.p, self.jump.cell, self.attention
        if f.reset is None or f.given is not None:
            return None
        evolving = None
        if attention is not None:
            if not isinstance(attention.g, RowGRU) or a0 is None or attention.at_jump != "keep":
                return None
            evolving = AttentionInputs(a0, attention.g.weights(), attention.every, attention.own_feedback, detach)
        return PassInputs(schedule, h0, x, m, dropout, CellWeights(
            f.reset.weight, f.update.weight, f.new.weight, p.hidden.weight, p.hidden.bias, p.out.weight, p.out.bias,
            self.jump.weight, self.jump.bias, gru.input.weight, gru.input.bias, gru.hidden.weight, gru.hidden.bias),
            evolving)

    def trajectory(self, batch: SporadicBatch, t: list[float]) -> tuple[Tensor, Tensor | None]:
        """Return h, before any jump, and a at common times t, (F, B, …)."""
        schedule, out = self._observe(batch, common_times(batch.seen, t), with_attention=True)
        B, frames = len(batch.seen.t), len(t)
        a = None if out.attention is None else by_frame(out.attention, schedule.reads, B, frames)
        return by_frame(out.read, schedule.reads, B, frames), a

    def predict_around_jumps(self, batch: SporadicBatch, t: list[float]) -> tuple[Forecast, Forecast, Forecast, Points]:
        """Return the predictions before and after every jump, those at common times t, and these times as points."""
        times = common_times(batch.seen, t)
        schedule, out = self._observe(batch, times)
        after, between = (torch.cat(self.p(h), -1) for h in (out.updated, out.read))
        return (Forecast(*by_point(out.predicted, schedule.observations, batch.seen.x)),
                Forecast(*by_point(after, schedule.observations, batch.seen.x)),
                Forecast(*by_point(between, schedule.reads, times.x)), times)

    def _observe(self, batch: SporadicBatch, times: Points, *,
                 with_attention: bool = False) -> tuple[StepSchedule, PassOutputs]:
        """Integrate a batch without dropout and read the states at the given times."""
        schedule = make_schedule(batch.seen, times, self.step_size)
        x, m = observations(batch.seen, schedule)
        h0 = self.initial_state(len(batch.seen.t), None)
        a0 = self.attention.initial(h0) if self.attention is not None else None
        return schedule, self._integrate(schedule, h0, a0, x, m, batch.horizon, with_attention=with_attention)


def observations(seen: Points, schedule: StepSchedule) -> tuple[Tensor, Tensor]:
    """Return values and mask of the observations in the order of the schedule, (N, D)."""
    at = schedule.observations
    return seen.x[at.series, at.point], seen.m[at.series, at.point]


def by_point(predicted: Tensor, points: ScheduledPoints, like: Tensor) -> tuple[Tensor, Tensor]:
    """Arrange predictions (N, 2D) of scheduled points as mean and log-variance, (B, T, D)."""
    out = predicted.new_zeros(*like.shape[:2], predicted.shape[-1])
    mean, logvar = out.index_put((points.series, points.point), predicted).chunk(2, -1)
    return mean, logvar


def by_frame(states: Tensor, points: ScheduledPoints, B: int, frames: int) -> Tensor:
    """Arrange states (R, …) of scheduled points as (F, B, …)."""
    out = states.new_zeros(frames, B, *states.shape[1:])
    return out.index_put((points.point, points.series), states)
