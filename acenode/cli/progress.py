"""Progress bars for the terminal."""

from __future__ import annotations

import sys
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
        if not self.terminal and not self.quiet and status.get("validation") is not None:
            left = f", {status['seconds_left']:.0f} s left" if status["seconds_left"] else ""
            value = f"{status['metric']} {brief(status['validation'])}"
            print(f"epoch {status['epoch']}/{status['epochs']}: validation {value}, "
                  f"{status['seconds']:.1f} s{left}", file=sys.stderr, flush=True)
        self.bar.n = 100 * status["progress"]
        self.bar.set_description_str(
            "testing, t-SNE" if status["phase"] == "testing" else f"epoch {min(status['epoch'] + 1, status['epochs'])}"
            f"/{status['epochs']}", refresh=False)
        parts = {k: f"{status[k]:.3f}" for k in ("L_h", "L_a") if status.get(k) is not None}
        if status.get("best") is not None:
            parts[f"best validation {status['metric']}"] = brief(status["best"])
        self.bar.set_postfix(parts, refresh=False)
        self.bar.refresh()


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
