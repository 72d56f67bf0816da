"""Choose the implementation of each accelerated function. Models import this module of `accelerate` and no other.

A dispatch function takes the run's `Backend` and tensors. It returns the result of the fastest implementation that
supports them, or None: the model then runs its own plain code. Implementations are imported inside these functions, so
a run with `engine=reference` imports none of them.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from torch import Tensor, nn

from acenode.backend import Backend
from acenode.device.torch_private import transforms_active  # which differentiate torch's operations only

if TYPE_CHECKING:
    from acenode.data.passes import (
        EncoderRows,
        GateLayers,
        Layers,
        MidpointInputs,
        MidpointStates,
        PassInputs,
        PassOutputs,
    )

ARM = platform.machine().lower() in ("aarch64", "arm64")
SMALL = 512  # rows of a product for which ARM's library is slow


def linear(backend: Backend, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor | None:
    """Return x Wᵀ + b."""
    if not (ARM and backend.accelerated and not x.is_cuda and x.numel() <= SMALL * x.shape[-1]):
        return None
    from acenode.accelerate.layers import SmallLinear

    return SmallLinear.apply(x.reshape(-1, x.shape[-1]), weight, bias).view(*x.shape[:-1], len(weight))


def convolution(backend: Backend, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """Return the 3×3 convolution of x (B, C, H, W) with padding 1."""
    if not backend.accelerated or transforms_active():
        return None
    from acenode.accelerate.layers import Conv3x3Function

    return Conv3x3Function.apply(x, weight, bias)


def time_convolution(backend: Backend, x: Tensor, t: Tensor, weight: Tensor, time: Tensor, bias: Tensor,
                     inside: Tensor) -> Tensor | None:
    """Return the 3×3 convolution, with padding 1, of x (B, C, H, W) and one more channel that is t everywhere."""
    if not backend.accelerated or transforms_active():
        return None
    from acenode.accelerate.layers import TimeConvFunction

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


def ode_rnn(backend: Backend, rows: EncoderRows, cell: GateLayers, f: Layers) -> Tensor | None:
    """Return [μ, s] of an ODE-RNN after every row, (S, B, 2r). The drift f is an MLP of μ alone."""
    if not backend.accelerated:
        return None
    from acenode.accelerate.recurrence.ode_rnn import integrate

    return integrate(backend, rows, cell, f)


def recurrence(backend: Backend, cell: str, mask: Tensor, start: Tensor, rows: tuple[Tensor, Tensor],
               weights: Sequence[Tensor]) -> Tensor | None:
    """Return the states of a recurrent cell after every point, (B, T, ·).

    Args:
        cell: "gru" or "lstm"; the classes in `recurrence.scan` describe the rows and weights.
        mask: (B, T). At a point where it is False, the state stays as it was.
        start: The initial state, (B, ·).
        rows: What is read at every point, (B, T, ·) each. Of "lstm" the second has no gradient.
        weights: As (outputs, inputs), each followed by its bias.
    """
    if not backend.accelerated or (cell == "lstm" and rows[1].requires_grad):
        return None
    from acenode.accelerate.recurrence.scan import CELLS, scan

    return scan(backend, CELLS[cell](), mask, start, rows, weights)


def gru_ode_bayes(backend: Backend, inputs: PassInputs) -> PassOutputs | None:
    """Return the states and predictions of GRU-ODE-Bayes, or of ACE on it, along a schedule."""
    if not backend.accelerated:
        return None
    if inputs.h0.is_cuda:
        from acenode.accelerate.gru_ode_bayes.cuda import integrate
    else:
        from acenode.accelerate.gru_ode_bayes.compiled import integrate
    return integrate(backend, inputs)


def named_midpoint(backend: Backend, inputs: MidpointInputs) -> MidpointStates | None:
    """Return the states of named variables that exchange through the attention alone, by midpoint steps."""
    if not backend.accelerated:
        return None
    from acenode.accelerate.named_midpoint import solve

    return solve(backend, inputs)
