"""What several commands share: the folder of runs, options KEY=VALUE, output as text or JSON, and progress bars."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

from acenode import experiments
from acenode.config import Config, parse
from acenode.errors import UserError
from acenode.runs.process import within_limit
from acenode.runs.recorded import chosen_recorded_runs, recorded_runs
from acenode.runs.store import RunStore

RECORDED = "recorded"  # `--runs recorded`: the runs that come with the project


def run_store(options: Namespace, *, to_read: bool = False) -> RunStore:
    """Open the folder of runs: --runs, else ACENODE_RUNS, else runs/; the recorded runs are read beside its own.

    Commands that only read (`to_read`) also take `--runs recorded`.
    """
    if options.runs == RECORDED:
        if not to_read:
            raise UserError("recorded runs can only be read: choose another folder with --runs DIR")
        folder = chosen_recorded_runs() or recorded_runs()
        if folder is None:
            raise UserError("there are no recorded runs in this installation")
        return RunStore(folder, recorded=folder)
    root = os.environ.get("ACENODE_RUNS") or "runs" if options.runs is None else options.runs
    if not root:
        raise UserError("--runs needs the name of a folder")
    try:
        is_file = within_limit(root, lambda: Path(root).exists() and not Path(root).is_dir())
    except TimeoutError as error:
        raise UserError(f"{root} cannot be read: {error.strerror}") from None
    if is_file:
        raise UserError(f"{root} is not a folder: choose another with --runs DIR")
    return RunStore(root, recorded=chosen_recorded_runs())


def data_words(config: Config) -> str:
    """Return what a run is trained on: `sample data`, `full data`, or `your data` for an imported set."""
    return experiments.YOUR_DATA if experiments.is_imported(config.experiment) else f"{config.data} data"


def key_and_value(text: str, option: str = "--set") -> tuple[str, str]:
    """Split KEY=VALUE."""
    key, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"{option} takes KEY=VALUE, not {text!r}")
    return key, value


def given_settings(options: Namespace, read: Callable[[str, str], Any] = parse) -> dict[str, Any]:
    """Read --epochs and every --set KEY=VALUE, each key once."""
    given: dict[str, Any] = {} if options.epochs is None else {"epochs": options.epochs}
    for key, text in map(key_and_value, options.set or []):
        if key in given:
            raise UserError(f"{key} is given twice: leave one out")
        given[key] = read(key, text)
    return given


def check_limits(options: Namespace, *counts: str) -> None:
    """Raise a UserError if --minutes, --workers or another count is not positive."""
    for name in (*counts, "workers"):
        if (value := getattr(options, name)) is not None and value < 1:
            raise UserError(f"--{name} must be at least 1, not {value}")
    if options.minutes is not None and not options.minutes > 0:
        raise UserError(f"--minutes must be above 0, not {options.minutes:g}")


def print_json(value: Any) -> None:
    """Print a value as JSON; numbers that JSON does not have, which a foreign file may hold, become null."""
    try:
        print(json.dumps(value, ensure_ascii=False, allow_nan=False))
    except ValueError:
        print(json.dumps(json.loads(json.dumps(value), parse_constant=lambda name: None), ensure_ascii=False))


def output(options: Namespace, value: Any, lines: Iterable[str]) -> int:
    """Print a value with --json, else the lines; return exit code 0."""
    if options.json:
        print_json(value)
    else:
        for line in lines:
            print(line)
    return 0


def output_names(options: Namespace, found: Sequence[dict[str, Any]], key: str, about: Callable[[dict[str, Any]], str],
                 nothing: str) -> int:
    """Print a line for each study or search: its name, which is its `key`, and what `about` says of it."""
    width = max((len(one[key]) for one in found), default=0)
    lines = (f"{one[key]:<{width}}  {about(one)}".rstrip() for one in found)
    return output(options, found, lines if found else [nothing])


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align the cells of rows."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(part.ljust(width) for part, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def brief(value: float) -> str:
    """Format with four decimals, or four significant digits below 0.1."""
    return f"{value:.4g}" if 0 < abs(value) < 0.1 else f"{value:.4f}"


# Progress bars ------------------------------------------------------------------------------------------------------


class _Bar:
    """A progress bar that is closed at the end of its `with` block, if it was drawn."""

    bar: Any = None
    label = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.close()


class TrainingBar(_Bar):
    """Show epochs, losses, best validation value and time left. Without a terminal, print a line for each epoch.

    Several seeds are in `groups` of those that are trained at a time; the bar follows the first of each. If they are
    trained `together`, at the same epoch, they share a line.
    """

    def __init__(self, title: str, quiet: bool, groups: Sequence[Sequence[int]] = (), together: bool = False) -> None:
        self.title, self.quiet, self.terminal = title, quiet, sys.stderr.isatty()
        self.group_of, self.together = {seed: group for group in groups for seed in group}, together
        self.values: dict[int, float] = {}  # of the present epoch, by seed
        self.last: dict[str, Any] = {}  # the latest status with a value

    def show(self, status: dict[str, Any], seed: int = 0) -> None:
        """Show the progress of a seed."""
        from tqdm import tqdm

        if self.bar is None:
            print(self.title, file=sys.stderr if self.quiet else sys.stdout, flush=True)
            self.bar = tqdm(total=100, disable=not self.terminal, file=sys.stderr, mininterval=0.2,
                            bar_format="{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}")
        group = self.group_of.get(seed, (seed,))
        if status.get("validation") is not None:
            self._add(seed, group, status)
        if seed == group[0]:
            self.label = f"seed {seed}: " if self.group_of else ""
            self._draw(status)

    def _draw(self, status: dict[str, Any]) -> None:
        self.bar.n = 100 * status["progress"]
        stage = f"epoch {min(status['epoch'] + 1, status['epochs'])}/{status['epochs']}"
        self.bar.set_description_str(self.label + ("testing, t-SNE" if status["phase"] == "testing" else stage),
                                     refresh=False)
        parts = {k: f"{status[k]:.3f}" for k in ("L_h", "L_a") if status.get(k) is not None}
        if status.get("best") is not None:
            parts[f"best validation {status['metric']}"] = brief(status["best"])
        self.bar.set_postfix(parts, refresh=False)
        self.bar.refresh()

    def _add(self, seed: int, group: Sequence[int], status: dict[str, Any]) -> None:
        if seed in self.values or (self.values and status["epoch"] != self.last["epoch"]):
            self._print_epoch()  # a seed has failed: the others go on without it
        self.values[seed], self.last = status["validation"], status
        if not self.together or self.values.keys() >= set(group):
            self._print_epoch()

    def _print_epoch(self) -> None:
        seeds, status = sorted(self.values), self.last
        if seeds and not self.terminal and not self.quiet:
            values = ", ".join(brief(self.values[seed]) for seed in seeds)
            if self.group_of:
                values += f" (seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))})"
            left = f", {status['seconds_left']:.0f} s left" if status["seconds_left"] else ""
            print(f"epoch {status['epoch']}/{status['epochs']}: validation {status['metric']} {values}, "
                  f"{status['seconds']:.1f} s{left}", file=sys.stderr, flush=True)
        self.values = {}

    def __exit__(self, *error: object) -> None:
        self._print_epoch()
        super().__exit__(*error)


class DownloadBar(_Bar):
    """Show downloads, one bar per file."""

    def show(self, done: int, total: int | None, label: str) -> None:
        from tqdm import tqdm

        if label != self.label:
            self.__exit__()
            self.label = label
            self.bar = tqdm(total=total, desc=label, unit="B", unit_scale=True, unit_divisor=1024, file=sys.stderr)
        self.bar.update(done - self.bar.n)
