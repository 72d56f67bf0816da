"""What the settings of an experiment are where nobody says otherwise, by data, method and size of the network."""

from __future__ import annotations

from typing import Any

from acenode import experiments
from acenode.config import SETTINGS

Defaults = dict[str, dict[Any, list[str]]]  # by data and value: the methods that have it


def usual(experiment: str) -> dict[str, Defaults]:
    """The defaults by setting; no setting that none of its methods has."""
    entry, found = experiments.get(experiment), dict[str, Defaults]()
    for data in ("sample", "full"):
        for method in entry.methods:
            config = entry.configure(method, data)
            for name in SETTINGS:
                value = config.get(name)
                if value is not None:
                    found.setdefault(name, {"sample": {}, "full": {}})[data].setdefault(value, []).append(method)
    return {name: found[name] for name in SETTINGS if name in found}


def words(experiment: str, name: str, default: Defaults) -> str:
    """On the sample and on the full data, as one where they are the same."""
    each = {data: _of_methods(values) for data, values in default.items() if values}
    if len(each) == 2 and len(set(each.values())) == 1:
        said = each["full"]
    else:
        said = "; ".join(f"{value} ({data})" for data, value in each.items())
    return "; ".join([said, *_of_sizes(experiment, name)])


def _of_methods(values: dict[Any, list[str]]) -> str:
    """The value that most methods have, and those of the others with their names."""
    most, *others = sorted(values, key=lambda value: -len(values[value]))
    return ", ".join([str(most).lower(), *(f"{str(v).lower()} for {' and '.join(values[v])}" for v in others)])


def _of_sizes(experiment: str, name: str) -> list[str]:
    """What a default becomes in a network of another size."""
    entry, found = experiments.get(experiment), dict[str, None]()
    for size in entry.choices("size"):
        for method in entry.methods:
            small = entry.configure(method)
            if name == "size" or small.get("size") in (None, size):
                continue
            value = entry.configure(method, size=size).get(name)
            if value != small.get(name):
                found[f"{value} with size={size}"] = None
    return list(found)
