"""Score the coupling that runs on an example of named variables found, for docs/named.md: AUROC of the known links.

    python docs/named_links.py                              la-speeds, pairs of detectors with a nearness above 0.5
    python docs/named_links.py predator-prey --above 0      every known link
    python docs/named_links.py --runs runs                  runs of your own instead of the recorded ones
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from acenode.data.named_batches import correlation
from acenode.data.named_set import example
from acenode.experiments.named_task import link_auroc
from acenode.runs.recorded import recorded_runs
from acenode.runs.store import Run, RunStore


def scores(result: dict[str, Any], above: float) -> dict[str, float]:
    """Return the AUROC of attention and influence for the links above a strength, from result.json."""
    known = (np.array(result["coupling"]["known"]) > above).astype(float)
    return {key: link_auroc(np.array(result[key]["mean"]), known) for key in ("attention", "influence")
            if key in result}


def finished(folder: Path, name: str) -> dict[str, list[Run]]:
    """Return the finished runs on an example by method."""
    found = defaultdict(list)
    for run in RunStore(folder):
        if run.id.startswith(name) and run.config().experiment == name and run.result() is not None:
            found[run.config().method].append(run)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="AUROC of the known links of an example of named variables")
    parser.add_argument("example", nargs="?", default="la-speeds")
    parser.add_argument("--above", type=float, default=0.5, help="links of a larger strength count (default 0.5)")
    parser.add_argument("--runs", type=Path, default=recorded_runs(), help="folder of runs (default: the recorded)")
    options = parser.parse_args()
    source = example(options.example)
    assert source.links is not None, f"{options.example} has no known links"
    links = (source.links > options.above).astype(float)
    print(f"{options.example}: {int(links.sum())} of {links.size - len(links)} ordered pairs are linked")
    print(f"correlation: {link_auroc(np.abs(correlation(source)), links):.3f}")
    for method, runs in sorted(finished(options.runs, options.example).items()):
        found = [scores(run.result() or {}, options.above) for run in runs]
        shared = [key for key in found[0] if all(key in one for one in found)]
        means = ", ".join(f"{key} {np.mean([one[key] for one in found]):.3f}" for key in shared)
        print(f"{method}, {len(runs)} run{'s' * (len(runs) != 1)}: {means}")


if __name__ == "__main__":
    main()
