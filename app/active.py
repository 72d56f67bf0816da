"""What trains and waits now, as the sidebar shows it: running and queued runs with their names, and the devices."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from acenode.compare.groups import experiment_title, method_title, same_run
from acenode.errors import UserError
from acenode.execution.devices import DeviceState
from acenode.files import Stamp, stamp
from acenode.runs.entry import Entry
from acenode.runs.questions import Study, StudyStore
from acenode.runs.store import RunStore

from .services import services


def describe() -> dict[str, Any]:
    """Return running runs, queued runs in the order of the queue, and the state of the devices."""
    launcher = services().launcher if services().launcher_ready else None  # do not wait for torch
    queue = {run: place for place, run in enumerate(launcher.queue(), 1)} if launcher else {}
    busy = services().catalogue.busy_entries()
    named = names(busy)
    runs: list[dict[str, Any]] = [
        {"id": entry.id, "name": named[entry.id], "state": entry.state, "experiment": entry.experiment,
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


def names(entries: list[Entry]) -> dict[str, str]:
    """Name runs of a study by their group there, others by experiment, method, settings and seed; what differs between
    these comes first."""
    store, found = services().store, dict[str, str]()
    if entries and services().launcher_ready:  # once torch is loaded
        studies = _studies(store, stamp(StudyStore(store).folder))
        found = {entry.id: f"{name} · {experiment_title(entry.experiment)}" for entry in entries
                 if (name := _name(entry, studies))}
    others = [entry for entry in entries if entry.id not in found]
    settings = _settings(others)
    parts = {entry.id: (experiment_title(entry.experiment), method_title(entry.experiment, entry.method),
                        settings.get(entry.id, ""), f"seed {entry.seed}") for entry in others}
    differs = [len(set(column)) > 1 for column in zip(*parts.values(), strict=True)]
    return found | {run: " · ".join(text for first in (True, False) for text, differing
                                    in zip(texts, differs, strict=True) if text and differing is first)
                    for run, texts in parts.items()}


@lru_cache(maxsize=1)
def _studies(store: RunStore, at: Stamp | None) -> tuple[Study, ...]:
    """Read the studies of a folder with this stamp, which changes when one is written or deleted."""
    return tuple(found.study for found in StudyStore(store).list() if found.study is not None)


def _name(entry: Entry, studies: tuple[Study, ...]) -> str:
    """Return the group, seed and fold of a run in the first study that has it; empty if none has it."""
    from acenode.compare.study_grid import group_config, group_names  # they need torch

    fold = entry.config.get("fold")
    for study in studies:
        repeat = next((r for r in study.repeats if r[0] == entry.seed and r[1] in (None, fold)), None)
        if repeat is None or study.experiment != entry.experiment:
            continue
        try:
            for group, title in zip(study.groups, group_names(study), strict=True):
                if same_run(group_config(study, group, repeat), entry):
                    return f"{title}, seed {entry.seed}" + (f", fold {fold}" if study.folds else "")
        except UserError:  # the study is for another version
            continue
    return ""


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
