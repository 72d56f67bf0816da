"""Benchmarks: ratios, both sides in one run. What there is and which options each takes; importing this is light."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from acenode.errors import UserError

FAMILY_NAMES = "images,series,sporadic"


@dataclass(frozen=True)
class Benchmark:
    """What it measures, about how long that takes, and its options with their defaults."""

    about: str
    lasts: str
    options: Mapping[str, Any]


BENCHMARKS = {
    "image": Benchmark("an iteration of ACE on images against a direct implementation", "4 minutes",
                       {"repeats": 3, "batch": 128, "device": "auto"}),
    "gpu": Benchmark("an iteration of every family by every engine, on a GPU", "2 to 3 minutes",
                     {"repeats": 3, "families": FAMILY_NAMES, "full": False}),
    "epoch": Benchmark("ACE for an epoch by every engine, over seeds: how much of a difference is noise",
                       "a minute; on MNIST with a GPU 5 minutes a seed",
                       {"seeds": "0-2", "engines": None, "jobs": 1, "device": "auto"}),
    "app": Benchmark("how soon the lab shows things and what watching costs; needs Chromium", "6 minutes", {}),
    "latent": Benchmark("a batch of PhysioNet's shape, own times against the union grid; on a GPU, its parts",
                        "1 minute", {"repeats": 3, "device": "auto"}),
    "ushcn": Benchmark("a batch of USHCN's shape against one clock for the batch, on the CPU", "2 minutes",
                       {"repeats": 3}),
}
OPTIONS = ("repeats", "batch", "device", "families", "full", "seeds", "engines", "jobs")


def settle(options: Namespace) -> None:
    """Refuse what a benchmark does not take, and fill in what was not given."""
    if options.what is None:
        raise UserError(f"name a benchmark: acenode bench {'|'.join(BENCHMARKS)}; `acenode bench --help` says what "
                        "each measures")
    defaults = BENCHMARKS[options.what].options
    for name in OPTIONS:
        if getattr(options, name) is None:
            setattr(options, name, defaults.get(name))
        elif name not in defaults:
            takers = ", ".join(other for other, entry in BENCHMARKS.items() if name in entry.options)
            raise UserError(f"--{name} has no meaning in bench {options.what}: leave it out; it goes with {takers}")


def summary() -> str:
    """A line for every benchmark."""
    lines = (f"  {name:<7} {entry.about}; about {entry.lasts}" for name, entry in BENCHMARKS.items())
    return "\n".join(["benchmarks, and how long they take (CPU: on two cores):", *lines])
