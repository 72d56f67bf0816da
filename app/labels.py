"""How runs are called and coloured."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from acenode import experiments
from acenode.errors import UserError
from acenode.results import metric_format
from acenode.results.metric_format import MetricFormat
from acenode.results.table import changed_in
from acenode.runs.catalogue import Entry

PALETTE = ("#2b62d9", "#d9662b", "#2a9d74", "#a24bc9", "#c9a227", "#d63864", "#4aa3c7", "#7a6f5d", "#7fb23f", "#8b7be8")
ICONS = {"finished": "✓", "running": "●", "queued": "○", "stopped": "■", "failed": "✗", "interrupted": "◐",
         "unreadable": "?"}


def method_title(experiment: str, method: str) -> str:
    try:
        return experiments.get(experiment).method(method).title
    except UserError:
        return method


def settings(entry: Entry) -> dict[str, Any]:
    """What the run has that its method has not by default."""
    return json.loads(_settings(json.dumps(entry.config, sort_keys=True)))


@lru_cache(maxsize=4096)
def _settings(config: str) -> str:
    return json.dumps(changed_in(json.loads(config)))


def group(entry: Entry) -> str:
    """Runs that differ in nothing but the seed are called alike."""
    words = [method_title(entry.experiment, entry.method)]
    words += [f"{k}={v}" for k, v in settings(entry).items()]
    return " ".join(words)


def label(entry: Entry) -> str:
    if entry.state == "unreadable":
        return entry.id
    when = time.strftime("%d %b %H:%M", time.localtime(entry.created))
    return f"{group(entry)} · seed {entry.seed} · {when} · {entry.id[-4:]}"


def colours(names: Iterable[str]) -> dict[str, str]:
    """One colour a name, in order of appearance."""
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(dict.fromkeys(names))}


def value(entry: Entry, number: float | None) -> str:
    """A value of the run's metric as people read it."""
    return measure_of(entry).text(number)


def measure_of(entry: Entry) -> MetricFormat:
    return metric_format.of(entry.metric or metric_format.name_of(entry.experiment), entry.experiment)


def data(entry: Entry) -> str:
    """Which data, and whether only a part of it was there."""
    return f"{entry.data}, in part" if entry.partial else entry.data


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
