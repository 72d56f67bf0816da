"""Choose the implementation of each accelerated function. Models import this module of `accelerate` and no other.

A dispatch function takes the run's `Backend` and tensors. It returns the result of the fastest implementation that
supports them, or None: the model then runs its own plain loop. Implementations are imported inside these functions, so
a run with `engine=reference` imports none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor  # a list of experiments does not wait for torch

# what integrated the series of a run: `series_by` in config.json
GPU_KERNELS, COMPILED_C, TORCH_OPERATIONS = "kernels of the GPU", "compiled C", "torch's operations, row by row"


def _ignore(text: str) -> None:
    pass


@dataclass(frozen=True)
class Backend:
    """Which implementations a run may use, and where it reports the choice.

    `Backend` is made once by whoever executes a run and passed down through the constructors of its model.
    """

    accelerated: bool = True  # False: torch operations with autograd only, `engine=reference`
    compile_c: bool = True  # False: never call a C compiler
    log: Callable[[str], None] = _ignore  # takes a line of the run's log
    on_series_by: Callable[[str], None] = _ignore  # takes the name of what integrates the series
    logged: set[str] = field(default_factory=set, compare=False, repr=False)

    def log_once(self, line: str) -> bool:
        """Log a line unless this backend logged it before; return True if it was logged now."""
        if line in self.logged:
            return False
        self.logged.add(line)
        self.log(line)
        return True

    def report_series_by(self, name: str) -> None:
        """Report, once, the implementation that integrates the series."""
        if self.log_once(f"series are integrated by {name}"):
            self.on_series_by(name)

    def __deepcopy__(self, memo: object) -> Backend:
        return self


ACCELERATED = Backend()
PLAIN = Backend(accelerated=False)


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
