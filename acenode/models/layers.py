"""Layers that the families share: dense layers, and recurrent networks for series with missing values.

Dense layers start with weights from N(0, 0.1²) and zero biases. The recurrent ones have time gaps as inputs, decayed
imputation and decayed states: Che et al., Recurrent neural networks for multivariate time series with missing values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.accelerate import dispatch
from acenode.backend import ACCELERATED, Backend
from acenode.data.points import Points


@torch.no_grad()
def initialise(model: nn.Module, seed: int) -> None:
    """Initialise every parameter, on the CPU, so that all devices start from the same values.

    A module's own method `initialise(generator)` comes first; torch's layers follow torch's default rules.
    """
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        own = getattr(module, "initialise", None)
        if callable(own):
            own(generator)
        elif isinstance(module, nn.Linear | nn.Conv2d):
            bound = 1 / math.sqrt(module.weight[0].numel())
            for p in module.parameters(recurse=False):
                p.uniform_(-bound, bound, generator=generator)
        elif isinstance(module, nn.GRU):
            for p in module.parameters():
                p.uniform_(-(module.hidden_size ** -0.5), module.hidden_size ** -0.5, generator=generator)
        elif isinstance(module, nn.GroupNorm):
            module.reset_parameters()
        elif next(module.parameters(recurse=False), None) is not None:
            raise TypeError(f"no rule to initialise a {type(module).__name__}")


class LinearLayer(nn.Linear):
    """x Wᵀ + b, initialised by N(0, 0.1²), or uniformly in [−bound, bound]."""

    def __init__(self, inputs: int, outputs: int, *, bound: float | None = None,
                 backend: Backend = ACCELERATED) -> None:
        super().__init__(inputs, outputs)
        self.bound, self.backend = bound, backend

    def forward(self, input: Tensor) -> Tensor:
        fast = dispatch.linear(self.backend, input, self.weight, self.bias)
        return F.linear(input, self.weight, self.bias) if fast is None else fast

    def initialise(self, generator: torch.Generator) -> None:
        if self.bound is not None:
            for p in self.parameters():
                p.data.uniform_(-self.bound, self.bound, generator=generator)
            return
        self.weight.data.normal_(0.0, 0.1, generator=generator)
        self.bias.data.zero_()


class MLP(nn.Sequential):
    """`layers` linear layers with an activation between each two."""

    def __init__(self, inputs: int, outputs: int, units: int, layers: int, activation: type[nn.Module] = nn.Tanh, *,
                 backend: Backend = ACCELERATED) -> None:
        modules: list[nn.Module] = []
        for a, b in pairwise([inputs, *[units] * (layers - 1), outputs]):
            modules += [activation()] if modules else []
            modules.append(LinearLayer(a, b, backend=backend))
        super().__init__(*modules)

    def linear_layers(self) -> list[LinearLayer]:
        return [layer for layer in self if isinstance(layer, LinearLayer)]


class MLPField(nn.Module):
    """f(h), or g(h) for pairwise attention: an MLP that does not read t.

    With `bounded` tanh is applied to its output; with `square` the output has the shape (..., inputs, inputs).
    """

    def __init__(self, inputs: int, outputs: int, units: int, layers: int, *, bounded: bool = False,
                 square: bool = False, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.layers = MLP(inputs, outputs, units, layers, backend=backend)
        self.bounded, self.square, self.side = bounded, square, inputs

    def forward(self, h: Tensor, t: Tensor | None = None) -> Tensor:
        y = self.layers(h)
        if self.bounded:
            y = torch.tanh(y)
        return y.unflatten(-1, (self.side, self.side)) if self.square else y


MAX_EXPONENT = 1000.0  # of a decay


class GRUCell(nn.Module):
    """The gated recurrent unit of Cho et al. (2014).

        r, z = σ(W x + U h)        n = tanh(W' x + r ⊙ U' h)        h ← (1−z) ⊙ n + z ⊙ h

    The products with x do not depend on h: compute them for all points at once by `cell.input(x)`.
    """

    def __init__(self, inputs: int, hidden: int, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        bound = hidden ** -0.5  # as torch initialises a GRU
        self.input = LinearLayer(inputs, 3 * hidden, bound=bound, backend=backend)
        self.hidden = LinearLayer(hidden, 3 * hidden, bound=bound, backend=backend)
        self.size, self.backend = hidden, backend

    def forward(self, projected: Tensor, h: Tensor) -> Tensor:
        """Update h (..., size) with `projected` = cell.input(x), (..., 3 size)."""
        own = self.hidden(h)
        r, z = torch.sigmoid(projected[..., :-self.size] + own[..., :-self.size]).chunk(2, -1)
        n = torch.tanh(projected[..., -self.size:] + r * own[..., -self.size:])
        return torch.lerp(n, h, z)

    def run(self, projected: Tensor, mask: Tensor, start: Tensor, decay: Tensor | None = None) -> Tensor:
        """Return h after every point, (B, T, size), from h(0) = `start`; where `mask` (B, T) is False, h stays.

        With `decay` (B, T, 1 or size), h is multiplied by it before each update.
        """
        decay = (projected.new_ones(1, 1, 1) if decay is None else decay).expand(*mask.shape, self.size)
        fast = dispatch.recurrence(self.backend, "gru", mask, start, (projected, decay),
                                   (self.hidden.weight, self.hidden.bias))
        if fast is not None:
            return fast
        return run_recurrence(lambda h, x, factor: self(x, factor * h), (projected, decay), mask, start)


class MaskedGRU(nn.Module):
    """A GRU that reads only the observed points; at the others h stays as it was."""

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.layer = nn.GRU(inputs, size, batch_first=True)

    def forward(self, x: Tensor, observed: Tensor, h0: Tensor | None = None) -> Tensor:
        """Return h after every point, (B, T, size), from inputs x (B, T, inputs) and the mask `observed` (B, T)."""
        order = (~observed).to(torch.uint8).argsort(dim=1, stable=True)  # observed points first, in their order
        packed = x.gather(1, order.unsqueeze(-1).expand_as(x))
        start = x.new_zeros(len(x), self.size) if h0 is None else h0
        after, _ = self.layer(packed, start.unsqueeze(0).contiguous())
        states = torch.cat((start.unsqueeze(1), after), 1)  # (B, 1 + T, size)
        count = observed.cumsum(1)  # points read so far
        return states.gather(1, count.unsqueeze(-1).expand(-1, -1, self.size))


def run_recurrence(step: Callable[..., Tensor], inputs: tuple[Tensor, ...], mask: Tensor, state: Tensor) -> Tensor:
    """Return the state after every point, (B, T, ·), by state ← step(state, *inputs at the point) where mask is True.

    The inputs are (B, T, ·), the mask (B, T), and the initial state (B, ·).
    """
    states, rows = [], zip(*(x.unbind(1) for x in inputs), strict=True)
    for updated, row in zip(mask.unsqueeze(-1).unbind(1), rows, strict=True):
        state = torch.where(updated, step(state, *row), state)
        states.append(state)
    return torch.stack(states, 1)


def common_times(seen: Points, t: Sequence[float] | np.ndarray) -> Points:
    """Return points at times t for every series, with nothing observed."""
    times = torch.tensor(t, dtype=seen.t.dtype, device=seen.t.device).expand(len(seen.t), -1)
    nothing = seen.x.new_zeros(*times.shape, seen.x.shape[-1])
    return Points(times, nothing, nothing, torch.ones_like(times, dtype=torch.bool))


def states_before(states: Tensor) -> Tensor:
    """Return the states (B, T, ·) before each point, given those after it: zero before the first."""
    return F.pad(states[:, :-1], (0, 0, 1, 0))


def states_at(states: Tensor, points: Points, t: list[float]) -> Tensor:
    """Return the states at common times, (F, B, ·): those after the last point so far, zero before the first."""
    times = torch.tensor(t, dtype=states.dtype, device=states.device)
    count = ((points.t[:, None] <= times[:, None]) & points.valid[:, None]).sum(-1)  # (B, F)
    with_start = F.pad(states, (0, 0, 1, 0))
    return with_start[torch.arange(len(states), device=states.device)[:, None], count].transpose(0, 1)


class Decay(nn.Module):
    """γ = exp(−max(0, w ⊙ δ + b)), or with one factor for all inputs exp(−max(0, w·δ + b)). Initially γ = 1."""

    def __init__(self, inputs: int, each: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs))
        self.bias = nn.Parameter(torch.zeros(inputs if each else 1))
        self.each = each  # one factor for every input, or one for all

    def initialise(self, generator: torch.Generator) -> None:
        for p in self.parameters():
            p.data.zero_()

    def exponent(self, delta: Tensor) -> Tensor:
        y = self.weight * delta
        return (y if self.each else y.sum(-1, keepdim=True)) + self.bias

    def forward(self, delta: Tensor) -> Tensor:
        return (-self.exponent(delta).clamp(0, MAX_EXPONENT)).exp()


class MatrixDecay(Decay):
    """γ = exp(−max(0, W δ + b)) with a full matrix W: one factor for each of `outputs` coordinates."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, each=False)
        self.weight, self.bias = nn.Parameter(torch.zeros(outputs, inputs)), nn.Parameter(torch.zeros(outputs))

    def exponent(self, delta: Tensor) -> Tensor:
        return F.linear(delta, self.weight, self.bias)


def last_observed(points: Points, start: float | None = None) -> tuple[Tensor, Tensor]:
    """Return δ and x_last, (B, T, D): the time since each variable was last observed before a point, and its value.

    Before a variable's first observation δ is the time since `start`, or since the first point, and x_last is zero.
    """
    t, observed = points.t.unsqueeze(-1), points.m > 0
    index = torch.arange(t.shape[1], device=t.device).view(1, -1, 1).expand_as(points.x)
    last = torch.where(observed, index, -1).cummax(1).values
    last = F.pad(last[:, :-1], (0, 0, 1, 0), value=-1)  # strictly before the point
    at = last.clamp(min=0)
    delta = t - t.expand_as(points.x).gather(1, at)
    delta = torch.where(last >= 0, delta, t - (t[:, :1] if start is None else start))
    return delta, torch.where(last >= 0, points.x.gather(1, at), 0.0)


def time_to_next(points: Points) -> Tensor:
    """Return Δ (B, T): the time from each point to the next one of its record, zero after the last."""
    return F.pad(points.t.diff(dim=1), (0, 1))


@dataclass(frozen=True)
class RecurrentInputs:
    """What a recurrent network reads at the points of a batch."""

    x: Tensor  # (B, T, D) values, zero where missing
    m: Tensor  # (B, T, D) mask
    delta: Tensor  # (B, T, D), δ of `last_observed`
    last: Tensor  # (B, T, D), x_last
    gap: Tensor  # (B, T, 1), Δ: the time to the next point, or since the previous one

    def split(self, at: int) -> tuple[RecurrentInputs, RecurrentInputs]:
        parts = [(y[:, :at], y[:, at:]) for y in (self.x, self.m, self.delta, self.last, self.gap)]
        first, rest = zip(*parts, strict=True)
        return RecurrentInputs(*first), RecurrentInputs(*rest)


class MissingDataGRU(nn.Module):
    """A GRU over the observed points: RNN Δt, RNN-Impute, RNN-Decay and GRU-D, by three options.

    With both decays it is GRU-D:

        x̂ = m ⊙ x + (1−m) ⊙ (γ_x ⊙ x_last + (1−γ_x) ⊙ x̄)        h ← GRU([x̂, m], γ_h ⊙ h)

    Args:
        gap: Append Δ to the inputs.
        impute: Replace missing values by x̂; otherwise they are zero.
        decay: Multiply h by γ_h before each update.
        full: Give every coordinate of h its own factor in γ_h, by a full matrix.
    """

    mean: Tensor  # x̄, over the observed values of the training data

    def __init__(self, variables: int, size: int, *, gap: bool, impute: bool, decay: bool, full: bool = False,
                 backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.size, self.width, self.gap = size, size, gap
        inputs = 2 * variables + gap
        self.impute = Decay(variables, each=True) if impute else None
        self.decay = (MatrixDecay(variables, size) if full else Decay(variables, each=False)) if decay else None
        self.cell = GRUCell(inputs, size, backend) if decay else None
        self.gru = None if decay else MaskedGRU(inputs, size)
        self.register_buffer("mean", torch.zeros(variables))

    def inputs(self, r: RecurrentInputs) -> Tensor:
        """Return [x̂, m], with Δ if it is an input."""
        x = r.x
        if self.impute is not None:
            share = self.impute(r.delta)
            x = torch.where(r.m > 0, x, share * r.last + (1 - share) * self.mean)
        return torch.cat((x, r.m, *((r.gap,) if self.gap else ())), -1)

    def step_inputs(self, r: RecurrentInputs) -> tuple[Tensor, Tensor]:
        """Return what `step` reads beside the state, for all points: the projected inputs and γ_h."""
        assert self.cell is not None
        assert self.decay is not None
        return self.cell.input(self.inputs(r)), self.decay(r.delta)

    def step(self, state: Tensor, *inputs: Tensor) -> Tensor:
        assert self.cell is not None
        projected, decay = inputs
        return self.cell(projected, decay * state)

    def run(self, inputs: tuple[Tensor, ...], mask: Tensor, start: Tensor) -> Tensor:
        """Return h after every point, (B, T, size), given the inputs of `step`."""
        assert self.cell is not None
        projected, decay = inputs
        return self.cell.run(projected, mask, start, decay)

    def forward(self, points: Points) -> Tensor:
        """Return h after every point, (B, T, size)."""
        x, m = points.x, points.m
        history = last_observed(points) if self.impute or self.decay else (x, x)
        r = RecurrentInputs(x, m, *history, time_to_next(points).unsqueeze(-1))
        if self.gru is not None:
            return self.gru(self.inputs(r), points.observed)
        return self.run(self.step_inputs(r), points.observed, x.new_zeros(len(x), self.size))
