"""Run generated cases of bad input and count what must not happen: tracebacks, hangs, and pages that show nothing.

    python tests/faults/fuzz.py --cases 5000
    python tests/faults/fuzz.py --only "run folders" --case 17      # one case again, with its traceback
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Protocol

os.environ.setdefault("ACENODE_RECORDED", "")
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from cases import Addresses, CommandLines, DataFiles, RunFolders  # noqa: E402
from checks import EmptyPageError  # noqa: E402

SECONDS = 60.0  # a case that takes longer hangs


class Cases(Protocol):
    """A kind of cases; `case` raises an error if something happens that must not."""

    name: str

    def case(self, rng: random.Random) -> None: ...
    def close(self) -> None: ...


KINDS = {kind.name: kind for kind in (RunFolders, CommandLines, Addresses, DataFiles)}


class HangError(BaseException):
    """A case took too long. Not an Exception, which the code under test may catch."""


@dataclass
class Counts:
    """What happened in the cases of a kind."""

    cases: int = 0
    tracebacks: int = 0
    hangs: int = 0
    empty: int = 0
    seconds: float = 0.0
    found: list[str] = field(default_factory=list)


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise HangError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run(kind: str, cases: range, seed: int = 0, seconds: float = SECONDS, show: bool = False) -> Counts:
    """Run the cases with these numbers, each from its own seed, and count faults."""
    counts, begun = Counts(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        made: Cases = KINDS[kind](Path(folder).resolve())
        try:
            for i in cases:
                _run_case(made, i, seed, seconds, counts, show)
        finally:
            made.close()
    counts.seconds = time.monotonic() - begun
    return counts


def _run_case(made: Cases, i: int, seed: int, seconds: float, counts: Counts, show: bool) -> None:
    counts.cases += 1
    try:
        with _time_limit(seconds):
            made.case(random.Random(f"{made.name}/{seed}/{i}"))
    except HangError:
        counts.hangs += 1
        counts.found.append(f"{made.name} {i}: hangs")
    except Exception as error:
        if isinstance(error, EmptyPageError):
            counts.empty += 1
        else:
            counts.tracebacks += 1
        at = traceback.extract_tb(error.__traceback__)[-1]
        counts.found.append(f"{made.name} {i}: {type(error).__name__}: {str(error)[:300]} ({at.filename}:{at.lineno})")
        if show:
            traceback.print_exc()


def main() -> int:
    """Run cases of all kinds in turn and print the counts."""
    logging.getLogger("streamlit").setLevel(logging.ERROR)  # warns that there is no browser
    parser = argparse.ArgumentParser(description="Run generated cases of bad input.")
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--case", type=int, help="only this case, with its traceback")
    options = parser.parse_args()
    kinds = [options.only] if options.only else list(KINDS)
    wrong = 0
    print(f"{'kind':<14} {'cases':>6} {'tracebacks':>11} {'hangs':>6} {'empty pages':>12} {'seconds':>8}")
    for n, kind in enumerate(kinds):
        count = options.cases // len(kinds) + (n < options.cases % len(kinds))
        cases = range(count) if options.case is None else range(options.case, options.case + 1)
        found = run(kind, cases, options.seed, show=options.case is not None)
        print(f"{kind:<14} {found.cases:>6} {found.tracebacks:>11} {found.hangs:>6} {found.empty:>12} "
              f"{found.seconds:>8.0f}", flush=True)
        for line in found.found[:50]:
            print(f"  {line}")
        wrong += found.tracebacks + found.hangs + found.empty
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
