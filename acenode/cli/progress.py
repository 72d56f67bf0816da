"""Progress bars for the terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self


class _Closing:
    """A progress bar that is closed at the end of its `with` block, if it was drawn."""

    bar: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self.bar is not None:
            self.bar.close()


def brief(value: float) -> str:
    """Format with four decimals, or four significant digits below 0.1."""
    return f"{value:.4g}" if 0 < abs(value) < 0.1 else f"{value:.4f}"


class Bar(_Closing):
    """Show training: epochs, losses, best validation value, time left. Prints one line per epoch if not a terminal."""

    label = ""  # before the epoch

    def __init__(self, title: str, quiet: bool = False) -> None:
        self.title, self.quiet, self.terminal = title, quiet, sys.stderr.isatty()

    def _begin(self) -> None:
        """Print the title and draw the bar; called once training has started."""
        from tqdm import tqdm

        print(self.title, file=sys.stderr if self.quiet else sys.stdout, flush=True)
        self.bar = tqdm(total=100, disable=not self.terminal, file=sys.stderr, mininterval=0.2,
                        bar_format="{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}")

    def write(self, line: str) -> None:
        """Print a line above the bar."""
        self.bar.write(line, file=sys.stderr)

    def show(self, status: dict[str, Any]) -> None:
        if self.bar is None:
            self._begin()
        if status.get("validation") is not None:
            self._write_epoch(status)
        self.bar.n = 100 * status["progress"]
        stage = f"epoch {min(status['epoch'] + 1, status['epochs'])}/{status['epochs']}"
        self.bar.set_description_str(self.label + ("testing, t-SNE" if status["phase"] == "testing" else stage),
                                     refresh=False)
        parts = {k: f"{status[k]:.3f}" for k in ("L_h", "L_a") if status.get(k) is not None}
        if status.get("best") is not None:
            parts[f"best validation {status['metric']}"] = brief(status["best"])
        self.bar.set_postfix(parts, refresh=False)
        self.bar.refresh()

    def _write_epoch(self, status: dict[str, Any]) -> None:
        self._print_epoch(status, brief(status["validation"]))

    def _print_epoch(self, status: dict[str, Any], values: str) -> None:
        """Print the line of an epoch, unless there is a bar."""
        if not self.terminal and not self.quiet:
            left = f", {status['seconds_left']:.0f} s left" if status["seconds_left"] else ""
            print(f"epoch {status['epoch']}/{status['epochs']}: validation {status['metric']} {values}, "
                  f"{status['seconds']:.1f} s{left}", file=sys.stderr, flush=True)


class SeedsBar(Bar):
    """Show several seeds: the bar follows one of them, and the line of an epoch has the values of all.

    Args:
        title: is printed first.
        quiet: print no lines.
        groups: the seeds that are trained at a time, in order; the bar follows the first of each group.
        together: the seeds of a group are at the same epoch and share a line; otherwise each has its own.
    """

    def __init__(self, title: str, quiet: bool, groups: Sequence[Sequence[int]], *, together: bool) -> None:
        super().__init__(title, quiet)
        self.group_of, self.together = {seed: group for group in groups for seed in group}, together
        self.lock = threading.Lock()
        self.values: dict[int, float] = {}  # of the present epoch, by seed
        self.last: dict[str, Any] = {}  # the latest status with a value

    def show_seed(self, seed: int, status: dict[str, Any]) -> None:
        """Show the progress of a seed; threads may call it."""
        with self.lock:
            if self.bar is None:
                self._begin()
            if status.get("validation") is not None:
                self._add(seed, status)
            if seed == self.group_of[seed][0]:
                self.label = f"seed {seed}: "
                self.show(status)

    def _add(self, seed: int, status: dict[str, Any]) -> None:
        """Add the value of a seed, and print the line when all seeds of its group have one."""
        if seed in self.values or (self.values and status["epoch"] != self.last["epoch"]):
            self._flush()  # a seed has failed: the others go on without it
        self.values[seed], self.last = status["validation"], status
        if not self.together or self.values.keys() >= set(self.group_of[seed]):
            self._flush()

    def _flush(self) -> None:
        seeds = sorted(self.values)
        if seeds:
            values = ", ".join(brief(self.values[seed]) for seed in seeds)
            self._print_epoch(self.last, f"{values} (seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))})")
        self.values = {}

    def _write_epoch(self, status: dict[str, Any]) -> None:
        """Print nothing: `show_seed` prints the values of all seeds."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._flush()
        super().__exit__(kind, error, trace)


class DownloadBar(_Closing):
    """Show downloads, one bar per file."""

    label = ""

    def show(self, done: int, total: int | None, label: str) -> None:
        from tqdm import tqdm

        if label != self.label:
            if self.bar is not None:
                self.bar.close()
            self.label = label
            self.bar = tqdm(total=total, desc=label, unit="B", unit_scale=True, unit_divisor=1024, file=sys.stderr)
        self.bar.update(done - self.bar.n)
