"""Catalogue entries that answer a study, without run folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from catalogue_entries import entry

from acenode.compare.study_grid import group_config
from acenode.runs.entry import Entry
from acenode.runs.questions import Study, StudyGroup


def attention_study(*, baseline: int = 2, **given: Any) -> Study:
    """Return a study of attention on the digits, with three seeds unless others are given."""
    groups = tuple(StudyGroup("ace", {"attention": kind}) for kind in ("evolving", "fixed", "none"))
    return Study(**{"name": "attention", "experiment": "mnist", "groups": groups, "held": {"initial": "conv"},
                    "baseline": baseline, **given})


def finished(study: Study, values: Mapping[int, Sequence[float | None]], **given: Any) -> list[Entry]:
    """Return finished runs with these test values: for every group, one value a repeat; None where a run is missing."""
    return [one(study, group, repeat, value, **given) for group, own in values.items()
            for repeat, value in enumerate(own) if value is not None]


def one(study: Study, group: int, repeat: int, value: float | None, **given: Any) -> Entry:
    """Return a run of one cell; `given` replaces fields of the entry."""
    config = group_config(study, study.groups[group], study.repeats[repeat])
    stored = {k: v for k, v in config.to_dict().items() if k != "format"}
    metric = study.metric or {"mnist": "accuracy", "physionet": "auc"}.get(study.experiment, "mse")
    name = f"run-{group}-{repeat}"
    found = replace(entry(), method=config.method, experiment=study.experiment, data=study.data, id=name,
                    path=Path(name), config=stored, seed=config.seed, value=value, metric=metric,
                    test={} if value is None else {metric: value})
    return replace(found, **given)
