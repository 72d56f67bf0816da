"""Choose the step sizes of adaptive methods: the first one, and the next one after every trial step.

All solvers use these rules: on Python numbers where the batch shares its steps, on tensors (B,) where every sample has
its own, and on scalar tensors where nothing may wait for the device. The kernels of `accelerate` repeat them and are
tested against them. An error ratio is the error in units of the tolerance, so a step is accepted if it is at most 1.

Hairer, Nørsett & Wanner, Solving Ordinary Differential Equations I, section II.4.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import torch
from torch import Tensor

SAFETY, GROW, SHRINK = 0.9, 10.0, 0.2  # how far below the estimate to stay, and the bounds of dt_next / dt

Number = TypeVar("Number", float, Tensor)


def trial_step_size(state_norm: Number, slope_norm: Number) -> Number:
    """Return h0, the size of the explicit Euler step that measures how fast the slope changes.

    Args:
        state_norm: norm of y(t_0), in units of the tolerance.
        slope_norm: norm of F(t_0, y(t_0)), in units of the tolerance.
    """
    tiny = _smaller(state_norm, slope_norm) < 1e-5
    return where(tiny, 1e-6, 0.01 * state_norm / _at_least(slope_norm, 1e-5))


def first_step_size(h0: Number, slope_norm: Number, change_norm: Number, order: int) -> Number:
    """Return the first step size, NaN if h0 is not a positive number.

    Args:
        h0: `trial_step_size`.
        slope_norm: as there.
        change_norm: norm of F(t_0 + h0, y + h0 F) - F(t_0, y), in units of the tolerance.
        order: the method's order.
    """
    steepest = _larger(slope_norm, change_norm / h0)
    flat = steepest <= 1e-15
    h1 = where(flat, _at_least(h0 * 1e-3, 1e-6), (0.01 / _at_least(steepest, 1e-15)) ** (1 / order))
    return where((h0 > 0) & (h0 < math.inf), _smaller(100 * h0, h1), math.nan)


def next_step_size(dt: Number, ratio: Number, accepted: bool | Tensor, order: int) -> Number:
    """Return the size of the next step after a step of size |dt| with this error ratio.

    The size shrinks after a rejected step only. A ratio that is NaN or infinite shrinks it as far as allowed.
    """
    factor = SAFETY * _at_least(ratio, 1e-30) ** (-1 / order)  # below 1e-30 the factor is GROW for every order
    factor = _at_most(_larger(factor, where(accepted, 1.0, SHRINK)), GROW)
    return abs(dt) * where(finite(ratio), factor, SHRINK)


# The same operation on a Python number and on a tensor -----------------------------------------------------------


def where(condition: Any, yes: Any, no: Any) -> Any:
    if isinstance(condition, Tensor):
        return torch.where(condition, yes, no)
    return yes if condition else no


def _larger(x: Any, y: Any) -> Any:
    return torch.maximum(x, y) if isinstance(x, Tensor) else max(x, y)


def _smaller(x: Any, y: Any) -> Any:
    return torch.minimum(x, y) if isinstance(x, Tensor) else min(x, y)


def _at_least(x: Any, bound: float) -> Any:
    return x.clamp(min=bound) if isinstance(x, Tensor) else max(x, bound)


def _at_most(x: Any, bound: float) -> Any:
    return x.clamp(max=bound) if isinstance(x, Tensor) else min(x, bound)


def finite(x: Any) -> Any:
    return torch.isfinite(x) if isinstance(x, Tensor) else math.isfinite(x)
