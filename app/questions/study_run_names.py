"""What a run is called in the first study that asks for it: `fixed attention, seed 1`."""

from __future__ import annotations

from functools import lru_cache

from acenode.compare.groups import same_run
from acenode.compare.study_grid import group_config, group_names
from acenode.errors import UserError
from acenode.files import Stamp, stamp
from acenode.runs.entry import Entry
from acenode.runs.questions import Study, StudyStore
from acenode.runs.store import RunStore


def names(entries: list[Entry], store: RunStore) -> dict[str, str]:
    """Return the names of those runs that belong to a study, by their id."""
    studies = _studies(store, stamp(StudyStore(store).folder)) if entries else ()
    return {entry.id: name for entry in entries if (name := _name(entry, studies))}


@lru_cache(maxsize=1)
def _studies(store: RunStore, at: Stamp | None) -> tuple[Study, ...]:
    """Read the studies of a folder with this stamp, which changes when one is written or deleted."""
    return tuple(found.study for found in StudyStore(store).list() if found.study is not None)


def _name(entry: Entry, studies: tuple[Study, ...]) -> str:
    """Return the group, seed and fold of a run in the first study that has it; empty if none has it."""
    fold = entry.config.get("fold")
    for study in studies:
        if study.experiment != entry.experiment:
            continue
        repeat = next((r for r in study.repeats if r[0] == entry.seed and r[1] in (None, fold)), None)
        if repeat is None:
            continue
        try:
            for group, title in zip(study.groups, group_names(study), strict=True):
                if same_run(group_config(study, group, repeat), entry):
                    return f"{title}, seed {entry.seed}" + (f", fold {fold}" if study.folds else "")
        except UserError:  # the study is for another version
            continue
    return ""
