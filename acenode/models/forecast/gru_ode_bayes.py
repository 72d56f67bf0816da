"""GRU-ODE-Bayes and ACE on it: a continuous GRU between observations, a discrete one that corrects h at them.

    h(0) = tanh(MLP(0))            no covariates: the same for every series
    dh/dt = GRU-ODE(h)             by Euler steps; with attention GRU-ODE(h'), h' = σ(a) h, and da/dt = g(a, h')
    p(t) = N(μ, σ²) of MLP(h)      said before each observation
    h ← GRU(features, h)           at an observation: [x, μ, log σ², (x − μ)/σ] of every variable, masked
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.accelerate.dispatch import ACCELERATED, GPU_KERNELS, TORCH_OPERATIONS, Backend
from acenode.accelerate.gru_ode_bayes.torch_forward import JumpScan, Plan
from acenode.data.points import Points
from acenode.data.schedule import ScheduledPoints, StepSchedule, make_schedule
from acenode.data.sporadic import NoiseSource, SporadicBatch
from acenode.models.forecast.gaussian import Affine, Forecast, Gaussian
from acenode.models.forecast.gru_ode import GRUODE
from acenode.models.forecast.jump_attention import Attention
from acenode.models.forecast.jump_walk import Walked, walk
from acenode.models.gru import GRUCell
from acenode.ode.runge_kutta import Evaluations

OBSERVED = 0.01  # deviation of an observation, which the corrected h is to say again
PREPARED = 0.1  # bias of the features at the start


class Start(nn.Module):
    """h(0) = tanh(Linear(dropout(ReLU(Linear(0))))): what a series is before anything is known of it."""

    def __init__(self, size: int, units: int = 50) -> None:
        super().__init__()
        self.hidden, self.out = Affine(1, units), Affine(units, size)

    def forward(self, batch: int, kept: Tensor | None = None) -> Tensor:
        y = torch.relu(self.hidden(self.hidden.weight.new_zeros(1, 1))).expand(batch, -1)
        return torch.tanh(self.out(y if kept is None else y * kept))


class Jump(nn.Module):
    """GRU-Bayes: what an observation, and how far it was foreseen, make of h."""

    def __init__(self, size: int, variables: int, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(variables, 4, features))
        self.bias = nn.Parameter(torch.empty(variables, features))
        self.cell = GRUCell(variables * features, size)

    def initialise(self, generator: torch.Generator) -> None:
        self.weight.data.normal_(0.0, math.sqrt(2 / (4 + self.weight.shape[2])), generator=generator)
        self.bias.data.fill_(PREPARED)

    def forward(self, h: Tensor, mean: Tensor, logvar: Tensor, x: Tensor, m: Tensor) -> Tensor:
        """h (n, size) after seeing x (n, D) where m is one."""
        error = (x - mean) * torch.exp(-0.5 * logvar)
        given = torch.cat((x, mean, logvar, error), -1)
        seen = m.repeat_interleave(self.weight.shape[2], -1)
        features = torch.relu(given @ self.spread() + self.bias.flatten()) * seen
        return self.cell(self.cell.input(features), h)

    def spread(self) -> Tensor:
        """The features' weights as one matrix (4D, D·P) on [x, μ, log σ², error], zero from variable to variable."""
        D, four, P = self.weight.shape
        each = torch.eye(D, dtype=self.weight.dtype, device=self.weight.device).view(1, D, D, 1)
        return (self.weight.transpose(0, 1).unsqueeze(2) * each).reshape(four * D, D * P)


def divergence(mean: Tensor, logvar: Tensor, x: Tensor, deviation: float = OBSERVED) -> Tensor:
    """KL(N(μ, σ²) ‖ N(x, deviation²)), entry by entry."""
    spread = (logvar.exp() + (mean - x).square()) / (2 * deviation**2)
    return math.log(deviation) - 0.5 * logvar + spread - 0.5


class GRUODEBayes(nn.Module):
    """The whole model. `extra` zeros are appended to h(0); with `attention` h does not evolve alone."""

    def __init__(self, variables: int, size: int, units: int, features: int, *, step: float = 0.1, dropout: float = 0.0,
                 mixing: float = 1e-4, minimal: bool = False, impute: bool = False, extra: int = 0,
                 attention: Attention | None = None, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.backend = backend
        self.latent, self.extra = size + extra, extra
        self.step_size, self.dropout, self.mixing = step, dropout, mixing
        self.start = Start(size)
        self.f = GRUODE(self.latent, 2 * variables if impute else 0, minimal)
        self.p = Gaussian(self.latent, variables, units)
        self.jump = Jump(self.latent, variables, features)
        self.attention = attention

    @property
    def fused(self) -> bool:
        """Whether this kind of model has a pass of its own."""
        return not self.f.minimal and self.f.given is None and (self.attention is None or self.attention.fused)

    def forward(self, batch: SporadicBatch, *, detach_attention: bool = False) -> Forecast:
        schedule = batch.schedule or make_schedule(batch.seen, None if batch.training else batch.target, self.step_size)
        draws = NoiseSource(batch.seed, batch.seen.t.device) if self.training and self.dropout > 0 else None
        at = schedule.observations
        x, m = (v[at.series, at.point] for v in (batch.seen.x, batch.seen.m))  # (N, D)
        h0, kept = self.begin(len(batch.seen.t), draws), self.kept(len(x), draws)
        a0 = self.attention.begin(self.begin(len(h0), None)) if self.attention is not None else None
        walked = self._walked(schedule, h0, a0, x, m, batch.horizon, kept=kept, draws=draws, detach=detach_attention)
        steps = Evaluations(schedule.rows - 1, step_sizes=schedule.step_sizes)
        if not batch.training:
            return Forecast(*lay_out(torch.cat(self.p(walked.reads), -1), schedule.reads, batch.target.x),
                            evaluations=steps)
        mean, logvar = self.p(walked.after, self.kept(len(x), draws))
        extra = self.mixing * (divergence(mean, logvar, x) * m).sum()
        mean, logvar = lay_out(walked.said, schedule.observations, batch.seen.x)
        return Forecast(mean, logvar, extra, steps)

    def begin(self, B: int, draws: NoiseSource | None) -> Tensor:
        """h(0) (B, latent)."""
        kept = None if draws is None else draws.dropout_mask(self.dropout, B, self.start.hidden.out_features)
        return F.pad(self.start(B, kept), (0, self.extra))

    def kept(self, count: int, draws: NoiseSource | None) -> Tensor | None:
        """What dropout leaves of p's hidden layer."""
        return None if draws is None else draws.dropout_mask(self.dropout, count, self.p.hidden.out_features)

    def scan(self, schedule: StepSchedule, h0: Tensor, a0: Tensor | None, x: Tensor, m: Tensor, kept: Tensor | None,
             detach: bool) -> tuple[Tensor, ...]:
        f, p, cell, attention = self.f, self.p, self.jump.cell, self.attention
        if h0.is_cuda and (found := self._launched(schedule, h0, a0, x, m, kept, detach)) is not None:
            self.backend.report_series_by(GPU_KERNELS)
            return found
        assert f.reset is not None
        H, D = self.latent, x.shape[1]
        w, b = p.out.weight.t(), p.out.bias
        given, own = cell.input.weight.t(), cell.hidden.weight.t()
        none = own.new_zeros
        weights = [
            f.reset.weight.t(), -f.update.weight.t(), f.new.weight.t(), p.hidden.weight.t(), p.hidden.bias,
            torch.cat((-0.5 * w[:, D:], w, -w[:, :D]), 1), torch.cat((-0.5 * b[D:], b, -b[:D])),
            self.jump.spread(), self.jump.bias.flatten(),
            torch.cat((torch.cat((given, none(len(given), H)), 1),
                       torch.cat((own[:, :2 * H], none(H, H), own[:, 2 * H:]), 1))),
            torch.cat((cell.input.bias + F.pad(cell.hidden.bias[:2 * H], (0, H)), cell.hidden.bias[2 * H:]))]
        plan = Plan(schedule, x, m, kept, keep=torch.is_grad_enabled(), backend=self.backend)
        if attention is not None and attention.g is not None:
            g = attention.g
            turned = h0.new_ones(2 * H, 1)
            turned[H:] = -1
            weights += [(g.gates.weight * turned).t(), g.new.weight.t(), (g.gates_in.weight * turned).t(),
                        g.new_in.weight.t()]
            plan = replace(plan, every=attention.every, own_feedback=attention.own_feedback, detach=detach)
        return JumpScan.apply(plan, h0, a0, *weights)

    def _launched(self, schedule: StepSchedule, h0: Tensor, a0: Tensor | None, x: Tensor, m: Tensor,
                  kept: Tensor | None, detach: bool) -> tuple[Tensor, ...] | None:
        """The same by kernels of a GPU, each of which takes a series through all rows; None where they do not suit."""
        from acenode.accelerate.gru_ode_bayes import attention_cuda as attend_scan_cuda
        from acenode.accelerate.gru_ode_bayes import cuda as jump_scan_cuda
        from acenode.accelerate.gru_ode_bayes.events import Weights, in_order

        f, p, cell, attention = self.f, self.p, self.jump.cell, self.attention
        assert f.reset is not None
        ordered = in_order(schedule, len(h0), x, m, kept)
        weights = Weights(torch.cat((f.reset.weight, f.update.weight)).t(), f.new.weight.t(), p.hidden.weight.t(),
                          p.hidden.bias, p.out.weight.t(), p.out.bias, self.jump.weight, self.jump.bias,
                          cell.input.weight.t(), cell.input.bias, cell.hidden.weight.t(), cell.hidden.bias)
        dt, events = schedule.dt.squeeze(-1).expand(-1, len(h0)), ordered.events
        if attention is None or attention.g is None:
            if not jump_scan_cuda.supports(self.backend, h0, dt, events, weights):
                return None
            before, after = jump_scan_cuda.JumpScan.apply(h0, dt, events, *weights)
        else:
            of_a, way = attention.g, attend_scan_cuda.Way(attention.every, attention.own_feedback, detach,
                                                          torch.is_grad_enabled())
            g = attend_scan_cuda.G(of_a.gates.weight.t(), of_a.new.weight.t(), of_a.gates_in.weight.t(),
                                   of_a.new_in.weight.t())
            if not attend_scan_cuda.supports(self.backend, h0, dt, events, way, weights, g):
                return None
            before, after = attend_scan_cuda.AttendScan.apply(h0, a0, dt, events, way, *weights, *g)
        return torch.cat(p(before[ordered.jumps], kept), -1), after[ordered.jumps], before[ordered.reads]

    def trajectory(self, batch: SporadicBatch, t: list[float]) -> tuple[Tensor, Tensor | None]:
        """h, before any jump, and a at common times, (F, B, …)."""
        B = len(batch.seen.t)
        schedule, x, m = self._looking(batch, self._times(batch, t))
        h0 = self.begin(B, None)
        a0 = self.attention.begin(h0) if self.attention is not None else None
        walked = self._walked(schedule, h0, a0, x, m, batch.horizon, look=True)
        h = lay_frames(walked.reads, schedule.reads, B, len(t))
        return h, lay_frames(walked.attention, schedule.reads, B, len(t)) if walked.attention is not None else None

    def around(self, batch: SporadicBatch, t: list[float]) -> tuple[Forecast, Forecast, Forecast, Points]:
        """What is said before and after every jump, and at common times in between, with those."""
        times = self._times(batch, t)
        schedule, x, m = self._looking(batch, times)
        h0 = self.begin(len(batch.seen.t), None)
        a0 = self.attention.begin(h0) if self.attention is not None else None
        walked = self._walked(schedule, h0, a0, x, m, batch.horizon)
        after, between = (torch.cat(self.p(h), -1) for h in (walked.after, walked.reads))
        return (Forecast(*lay_out(walked.said, schedule.observations, batch.seen.x)),
                Forecast(*lay_out(after, schedule.observations, batch.seen.x)),
                Forecast(*lay_out(between, schedule.reads, times.x)), times)

    def _walked(self, schedule: StepSchedule, h0: Tensor, a0: Tensor | None, x: Tensor, m: Tensor, horizon: float, *,
                kept: Tensor | None = None, draws: NoiseSource | None = None, detach: bool = False,
                look: bool = False) -> Walked:
        """Integrate the batch, by the fused pass if there is one; with `look`, also return a at the reads."""
        if not self.fused:
            self.backend.report_series_by(TORCH_OPERATIONS)
            return walk(self, schedule, h0, a0, x, m, kept, horizon, draws=draws, detach=detach, look=look)
        if self.attention is None or a0 is None or not look:
            said, after, states = self.scan(schedule, h0, a0, x, m, kept, detach)
            return Walked(said, after, states, None)
        everywhere, (jumps, reads) = schedule.read_everywhere(len(h0)), (schedule.observations, schedule.reads)
        said, after, states = self.scan(everywhere, h0, a0, x, m, kept, detach)
        states = states.view(schedule.rows, *h0.shape)
        before = states.index_put((jumps.row, jumps.series), after)  # the next row begins after the jump
        a = self.attention.follow(a0, before[:-1], schedule.dt[1:], reads.row, reads.series)
        return Walked(said, after, states[reads.row, reads.series], a)

    @staticmethod
    def _times(batch: SporadicBatch, t: list[float]) -> Points:
        seen = batch.seen
        times = torch.tensor(t, dtype=seen.t.dtype, device=seen.t.device).expand(len(seen.t), -1)
        nothing = seen.x.new_zeros(*times.shape, seen.x.shape[-1])
        return Points(times, nothing, nothing, torch.ones_like(times, dtype=torch.bool))

    def _looking(self, batch: SporadicBatch, times: Points) -> tuple[StepSchedule, Tensor, Tensor]:
        schedule = make_schedule(batch.seen, times, self.step_size)
        x, m = (v[schedule.observations.series, schedule.observations.point] for v in (batch.seen.x, batch.seen.m))
        return schedule, x, m


def lay_out(said: Tensor, halts: ScheduledPoints, like: Tensor) -> tuple[Tensor, Tensor]:
    """What is said at the halts (N, 2D), laid out as the points are: mean and log-variance, (B, T, D)."""
    out = said.new_zeros(*like.shape[:2], said.shape[-1])
    mean, logvar = out.index_put((halts.series, halts.point), said).chunk(2, -1)
    return mean, logvar


def lay_frames(states: Tensor, halts: ScheduledPoints, B: int, frames: int) -> Tensor:
    """States at the halts as (F, B, …)."""
    out = states.new_zeros(frames, B, *states.shape[1:])
    return out.index_put((halts.point, halts.series), states)
