"""Measured means over seeds beside the paper's. Only runs on the full data stand beside a number of the paper."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from statistics import mean, stdev
from typing import Any

from acenode.config import SETTINGS, Config
from acenode.errors import UserError
from acenode.experiments import Experiment, get
from acenode.results import metric_format, paper
from acenode.runs.store import Run

IGNORED = frozenset({"snapshots", "checkpoint_seconds", "analysis"})  # they change no number
REPEATED = frozenset({"fold"})  # runs that differ in these are repetitions, as those of another seed
LEADING = ("size", "attention", "task", "sample")  # other defaults follow from these


@dataclass(frozen=True)
class Row:
    """Runs that differ in nothing but the seed."""

    method: str
    title: str
    data: str
    changed: dict[str, Any]  # settings that are not the experiment's defaults
    params: int
    seeds: list[int]
    mean: float | None  # in the metric's unit: accuracies in percent
    std: float | None  # sample standard deviation, from two seeds on
    paper: str | None
    paper_params: str | None
    unit: str = "%"
    metric: str = ""
    partial: bool = False  # a part of the full data, which stands beside no number of the paper

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "n": len(self.seeds)}


def changed_settings(experiment: Experiment, config: Config) -> dict[str, Any]:
    """What a run has that a run with the same method and data has not by default."""
    chosen = {k: v for k in LEADING if (v := getattr(config, k)) is not None}
    plain = experiment.configure(config.method, config.data, **chosen)  # with the defaults that follow from those
    usual = experiment.configure(config.method, config.data)
    return {k: getattr(config, k) for k in SETTINGS if k not in IGNORED and getattr(config, k) is not None
            and getattr(config, k) != getattr(usual if k in chosen else plain, k)}


def changed_in(config: dict[str, Any]) -> dict[str, Any]:
    """The same of a run's stored configuration; nothing of one that another version wrote."""
    try:
        made = Config.from_dict(config)
        return changed_settings(get(made.experiment), made)
    except (UserError, TypeError):
        return {}


@dataclass(frozen=True)
class _Member:
    """A finished run."""

    created: float
    config: Config
    value: float
    params: int


Key = tuple[str, bool, str, tuple[tuple[str, Any], ...]]  # data, whether a part of it, method, changed settings


def rows(experiment: Experiment, runs: Iterable[Run], metric: str | None = None) -> list[Row]:
    """One row for every method and every row of the paper, and for every other setting that has a finished run.

    They are of the experiment's metric, or of another one that it has.
    """
    metric = metric or experiment.metric.name
    found: dict[Key, list[_Member]] = {}
    for run in runs:
        try:
            description, config, result = run.description(), run.config(), run.result()
            if config.experiment != experiment.name or result is None:
                continue
            key = _key(experiment, config, bool(description.get("partial")))
            value = float(result["test"][metric])
        except (UserError, KeyError, TypeError, ValueError):  # torn, foreign or of another version: listed by `list`
            continue
        created, params = float(description.get("created", 0)), int(description.get("params", 0))
        found.setdefault(key, []).append(_Member(created, config, value, params))
    for method in experiment.methods:
        found.setdefault(("full", False, method, ()), [])
    for method, given in paper.printed(experiment.name):
        with suppress(UserError):  # a method or a setting that this version has not
            found.setdefault(_key(experiment, experiment.configure(method, "full", **given), False), [])
    order = list(experiment.methods)
    keys = sorted(found, key=lambda k: (k[0] != "full", k[1], _question(k), order.index(k[2]), len(k[3]), str(k[3])))
    return [_row(experiment, metric, key, sorted(found[key], key=lambda member: member.created)) for key in keys]


def _key(experiment: Experiment, config: Config, partial: bool) -> Key:
    changed = {k: v for k, v in changed_settings(experiment, config).items() if k not in REPEATED}
    return config.data, partial, config.method, tuple(sorted(changed.items()))


def _question(key: Key) -> tuple[str, ...]:
    """Rows with another task or sample than the usual one answer another question: they stand together, after it."""
    return tuple(str(dict(key[3]).get(k, "")) for k in ("task", "sample"))


def _row(experiment: Experiment, metric: str, key: Key, members: list[_Member]) -> Row:
    data, partial, method, changed = key
    unit = metric_format.of(metric, experiment.name)
    # one value a seed and fold: repeating them is no new evidence, the latest counts
    by_seed = {(member.config.seed, member.config.fold or 0): member.value * unit.scale for member in members}
    config = members[0].config if members else experiment.configure(method, data, **dict(changed))
    other = None if metric == experiment.metric.name else metric
    printed = paper.beside(config, dict(changed), partial, other)
    values = list(by_seed.values())
    return Row(
        method=method, title=experiment.methods[method].title, data=data, changed=dict(changed),
        params=members[0].params if members else experiment.count(config), seeds=sorted(seed for seed, _ in by_seed),
        mean=mean(values) if values else None, std=stdev(values) if len(values) > 1 else None,
        paper=str(printed) if printed else None, paper_params=printed.params if printed else None,
        unit=unit.unit.strip(), metric=metric, partial=partial,
    )


def render(experiment: Experiment, table: list[Row]) -> str:
    """The table as text, the full data first, parts of it and the sample apart."""
    metric = table[0].metric if table else experiment.metric.name
    unit = metric_format.of(metric, experiment.name)
    said = " in percent" if unit.unit == "%" else unit.unit
    said += "" if unit.higher_is_better else ", less is better"
    lines = [f"{experiment.title}: test {unit.title}{said}, mean ± sample standard deviation (seeds)"]
    full = [r for r in table if r.data == "full" and not r.partial]
    heads = ("method", "parameters", "measured", "n", "paper", "paper's size", "settings changed")
    lines += _block(full, heads, True, unit.digits)
    apart = ((f"On the bundled sample ({experiment.about_sample})", [r for r in table if r.data == "sample"]),
             ("On a part of the full data", [r for r in table if r.data == "full" and r.partial]))
    for title, some in apart:
        if some:
            lines += ["", f"{title}; not comparable with the paper:"]
            lines += _block(some, ("method", "parameters", "measured", "n", "settings changed"), False, unit.digits)
    return "\n".join(lines)


def _block(rows: list[Row], heads: tuple[str, ...], with_paper: bool, digits: int | None) -> list[str]:
    cells = [heads]
    for r in rows:
        measured = "-" if r.mean is None else _measured(r.mean, r.std, digits)
        changed = " ".join(f"{k}={v}" for k, v in r.changed.items())
        middle = (r.paper or "-", r.paper_params or "-") if with_paper else ()
        cells.append((r.title, f"{r.params:,}", measured, str(len(r.seeds)), *middle, changed))
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def _measured(mean: float, std: float | None, digits: int | None) -> str:
    """So many digits after the point, or three that count where those would tell nothing apart."""
    form = ".4g" if digits is None else ".3g" if abs(mean) < 0.01 else f".{digits}f"
    return f"{mean:{form}}" + (f" ± {std:{form}}" if std is not None else "")
