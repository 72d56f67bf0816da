"""`acenode bench scale`: what many runs cost. Four parts, which `--parts` chooses:

    rates     runs an hour in threads, in processes and on a local Ray, 1, 2, 4 and 8 at a time
    head      what the machine that conducts runs on a cluster spends on 200 queued runs and 20 that stream their files
    search    a search of 200 trials on the digits with pruning, on a local Ray
    trials    10,000 trials and 100 workers without training: listing, choosing settings, following and streaming
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from acenode.bench.scale_head import measure_head
from acenode.bench.scale_rates import measure_rates
from acenode.bench.scale_search import measure_search
from acenode.bench.scale_trials import measure_trials
from acenode.errors import UserError
from acenode.execution.environment import describe

PARTS: dict[str, Callable[[Path, Callable[[str], None]], Any]] = {
    "rates": measure_rates, "head": measure_head, "search": measure_search, "trials": measure_trials}


def run(options: Namespace) -> int:
    """Measure the chosen parts and print them; progress goes to standard error."""
    parts = parts_of(options.parts)
    torch.set_num_threads(1)
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray would lower the priority of its workers
    load, found = os.getloadavg()[0], dict[str, Any]()
    if load > 1:
        progress(f"the machine is busy (load {load:.1f}): compare numbers of this run with each other only")
    with tempfile.TemporaryDirectory() as folder:
        for part in parts:
            begun = time.monotonic()
            progress(f"{part} …")
            found[part] = PARTS[part](Path(folder) / part, progress)
            progress(f"{part}: {time.monotonic() - begun:.0f} s")
            if not options.json:
                print(f"\n{found[part].text}\n", flush=True)
    if options.json:
        print(json.dumps({"environment": describe(torch.device("cpu")), "cores": os.cpu_count(), "load": load}
                         | {part: asdict(result) for part, result in found.items()}))
    return 0


def parts_of(names: str) -> list[str]:
    """Return the parts that `rates,head` names."""
    found = [name.strip() for name in names.split(",")]
    if unknown := [name for name in found if name not in PARTS]:
        raise UserError(f"bench scale has no part {unknown[0]!r}: choose some of {','.join(PARTS)}")
    return found


def progress(line: str) -> None:
    """Print a line of progress."""
    print(line, file=sys.stderr, flush=True)
