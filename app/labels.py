"""Names, colours and number formats of runs and settings, the same on every page."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from acenode.compare.colours import PALETTE
from acenode.compare.groups import changed_in, data_title, experiment_title, measure_of, method_title  # noqa: F401
from acenode.config.ranges import SearchRange
from acenode.runs.entry import Entry

from . import messages

COMMIT = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{32}\b")
ICONS = {"finished": "✓", "running": "●", "queued": "○", "stopped": "■", "failed": "✗", "interrupted": "◐",
         "unreadable": "?", "recorded": "◆"}


def setting(name: str) -> str:
    """Return the label of a setting: its plain name, then its symbol or key where that says more."""
    return str(messages.words()["settings"].get(name, name.replace("_", " ").capitalize()))


def plain(name: str) -> str:
    """Return the plain name of a setting within a sentence, without its symbol: `how attention starts`."""
    title = re.sub(r" \([^)]*\)$", "", setting(name))
    return title[:1].lower() + title[1:]


def setting_value(value: Any) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) \
        else str(value)


def settings_words(settings: Mapping[str, Any]) -> str:
    """Write settings with the names that the forms give them: `how attention starts: conv`."""
    return ", ".join(f"{plain(key)}: {setting_value(value)}" for key, value in settings.items())


def ranges_words(ranges: Sequence[SearchRange]) -> str:
    """Write what a search tries: `learning rate from 0.015 to 1.5, attention: evolving or none`."""
    return ", ".join(f"{plain(one.key)}: {' or '.join(setting_value(v) for v in one.values)}" if one.values else
                     f"{plain(one.key)} from {one.low:g} to {one.high:g}" for one in ranges)


def state_name(entry: Entry) -> str:
    """Return the state, or `recorded` for a recorded run."""
    return "recorded" if entry.recorded and entry.state == "finished" else entry.state


def provenance(entry: Entry) -> str:
    when = time.strftime("%d %b %Y", time.localtime(entry.created)) if entry.created else ""
    code = f"code {code_version(entry)}" if entry.code else ""
    return ", ".join(filter(None, (when, entry.device, code)))


def code_version(entry: Entry) -> str:
    return COMMIT.sub(r"\1", entry.code)


def group(entry: Entry) -> str:
    """Return the method and the changed settings, which are equal for runs that differ only in the seed."""
    return ", ".join(filter(None, (method_title(entry.experiment, entry.method), changes(entry))))


def changes(entry: Entry) -> str:
    """Return the changed settings in words, the fold if there are several, and the search that a trial belongs to."""
    trial = f"trial of {entry.search}" if entry.search else ""
    fold = entry.config.get("fold") if entry.data == "full" else None
    shown = ({} if fold is None else {"fold": fold}) | changed_in(entry.config)
    return ", ".join(filter(None, (settings_words(shown), trial)))


def label(entry: Entry) -> str:
    """Return a name that identifies the run: group, seed, time and the end of its id."""
    if entry.state == "unreadable":
        return entry.id
    when = time.strftime("%d %b %H:%M", time.localtime(entry.created)) if not entry.recorded else "recorded"
    return f"{group(entry)} · seed {entry.seed} · {when} · {entry.id[-4:]}"


def colours(names: Iterable[str]) -> dict[str, str]:
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(dict.fromkeys(names))}


def for_charts(entries: list[Entry], groups: dict[str, str] | None = None) -> list[dict[str, object]]:
    """Describe runs for the browser's charts: one colour for each run, or for each group if `groups` maps run ids."""
    names = {e.id: groups[e.id] if groups else label(e) for e in entries}
    colour = colours(names.values())
    return [{"id": e.id, "label": label(e), "group": names[e.id], "colour": colour[names[e.id]], "live": e.busy}
            for e in entries]


def ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
