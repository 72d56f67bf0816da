"""Commands that print what can be trained: experiments, methods, settings."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from acenode.cli.common import print_json
from acenode.config import SETTINGS


def experiments(options: Namespace) -> int:
    """Print the experiments and their methods."""
    from acenode.experiments import EXAMPLES, EXPERIMENTS, YOUR_DATA, get, imported_names, is_imported

    found = [*EXPERIMENTS.values(), *EXAMPLES.values(), *map(get, imported_names())]
    if options.json:
        print_json([{"name": e.name, "title": e.title, "summary": e.summary, "metric": e.metric.name,
                      "methods": list(e.methods), "sample": e.about_sample} for e in found])
        return 0
    for e in found:
        kind = YOUR_DATA if is_imported(e.name) else "sample"
        print(f"{e.name:<17} {e.summary}\n{'':<17} methods: {', '.join(e.methods)}\n{'':<17} {kind}: {e.about_sample}")
    return 0


def methods(options: Namespace) -> int:
    """Print parameter counts on the full data: every method, both sizes, and the variants of ACE."""
    from acenode import experiments

    experiment = experiments.get(options.experiment)
    found: list[dict[str, Any]] = []
    for name, method in experiment.methods.items():
        variants: list[dict[str, Any]] = [{}, {"size": "large"}] if "size" in method.uses else [{}]
        if "f_layers" in method.uses:
            variants += [{**size, "f_layers": f, "q_layers": q}
                         for size in ({}, {"size": "large"}) for f in (1, 2) for q in (1, 2)]
        elif "attention" in method.uses:
            starts = [c for c in experiment.choices("initial") if c in ("dense", "learned")]
            variants += [*({"initial": c} for c in starts), {"attention": "fixed"}, {"attention": "none"}]
        if "attention_in" in method.uses:
            variants.append({"attention_in": "both"})
        for given in variants:
            config = experiment.configure(name, "full" if experiment.source else "sample", **given)
            found.append({"method": name, "title": method.title, "size": config.get("size"), "settings": given,
                          "params": experiment.count(config)})
    if options.json:
        print_json(found)
        return 0
    if experiment.source:
        print("parameters for the full data; networks for the sample may be smaller")
    for entry in found:
        settings = " ".join(f"{k}={v}" for k, v in entry["settings"].items())
        print(f"{entry['method']:<14} {entry['title']:<21} {entry['params']:>10,} parameters  {settings}")
    return 0


def settings(options: Namespace) -> int:
    """Print every setting, or those of one experiment with their defaults."""
    from acenode import experiments
    from acenode.cli import defaults
    from acenode.experiments.base import reason_for

    by_method = defaults.defaults_by_method(options.experiment) if options.experiment else {}
    found: list[dict[str, Any]] = []
    for name in by_method or SETTINGS:
        setting = SETTINGS[name]
        bounds = {"low": setting.low, "above": setting.above, "high": setting.high, "choices": setting.choices or None}
        found.append({"key": name, "type": setting.type.__name__, "group": setting.group, "help": setting.help,
                      **({"default": {data: list(of) for data, of in by_method[name].items()}} if by_method else {}),
                      **{k: v for k, v in bounds.items() if v is not None}})
        if by_method and (reason := reason_for(options.experiment, name)):
            found[-1]["not_as_printed"] = reason
        if by_method and "choices" in found[-1]:
            found[-1]["choices"] = experiments.get(options.experiment).choices(name)
    if options.json:
        print_json(found)
        return 0
    for entry in found:
        print(f"{entry['key']:<20} {entry['type']:<6} {_bounds(entry)}\n{'':<20} {entry['help']}")
        if by_method:
            print(f"{'':<20} default: {defaults.describe(options.experiment, entry['key'], by_method[entry['key']])}")
        if "not_as_printed" in entry:
            print(f"{'':<20} not as printed (full data; preset=printed): {entry['not_as_printed']}")
    return 0


def _bounds(entry: dict[str, Any]) -> str:
    """Return the values a setting can have."""
    if "choices" in entry:
        return "|".join(entry["choices"])
    if entry["type"] == "bool":
        return "true|false"
    words = ("low", "from"), ("above", "above"), ("high", "to")
    return " ".join(f"{word} {entry[k]:g}" for k, word in words if k in entry)
