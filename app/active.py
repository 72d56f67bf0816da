"""What trains and waits now, as the sidebar shows it: running and queued runs, and the devices."""

from __future__ import annotations

from typing import Any

from acenode.compare.groups import experiment_title, method_title
from acenode.execution.devices import DeviceState
from acenode.runs.entry import Entry

from .services import services


def describe() -> dict[str, Any]:
    """Return running runs, queued runs in the order of the queue, and the state of the devices."""
    launcher = services().launcher if services().launcher_ready else None  # do not wait for torch
    queue = {run: place for place, run in enumerate(launcher.queue(), 1)} if launcher else {}
    busy = services().catalogue.busy_entries()
    names = _names(busy)
    runs: list[dict[str, Any]] = [
        {"id": entry.id, "name": names[entry.id], "state": entry.state, "experiment": entry.experiment,
         "progress": entry.progress, "epoch": entry.epoch, "epochs": entry.epochs, "seconds_left": entry.seconds_left,
         "place": queue.get(entry.id, 0), "device": entry.device_name} for entry in busy]
    runs.sort(key=lambda run: (run["state"] != "running", run["place"]))
    devices = [{"name": d.name, "title": d.title, "running": d.running, "workers": d.workers,
                "memory_used": d.memory_used, "memory_total": d.memory_total, "utilisation": d.utilisation,
                "load": load_words(d)} for d in (launcher.device_states() if launcher else [])]
    return {"runs": runs, "devices": devices}


def load_words(device: DeviceState) -> str:
    """Say how many runs of this app a device trains, and how busy it is; without one, other processes keep it busy.

    Runs that were started in a terminal are other processes too.
    """
    busy = None if device.utilisation is None else f"{100 * device.utilisation:.0f}%"
    if not device.running:
        return "No run started in this app" + ("" if busy is None else f" · {busy} used by other processes")
    workers = f"{device.running} of {device.workers} workers in use"
    return workers if busy is None else f"{workers} · {busy} utilisation"


def _names(entries: list[Entry]) -> dict[str, str]:
    """Name runs of a study by their group there, others by experiment, method, settings and seed; what differs between
    these comes first."""
    if not entries:
        return {}
    of_study = _study_names(entries)
    return {entry.id: f"{of_study[entry.id]} · {experiment_title(entry.experiment)}" for entry in entries
            if entry.id in of_study} | _other_names([entry for entry in entries if entry.id not in of_study])


def _study_names(entries: list[Entry]) -> dict[str, str]:
    """Return the names of runs in their study, once torch is loaded."""
    if not services().launcher_ready:
        return {}
    from .questions import study_run_names

    return study_run_names.names(entries, services().store)


def _other_names(entries: list[Entry]) -> dict[str, str]:
    settings = _settings(entries)
    parts = {entry.id: (experiment_title(entry.experiment), method_title(entry.experiment, entry.method),
                        settings.get(entry.id, ""), f"seed {entry.seed}") for entry in entries}
    differs = [len(set(column)) > 1 for column in zip(*parts.values(), strict=True)]
    return {run: " · ".join(text for first in (True, False) for text, differing in zip(texts, differs, strict=True)
                            if text and differing is first) for run, texts in parts.items()}


def _settings(entries: list[Entry]) -> dict[str, str]:
    """Return the settings by which runs differ from others of their method, once torch is loaded.

    Of several runs of a method, what all of them share is left out.
    """
    if not services().launcher_ready:
        return {}
    from . import labels

    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.experiment, entry.method), []).append(entry)
    texts = {}
    for alike in groups.values():
        changed = dict.fromkeys(key for entry in alike for key in labels.settings(entry) if key != "epochs")
        differing = [key for key in changed if len(alike) == 1 or len({str(e.config.get(key)) for e in alike}) > 1]
        for entry in alike:
            texts[entry.id] = labels.settings_words({k: entry.config[k] for k in differing
                                                     if entry.config.get(k) is not None})
    return texts
