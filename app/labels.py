"""How runs are called and coloured."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from acenode.results import run_groups
from acenode.runs.catalogue import Entry

PALETTE = ("#2b62d9", "#d9662b", "#2a9d74", "#a24bc9", "#c9a227", "#d63864", "#4aa3c7", "#7a6f5d", "#7fb23f", "#8b7be8")
ICONS = {"finished": "✓", "running": "●", "queued": "○", "stopped": "■", "failed": "✗", "interrupted": "◐",
         "unreadable": "?"}

method_title, measure_of, data = run_groups.method_title, run_groups.measure_of, run_groups.data_title


def settings(entry: Entry) -> dict[str, Any]:
    """Return the settings that differ from the defaults of the run's method."""
    return run_groups.changed_in(entry.config)


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


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
