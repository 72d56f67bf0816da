"""The summary of a run: its title, data, state, main numbers, and its configuration as rows of a table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from acenode import experiments
from acenode.compare.metrics import MetricFormat, MetricRecords, metric_format, to_float
from acenode.config import KEYS
from acenode.errors import UserError
from acenode.export.csv_tables import flat
from acenode.runs.store import Run


@dataclass(frozen=True)
class RunSummary:
    """The texts of a summary, not yet escaped for HTML."""

    experiment: str  # name
    title: str
    data: str  # a sentence on the data
    sample: bool  # the bundled sample or a part of the data, not comparable with the paper
    state: str
    recorded: bool  # comes with the project; device, date and version are in `environment`
    error: str | None
    metric: str  # name of the metric
    measure: MetricFormat  # how the metric is written
    tiles: list[tuple[str, str]]  # label, value
    settings: list[tuple[str, str, str]]  # key, value, meaning
    environment: list[tuple[str, str]]


def read(run: Run, found: MetricRecords) -> RunSummary:
    """Summarise a run; `found` has its metrics."""
    description, status, result = run.description(), run.status(), run.result()
    config: dict[str, Any] = description["config"]
    names = _names(config)
    sample, partial = config.get("data") != "full", bool(description.get("partial"))
    own = sample and experiments.is_imported(str(config.get("experiment")))
    kind = names.sample if own or not names.sample else f"sample: {names.sample}"
    metric = _metric(result, names.metric, found)
    return RunSummary(
        experiment=str(config.get("experiment")),
        title=f"{names.method} on {names.experiment}" + f" ({kind})" * (sample and bool(kind)),
        data=_own_data(names) if own else _data(sample, partial, names, str(description.get("data_note") or "")),
        sample=(sample or partial) and not own,
        state=str(status["state"]),
        recorded=run.recorded,
        error=str(status["error"]) if status.get("error") else None,
        metric=metric,
        measure=metric_format(metric, str(config.get("experiment"))),
        tiles=list(_tiles(description, status, result, metric)),
        settings=[(key, _text(value), _help(key)) for key, value in config.items() if key != "format"],
        environment=[(name.removeprefix("environment."), _text(value)) for key, part in description.items()
                     if key not in ("config", "format") for name, value in flat(key, _readable(key, part))],
    )


@dataclass(frozen=True)
class _Names:
    experiment: str
    method: str
    about_sample: str
    sample: str  # what the sample is, in a few words
    metric: str | None


def _names(config: dict[str, Any]) -> _Names:
    """Return titles, or bare names if this version does not know the experiment or method."""
    name, method = str(config.get("experiment")), str(config.get("method"))
    try:
        experiment = experiments.get(name)
        return _Names(experiment.title, experiment.method(method).title, experiment.about_sample,
                      experiment.sample_title, experiment.metric.name)
    except UserError:
        return _Names(name, method, "", "", None)


def _data(sample: bool, partial: bool, names: _Names, note: str) -> str:
    if not sample and partial:
        return f"Data: a part of the full {names.experiment} set. Not comparable with the paper."
    if not sample:
        return f"Data: the full {names.experiment} set{f', {note}' if note else ''}."
    about = f" ({names.about_sample})" if names.about_sample else ""
    return f"Data: the bundled sample{about}. Not comparable with the paper."


def _own_data(names: _Names) -> str:
    return f"Data: {experiments.YOUR_DATA}{f' ({names.about_sample})' if names.about_sample else ''}."


def _metric(result: dict[str, Any] | None, known: str | None, found: MetricRecords) -> str:
    named = (result or {}).get("metric") or known
    if named is None:
        keys = [key for record in found.epochs for key in record if key.startswith("validation_")]
        named = keys[0].removeprefix("validation_") if keys else "accuracy"
    return str(named)


def _tiles(description: dict[str, Any], status: dict[str, Any], result: dict[str, Any] | None,
           metric: str) -> Iterator[tuple[str, str]]:
    experiment = str(description["config"].get("experiment"))
    if result is not None and isinstance(result.get("test"), dict):
        for key, value in sorted(result["test"].items(), key=lambda item: item[0] != metric):  # the metric first
            yield f"Test {metric_format(key).title}", metric_text(key, value, experiment)
        yield "Best epoch", str(result.get("best_epoch", "?"))
    elif status.get("best") is not None:
        best = metric_text(metric, status["best"], experiment)
        yield f"Best validation {metric_format(metric).title} so far", best
    if status.get("state") != "finished" and status.get("progress") is not None:
        yield "Progress", metric_text("progress", status["progress"])
    params = to_float(description.get("params"))
    if params is not None and math.isfinite(params):
        yield "Parameters", f"{int(params):,}"
    seconds = to_float((result or status).get("seconds"))
    if seconds is not None and math.isfinite(seconds):
        yield "Training time", duration(seconds)
    yield "Seed", str(description["config"].get("seed", "?"))


def metric_text(key: str, value: Any, experiment: str = "") -> str:
    """Write a metric with its unit."""
    number = to_float(value)
    if number is None or not math.isfinite(number):
        return "not a number"
    return metric_format("accuracy" if key == "progress" else key, experiment).text(number)


def duration(seconds: float) -> str:
    """Write a duration: `12.3 s`, `5 min 20 s` or `2 h 3 min`."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _help(key: str) -> str:
    return KEYS[key].help if key in KEYS else ""


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _readable(key: str, value: Any) -> Any:
    """Write `created` as a date; return other values unchanged."""
    when = to_float(value) if key == "created" else None
    if when is None or not 0 <= when < 253_402_300_800:  # the year 10000
        return value
    return datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%d %H:%M UTC")
