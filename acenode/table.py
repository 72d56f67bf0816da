"""Measured means over seeds beside the paper's. Only runs on the full data stand beside a number of the paper."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import mean, stdev
from typing import Any

from acenode import paper
from acenode.config import SETTINGS, Config
from acenode.errors import UserError
from acenode.experiments import Experiment
from acenode.runs import Run

IGNORED = frozenset({"snapshots", "checkpoint_seconds", "analysis"})  # they change no number


@dataclass(frozen=True)
class Row:
    """Runs that differ in nothing but the seed."""

    method: str
    title: str
    data: str
    changed: dict[str, Any]  # settings that are not the experiment's defaults
    params: int
    seeds: list[int]
    mean: float | None  # percent
    std: float | None  # sample standard deviation, from two seeds on
    paper: str | None
    paper_params: str | None

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "n": len(self.seeds)}


def changed_settings(experiment: Experiment, config: Config) -> dict[str, Any]:
    """What a run has that a run with the same method and data has not by default."""
    chosen = {k: v for k, v in (("size", config.size), ("attention", config.attention)) if v is not None}
    plain = experiment.configure(config.method, config.data, **chosen)  # with the defaults that follow from those two
    usual = experiment.configure(config.method, config.data)
    return {k: getattr(config, k) for k in SETTINGS if k not in IGNORED and getattr(config, k) is not None
            and getattr(config, k) != getattr(usual if k in chosen else plain, k)}


def rows(experiment: Experiment, runs: Iterable[Run]) -> list[Row]:
    """One row for every method of the paper, and for every other setting that has a finished run."""
    found: dict[tuple, list[tuple[float, Config, float, int]]] = {}
    for run in runs:
        try:
            description, config, result = run.description(), run.config(), run.result()
            if config.experiment != experiment.name or result is None:
                continue
            changed = changed_settings(experiment, config)
            value = float(result["test"][experiment.metric.name])
        except (UserError, KeyError, TypeError, ValueError):  # torn, foreign or of another version: listed by `list`
            continue
        key = (config.data, config.method, tuple(sorted(changed.items())))
        created, params = float(description.get("created", 0)), int(description.get("params", 0))
        found.setdefault(key, []).append((created, config, value, params))
    for method in experiment.methods:
        found.setdefault(("full", method, ()), [])
    order = list(experiment.methods)
    keys = sorted(found, key=lambda k: (k[0] != "full", order.index(k[1]), len(k[2]), str(k[2])))
    return [_row(experiment, key, sorted(found[key], key=lambda member: member[0])) for key in keys]


def _row(experiment: Experiment, key: tuple, members: list[tuple[float, Config, float, int]]) -> Row:
    data, method, changed = key
    # one value a seed: repeating a seed is no new evidence, the latest counts
    by_seed = {config.seed: value * 100 for _, config, value, _ in members}
    config = members[0][1] if members else experiment.configure(method, data)
    printed = paper.accuracy(config) if data == "full" and set(dict(changed)) <= {"size"} else None
    values = list(by_seed.values())
    return Row(
        method=method, title=experiment.methods[method].title, data=data, changed=dict(changed),
        params=members[0][3] if members else experiment.count(config), seeds=sorted(by_seed),
        mean=mean(values) if values else None, std=stdev(values) if len(values) > 1 else None,
        paper=str(printed) if printed else None, paper_params=printed.params if printed else None,
    )


def render(experiment: Experiment, table: list[Row]) -> str:
    """The table as text, the full data first and the sample apart."""
    lines = [f"{experiment.title}: test {experiment.metric.name} in percent, mean ± sample standard deviation (seeds)"]
    full = [r for r in table if r.data == "full"]
    sample = [r for r in table if r.data == "sample"]
    lines += _block(full, ("method", "parameters", "measured", "n", "paper", "paper's size", "settings changed"), True)
    if sample:
        lines += ["", f"On the bundled sample ({experiment.about_sample}); not comparable with the paper:"]
        lines += _block(sample, ("method", "parameters", "measured", "n", "settings changed"), False)
    return "\n".join(lines)


def _block(rows: list[Row], heads: tuple[str, ...], with_paper: bool) -> list[str]:
    cells = [heads]
    for r in rows:
        measured = "-" if r.mean is None else f"{r.mean:.2f}" + (f" ± {r.std:.2f}" if r.std is not None else "")
        changed = " ".join(f"{k}={v}" for k, v in r.changed.items())
        middle = (r.paper or "-", r.paper_params or "-") if with_paper else ()
        cells.append((r.title, f"{r.params:,}", measured, str(len(r.seeds)), *middle, changed))
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
