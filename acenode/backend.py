"""The backend of a run: which implementations of its models it may use.

Implementations in `acenode.accelerate` import this module, and `acenode.accelerate.dispatch` imports them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

# what integrated the series of a run: `series_by` in config.json
GPU_KERNELS, COMPILED_C, TORCH_OPERATIONS = "kernels of the GPU", "compiled C", "torch's operations, row by row"


@dataclass(frozen=True)
class Backend:
    """Which implementations a run may use, and where it reports the choice.

    `Backend` is created once by the execution of a run and passed down through the constructors of its model.
    """

    accelerated: bool = True  # False: torch operations with autograd only, `engine=reference`
    compile_c: bool = True  # False: never call a C compiler
    log: Callable[[str], None] = lambda line: None  # takes a line of the run's log
    on_series_by: Callable[[str], None] = lambda name: None  # takes the name of what integrates the series
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
