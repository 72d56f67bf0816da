"""Run generated cases of bad input and print what must not happen: tracebacks, hangs, and pages that show nothing.

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
from collections.abc import Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("ACENODE_RECORDED", "")
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "app")]

from cases import Addresses, CommandLines, DataFiles, RunFolders  # noqa: E402

SECONDS = 60.0  # a case that takes longer hangs
KINDS: dict[str, Any] = {"run folders": RunFolders, "command lines": CommandLines, "addresses": Addresses,
                         "data files": DataFiles}


class HangError(BaseException):
    """A case took too long. Not an Exception, which the code under test may catch."""


def _hang(number: int, frame: object) -> None:
    raise HangError


def run(kind: str, cases: Iterable[int], seed: int = 0, show: bool = False) -> list[str]:
    """Run the cases with these numbers, each from its own seed, and return their faults."""
    found, before = [], signal.signal(signal.SIGALRM, _hang)
    with tempfile.TemporaryDirectory() as folder:
        made = KINDS[kind](Path(folder).resolve())
        try:
            for i in cases:
                signal.setitimer(signal.ITIMER_REAL, SECONDS)
                try:
                    made.case(random.Random(f"{kind}/{seed}/{i}"))
                except (Exception, HangError) as error:
                    at = traceback.extract_tb(error.__traceback__)[-1]
                    found.append(f"{kind} {i}: {type(error).__name__}: {str(error)[:300]} ({at.filename}:{at.lineno})")
                    if show:
                        traceback.print_exc()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
        finally:
            made.close()
            signal.signal(signal.SIGALRM, before)
    return found


def main() -> int:
    """Run cases of all kinds in turn and print the faults."""
    logging.getLogger("streamlit").setLevel(logging.ERROR)  # warns that there is no browser
    parser = argparse.ArgumentParser(description="Run generated cases of bad input.")
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--case", type=int, help="only this case, with its traceback")
    options = parser.parse_args()
    wrong = 0
    for kind in [options.only] if options.only else KINDS:
        cases = range(options.cases // (1 if options.only else len(KINDS)))
        begun = time.monotonic()
        found = run(kind, cases if options.case is None else [options.case], options.seed, options.case is not None)
        print(f"{kind:<14} {len(cases):>6} cases, {len(found)} faults, {time.monotonic() - begun:.0f} s", flush=True)
        for line in found[:50]:
            print(f"  {line}")
        wrong += len(found)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
