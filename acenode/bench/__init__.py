"""The benchmarks of `acenode bench`: what each measures and which options it takes.

A benchmark compares implementations in one run on one machine, so its ratios mean more than its times.
"""

from __future__ import annotations

import importlib
import json
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from acenode.errors import UserError

FAMILY_NAMES = "images,baselines,series,windows,sporadic"
PART_NAMES = "rates,head,search,trials"  # of bench scale


@dataclass(frozen=True)
class Benchmark:
    """Where a benchmark is (a function of its name), what it measures, how long it takes, and its options' defaults."""

    module: str
    about: str
    lasts: str
    options: Mapping[str, Any]


BENCHMARKS = {
    "image": Benchmark("models", "time and memory of one ACE training iteration on images, against a direct "
                       "implementation", "4 minutes", {"repeats": 3, "batch": 128, "device": "auto"}),
    "gpu": Benchmark("gpu", "time and memory of one training iteration of each model family with each engine, on a GPU",
                     "2 to 3 minutes", {"repeats": 3, "families": FAMILY_NAMES, "full": False}),
    "epoch": Benchmark("training", "accuracy of ACE after one epoch with each engine, over seeds",
                       "1 minute; on MNIST with a GPU, 5 minutes per seed",
                       {"seeds": "0-2", "engines": None, "jobs": 1, "device": "auto"}),
    "validation": Benchmark("training", "share of an epoch that is validation, for one method of each model family",
                            "1 minute on a GPU; on two CPU cores 5 minutes with the real data",
                            {"repeats": 2, "device": "auto"}),
    "app": Benchmark("pages", "response times of the app, and how much open pages slow training down; needs Chromium",
                     "6 minutes", {}),
    "playground": Benchmark("pages", "training steps and drawn frames a second of the playground; needs Chromium",
                            "1 minute", {}),
    "latent": Benchmark("models", "time of one PhysioNet-sized training batch, against a union time grid", "1 minute",
                        {"repeats": 3}),
    "ushcn": Benchmark("models", "time of one USHCN-sized training batch on the CPU, against one time grid for the "
                       "batch", "2 minutes", {"repeats": 3}),
    "named": Benchmark("models", "time of one ACE training iteration on named variables, with and without C, and on a "
                       "large set", "2 minutes", {"repeats": 3, "device": "auto"}),
    "search": Benchmark("pages", "seconds to list and show a search with 10,000 trials, as a command and on the page",
                        "1 minute", {}),
    "scale": Benchmark("scale", "runs an hour in threads and on a local Ray, the cost of the head, a search of 200 "
                       "trials, and 10,000 trials without training", "15 minutes", {"parts": PART_NAMES}),
    "together": Benchmark("training", "time, shares and memory of several runs one after another, in threads and in "
                          "processes", "4 minutes",
                          {"train": "physionet/ace:1,physionet/latent-ode:2", "each": 1, "data": "sample",
                           "jobs": None, "ways": None, "device": "auto"}),
}
OPTIONS = ("repeats", "batch", "device", "families", "full", "seeds", "engines", "jobs", "train", "each", "data",
           "ways", "parts")


def run(options: Namespace) -> int:
    """Run one benchmark and print what it found; the exit status is 1 if it missed a target."""
    settle(options)
    module = importlib.import_module(f"{__name__}.{BENCHMARKS[options.what].module}")
    report = getattr(module, options.what)(options)
    print(json.dumps(report.result) if options.json else report.text)
    return 0 if report.ok else 1


def settle(options: Namespace) -> None:
    """Set the options that were not given to their defaults; refuse those that the benchmark does not take."""
    if options.what is None:
        raise UserError(f"name a benchmark: acenode bench {'|'.join(BENCHMARKS)}; `acenode bench --help` "
                        "describes them")
    defaults = BENCHMARKS[options.what].options
    for name in OPTIONS:
        if getattr(options, name) is None:
            setattr(options, name, defaults.get(name))
        elif name not in defaults:
            takers = ", ".join(other for other, entry in BENCHMARKS.items() if name in entry.options)
            raise UserError(f"--{name} does not apply to bench {options.what}: leave it out; it applies to {takers}")


def summary() -> str:
    """Describe every benchmark in one line."""
    lines = (f"  {name:<11}{entry.about}; about {entry.lasts}" for name, entry in BENCHMARKS.items())
    return "\n".join(["benchmarks, with their duration on two CPU cores or one GPU:", *lines])
