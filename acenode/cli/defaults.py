"""The default settings of an experiment by data, method and size of the network."""

from __future__ import annotations

from typing import Any

from acenode import experiments
from acenode.config import SETTINGS

Defaults = dict[str, dict[Any, list[str]]]  # by data and value: the methods that have it


def defaults_by_method(experiment: str) -> dict[str, Defaults]:
    """Return the defaults of every setting that a method of the experiment has."""
    entry, found = experiments.get(experiment), dict[str, Defaults]()
    for data in ("sample", "full") if entry.source else ("sample",):
        for method in entry.methods:
            config = entry.configure(method, data)
            for name in SETTINGS:
                value = config.get(name)
                if value is not None:
                    found.setdefault(name, {"sample": {}, "full": {}})[data].setdefault(value, []).append(method)
    return {name: found[name] for name in SETTINGS if name in found}


def describe(experiment: str, name: str, default: Defaults) -> str:
    """Describe a default in one line: on the sample and on the full data, or once if they are the same."""
    each = {data: _most_common_first(values) for data, values in default.items() if values}
    if len(set(each.values())) == 1 and (len(each) == 2 or not experiments.get(experiment).source):
        text = next(iter(each.values()))
    else:
        text = "; ".join(f"{value} ({data})" for data, value in each.items())
    return "; ".join([text, *_other_sizes(experiment, name)])


def _most_common_first(values: dict[Any, list[str]]) -> str:
    """Name the value that most methods have, then the others with their methods."""
    most, *others = sorted(values, key=lambda value: -len(values[value]))
    return ", ".join([str(most).lower(), *(f"{str(v).lower()} for {' and '.join(values[v])}" for v in others)])


def _other_sizes(experiment: str, name: str) -> list[str]:
    """Return what a default becomes in a network of another size."""
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
