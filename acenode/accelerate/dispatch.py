"""Choose the implementation of each accelerated function. Models import this module of `accelerate` and no other.

A dispatch function takes the run's `Backend` and tensors. It returns the result of the fastest implementation that
supports them, or None: the model then runs its own plain code. Implementations are imported inside these functions, so
a run with `engine=reference` imports none of them.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from acenode.backend import TORCH_OPERATIONS, Backend

if TYPE_CHECKING:  # type checking only: avoids importing torch
    from torch import Tensor, nn

    from acenode.data.passes import MidpointInputs, MidpointStates, PassInputs, PassOutputs

ARM = platform.machine().lower() in ("aarch64", "arm64")
SMALL = 512  # rows of a product for which ARM's library is slow

Layer = tuple["Tensor", "Tensor"]  # weight (outputs, inputs) and bias
Layers = Sequence[Layer]  # of an MLP with tanh


def _transformed() -> bool:
    """Return whether this code runs inside vmap or another transform, which differentiates torch's operations only."""
    from acenode.device.torch_private import transforms_active

    return transforms_active()


# Layers ---------------------------------------------------------------------------------------------------------------


def linear(backend: Backend, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor | None:
    """Return x Wᵀ + b."""
    if not (ARM and backend.accelerated and not x.is_cuda and x.numel() <= SMALL * x.shape[-1]):
        return None
    from acenode.accelerate.small_linear import SmallLinear

    return SmallLinear.apply(x.reshape(-1, x.shape[-1]), weight, bias).view(*x.shape[:-1], len(weight))


def convolution(backend: Backend, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """Return the 3×3 convolution of x (B, C, H, W) with padding 1."""
    if not backend.accelerated or _transformed():
        return None
    from acenode.accelerate.convolution import Conv3x3Function

    return Conv3x3Function.apply(x, weight, bias)


def time_convolution(backend: Backend, x: Tensor, t: Tensor, weight: Tensor, time: Tensor, bias: Tensor,
                     inside: Tensor) -> Tensor | None:
    """Return the 3×3 convolution, with padding 1, of x (B, C, H, W) and one more channel that is t everywhere."""
    if not backend.accelerated or _transformed():
        return None
    from acenode.accelerate.convolution import TimeConvFunction

    return TimeConvFunction.apply(x, t, weight, time, bias, inside)


class TimeConvolution(Protocol):
    """A 3×3 convolution with padding 1 of a map and one more channel that is t everywhere."""

    weight: nn.Parameter  # (outputs, inputs, 3, 3)
    time: nn.Parameter  # (outputs, 1, 3, 3), of the channel with t
    bias: nn.Parameter


@runtime_checkable
class TimeConvField(Protocol):
    """A field f(h, t) of layers GroupNorm–ReLU–convolution and a GroupNorm, which kernels can compute as a whole."""

    def time_conv_layers(self) -> tuple[Sequence[nn.GroupNorm], Sequence[TimeConvolution]]: ...
    def parameters(self) -> Iterator[nn.Parameter]: ...


# ODE-RNN --------------------------------------------------------------------------------------------------------------


class EncoderRows(NamedTuple):
    """What an ODE-RNN reads, row by row: S rows, B series."""

    x: Tensor  # (B, T, inputs) at the points of each series
    point: Tensor  # (S, B), the point of a row
    dt: Tensor  # (S, B, 1), length of the Euler step before it
    read: Tensor  # (S, B, 1), whether the point is read


class GateLayers(NamedTuple):
    """The three networks of a Gaussian GRU, each with one hidden layer."""

    update: Layers
    reset: Layers
    state: Layers


class EulerDrift(Protocol):
    """Euler steps of μ (B, r) and its attention a, if it has one."""

    def initial_attention(self, mu: Tensor) -> Tensor | None: ...
    def step(self, mu: Tensor, a: Tensor | None, dt: Tensor, detach: bool) -> tuple[Tensor, Tensor | None]: ...


def ode_rnn(backend: Backend, rows: EncoderRows, cell: GateLayers, f: Layers | None, drift: EulerDrift,
            detach_attention: bool) -> Tensor | None:
    """Return [μ, s] of an ODE-RNN after every row, (S, B, 2r). `f` is the drift if that is an MLP of μ alone."""
    if not backend.accelerated:
        backend.report_series_by(TORCH_OPERATIONS)
        return None
    from acenode.accelerate.encoder.packing import pack

    packed = pack(rows.x, rows.point, *cell)
    if f is None:
        from acenode.accelerate.encoder.autograd_rows import integrate

        backend.report_series_by(TORCH_OPERATIONS)
        return integrate(packed, rows.dt, rows.read, drift.initial_attention, drift.step, detach_attention)
    from acenode.accelerate.encoder.scan import EncoderScan

    f_weights = [p for weight, bias in f for p in (weight.t(), bias)]
    return EncoderScan.apply(backend, packed.projected, rows.dt, rows.read, *packed.weights, *f_weights)


# Recurrent cells over the points of series ----------------------------------------------------------------------------


def gru(backend: Backend, projected: Tensor, decay: Tensor | None, mask: Tensor, start: Tensor, weight: Tensor,
        bias: Tensor) -> Tensor | None:
    """Return h after every point, (B, T, h), of a GRU that multiplies h by `decay` before each update.

    Args:
        projected: (B, T, 3h), the products with the inputs.
        decay: (B, T, 1 or h), or None for no decay.
        mask: (B, T). At a point where it is False, h stays as it was.
        start: (B, h).
        weight: (3h, h), of h.
        bias: (3h,).
    """
    if not backend.accelerated:
        return None
    from acenode.accelerate.recurrence.gru import DecayGRU
    from acenode.accelerate.recurrence.scan import scan

    return scan(backend, DecayGRU(), mask, start, (projected, decay), (weight, bias))


def time_lstm(backend: Backend, projected: Tensor, lost: Tensor, mask: Tensor, start: Tensor, hidden: Layer,
              short: Layer) -> Tensor | None:
    """Return [h, C] after every point, (B, T, 2h), of a T-LSTM.

    Args:
        projected: (B, T, 4h), the products with the inputs.
        lost: (B, T, 1), g(Δ) − 1, without a gradient.
        mask: (B, T). At a point where it is False, the state stays as it was.
        start: (B, 2h).
        hidden: Weight (4h, h) and bias of the product with h.
        short: Weight (h, h) and bias of the product with C.
    """
    if not backend.accelerated or lost.requires_grad:
        return None
    from acenode.accelerate.recurrence.scan import scan
    from acenode.accelerate.recurrence.time_lstm import DecayLSTM

    return scan(backend, DecayLSTM(), mask, start, (projected, lost), (*hidden, *short))


def sampled_posterior(backend: Backend, later: Tensor, noise: Tensor, mask: Tensor, start: Tensor, own: Layer,
                      out: Layer, least: float) -> Tensor | None:
    """Return samples z of the deep Kalman filter's posterior after every point, (B, T, l).

    Args:
        later: (B, T, u), the states of the GRU that reads backwards.
        noise: (B, T, l), without a gradient.
        mask: (B, T). At a point where it is False, z stays as it was.
        start: (B, l).
        own: Weight (u, l) and bias of the product with z.
        out: Weight (2l, u) and bias of mean and spread.
        least: The least variance.
    """
    if not backend.accelerated or noise.requires_grad:
        return None
    from acenode.accelerate.recurrence.posterior import SampledPosterior
    from acenode.accelerate.recurrence.scan import scan

    return scan(backend, SampledPosterior(least), mask, start, (later, noise), (*own, *out))


# GRU-ODE-Bayes --------------------------------------------------------------------------------------------------------


def gru_ode_bayes(backend: Backend, inputs: PassInputs) -> PassOutputs | None:
    """Return the states and predictions of GRU-ODE-Bayes, or of ACE on it, along a schedule."""
    if not backend.accelerated:
        return None
    if inputs.h0.is_cuda:
        from acenode.accelerate.gru_ode_bayes.cuda import integrate
    else:
        from acenode.accelerate.gru_ode_bayes.compiled import integrate
    return integrate(backend, inputs)


# Named variables ------------------------------------------------------------------------------------------------------


def named_midpoint(backend: Backend, inputs: MidpointInputs) -> MidpointStates | None:
    """Return the states of named variables that exchange through the attention alone, by midpoint steps."""
    if not backend.accelerated:
        return None
    from acenode.accelerate.named.midpoint import solve

    return solve(backend, inputs)
