"""Choose the implementation of each accelerated function. Models import this module of `accelerate` and no other.

A dispatch function takes the run's `Backend` and tensors. It returns the result of the fastest implementation that
supports them, or None: the model then runs its own plain loop. Implementations are imported inside these functions, so
a run with `engine=reference` imports none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from acenode.backend import ACCELERATED, COMPILED_C, GPU_KERNELS, PLAIN, TORCH_OPERATIONS, Backend

if TYPE_CHECKING:
    from torch import Tensor  # a list of experiments does not wait for torch

__all__ = ["ACCELERATED", "COMPILED_C", "GPU_KERNELS", "PLAIN", "TORCH_OPERATIONS", "Backend", "convolution",
           "encoder_states", "time_convolution"]


def convolution(backend: Backend, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """Return the 3×3 convolution of x with padding 1."""
    if not backend.accelerated:
        return None
    from acenode.accelerate.convolution import Conv3x3Function

    return Conv3x3Function.apply(x, weight, bias)


def time_convolution(backend: Backend, x: Tensor, t: Tensor, weight: Tensor, time: Tensor, bias: Tensor,
                     inside: Tensor) -> Tensor | None:
    """Return the 3×3 convolution of x and one more channel that is t everywhere."""
    if not backend.accelerated:
        return None
    from acenode.accelerate.convolution import TimeConvFunction

    return TimeConvFunction.apply(x, t, weight, time, bias, inside)


def encoder_states(backend: Backend, given: Tensor, dt: Tensor, read: Tensor,
                   weights: Sequence[Tensor]) -> Tensor | None:
    """Return [μ, s] of the ODE-RNN encoder after every row, (S, B, 2r)."""
    if not backend.accelerated:
        return None
    from acenode.accelerate.encoder.torch_scan import Scan

    return Scan.apply(backend, given, dt, read, *weights)
