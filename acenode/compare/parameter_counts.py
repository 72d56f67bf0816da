"""Count the parameters of models, once for each version of the code: to count them builds a model, which loads torch.

The counts are kept in the user's cache folder. They are discarded when a file that models are built from has changed.
"""

from __future__ import annotations

import json
import os
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path

import acenode
from acenode.config import Config
from acenode.experiments import EXPERIMENTS, Experiment
from acenode.files import read_json, user_cache, write_json

SOURCES = ("models", "experiments", "config", "attention.py", "node.py")
IGNORED = frozenset({"seed", "device"})


def count(experiment: Experiment, config: Config) -> int:
    """Return the number of parameters of the model that a configuration describes."""
    if EXPERIMENTS.get(config.experiment) is not experiment:  # of somebody else, or read from imported data
        return experiment.count(config)
    known = _known()
    key = json.dumps({k: v for k, v in config.to_dict().items() if k not in IGNORED}, sort_keys=True)
    if key not in known:
        known[key] = experiment.count(config)
        with suppress(OSError, RuntimeError):  # it cannot be written: count again next time
            write_json(_file(), {"code": _code(), "counts": known})
    return known[key]


def _file() -> Path:
    return user_cache() / "acenode" / "parameter-counts.json"


@cache
def _known() -> dict[str, int]:
    """Return the counts on disk that this version of the code made."""
    with suppress(OSError, RuntimeError, ValueError, TypeError, KeyError, AttributeError):
        stored = read_json(_file())
        counts = stored["counts"].items()
        if stored["code"] == _code() and all(isinstance(n, int) and n >= 0 for _, n in counts):
            return dict(counts)
    return {}


@cache
def _code() -> int:
    """Return a checksum of names, sizes and times of the files that models are built from."""
    root, stamps = Path(acenode.__file__).parent, []
    for source in SOURCES:
        for path in sorted((root / source).rglob("*.py")) if (root / source).is_dir() else [root / source]:
            found = os.stat(path)
            stamps.append((str(path), found.st_size, found.st_mtime_ns))
    return zlib.crc32(repr(stamps).encode())
