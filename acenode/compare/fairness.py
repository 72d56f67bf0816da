"""Check that the groups of a study differ in nothing but what varies, and offer an equal study where there is one.

Two things make a comparison unfair without being asked for: a setting whose default follows another (the attention of
an image model starts differently if it is fixed), and a number of parameters that changes by more than 5% with what
varies. A setting that has a meaning in one of two groups only is no difference: a model without attention has no
schedule for it.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import acenode
from acenode import experiments
from acenode.compare.groups import IGNORED, NOT_SETTINGS, data_title
from acenode.compare.study_grid import StudyGrid, check_study, group_config, make_grid
from acenode.config import KEYS, SETTINGS, Config
from acenode.errors import UserError
from acenode.experiments import EXPERIMENTS
from acenode.files import read_json, user_cache, write_json
from acenode.runs.questions import MAX_NAME, Study, StudyGroup

SOURCES = ("models", "experiments", "config", "attention.py", "node.py")  # that models are built from
NEAR = 0.05  # relative difference of two parameter counts that are called about equal
MAX_CHANGES = 10  # that make a study equal
WIDTHS = ("f_layers", "units", "f_maps", "features", "augment")  # that can make up for parameters, the first that do

Equal = tuple[str, Study | None]  # what is changed, and the changed study; an empty text and None if nothing helps


@dataclass(frozen=True)
class FairnessNote:
    """In what two groups differ besides what varies, and the study without that difference, if there is one."""

    text: str
    key: str  # the setting; `params` for the number of parameters, `data` for the data
    change: str = ""  # that makes the groups equal in it
    equal: Study | None = None  # the changed study


def fairness(grid: StudyGrid) -> list[FairnessNote]:
    """Return what differs between the groups and the baseline besides what varies; empty if the study is fair."""
    return [*_setting_notes(grid), *_parameter_notes(grid, parameter_counts(grid)), *_data_notes(grid)]


def equal_study(grid: StudyGrid) -> Study | None:
    """Return the study with everything made equal that can be; None if nothing can be offered."""
    study: Study | None = None
    for _ in range(MAX_CHANGES):
        changed = next((note.equal for note in fairness(grid) if note.equal), None)
        if changed is None:
            break
        study, grid = changed, make_grid(changed, ())
    return study


def parameter_counts(grid: StudyGrid) -> list[int]:
    """Return the number of parameters of each group: from its runs, else counted."""
    return [next((e.params for e in row.entries if e.params), 0) or count(row.config) for row in grid.rows]


def _setting_notes(grid: StudyGrid) -> Iterator[FairnessNote]:
    """Name the settings that apply to several groups, were not asked to vary, and have different values."""
    for key in KEYS:
        by_value: dict[str, list[str]] = {}
        for row in grid.rows:
            if row.config.get(key) is not None:
                by_value.setdefault(str(row.config.get(key)), []).append(row.name)
        if len(by_value) > 1 and key not in grid.study.varied | IGNORED | {"method"}:
            listed = "; ".join(f"{key}={value} in {', '.join(own)}" for value, own in by_value.items())
            yield FairnessNote(f"{key} differs too: {listed}", key, *_held_equal(grid, key))


def _held_equal(grid: StudyGrid, key: str) -> Equal:
    """Hold one value of a setting in all groups: the baseline's if all groups can have it, else another's."""
    if key not in SETTINGS:
        return "", None
    study, configs = grid.study, [grid.baseline.config, *(row.config for row in grid.rows)]
    for value in dict.fromkeys(config.get(key) for config in configs if config.get(key) is not None):
        try:
            changed = check_study(_renamed(study, held={**study.held, key: value}))
            for group in changed.groups:
                count(group_config(changed, group))  # building finds values that do not fit together
        except UserError:
            continue
        return f"hold {key}={value} in all groups", changed
    return "", None


def _parameter_notes(grid: StudyGrid, counts: Sequence[int]) -> Iterator[FairnessNote]:
    target = counts[grid.study.baseline]
    if "size" in grid.study.varied:  # the number of parameters is what varies
        return
    for i, row in enumerate(grid.rows):
        if abs(counts[i] - target) > NEAR * max(counts[i], target):
            text = f"the number of parameters differs: {counts[i]:,} in {row.name}, {target:,} in {grid.baseline.name}"
            yield FairnessNote(text, "params", *_equal_parameters(grid, i, counts))


def _equal_parameters(grid: StudyGrid, i: int, counts: Sequence[int]) -> Equal:
    """Give the smaller of a group and the baseline about as many parameters as the other has, by one setting of its
    network."""
    study = grid.study
    small, large = sorted((i, study.baseline), key=lambda at: counts[at])
    group, target = study.groups[small], counts[large]
    uses = experiments.get(study.experiment).method(group.method).uses
    for key in WIDTHS:
        if key not in uses or key in group.settings:
            continue
        value, number = _nearest_size(study, group, key, target)
        if abs(number - target) > NEAR * target:
            continue
        groups = tuple(_with(group, key, value) if at == small else other for at, other in enumerate(study.groups))
        try:
            equal = check_study(_renamed(_without(study, key), groups=groups))
        except UserError:
            break
        return f"{key}={value} in {grid.rows[small].name}: {number:,} parameters", equal
    return "", None


def _nearest_size(study: Study, group: StudyGroup, key: str, target: int) -> tuple[int, int]:
    """Return the value of a setting with which a group has most nearly `target` parameters, which grow with it; and
    their number."""
    def size(value: int) -> int:
        try:
            return count(group_config(_without(study, key), _with(group, key, value)))
        except UserError:
            return 0

    first = int(SETTINGS[key].low or 1)
    value = first + bisect_left(range(first, int(SETTINGS[key].high or first)), target, key=size)
    value = min((v for v in (value - 1, value) if v >= first), key=lambda v: abs(size(v) - target))
    return value, size(value)


def _with(group: StudyGroup, key: str, value: Any) -> StudyGroup:
    return StudyGroup(group.method, {**group.settings, key: value})


def _without(study: Study, key: str) -> Study:
    return replace(study, held={k: v for k, v in study.held.items() if k != key})


def _data_notes(grid: StudyGrid) -> Iterator[FairnessNote]:
    titles = {row.name: {data_title(e) for e in row.entries if e.test} for row in grid.rows}
    if len(set().union(*titles.values())) > 1:
        partial = [name for name, own in titles.items() if any("partial" in title for title in own)]
        yield FairnessNote(f"some runs are trained on a part of the data: {', '.join(partial)}", "data")


def _renamed(study: Study, **changed: Any) -> Study:
    name = study.name if study.name.endswith("-equal") else f"{study.name[:MAX_NAME - 6]}-equal"
    return replace(study, name=name, **changed)


# Counts of parameters ----------------------------------------------------------------------------------------------
# To count them builds a model, which loads torch, so counts are kept in the user's cache folder until a file that
# models are built from changes.


@lru_cache(maxsize=512)
def count(config: Config) -> int:
    """Return the number of parameters of the model that a configuration describes."""
    experiment = experiments.get(config.experiment)
    if EXPERIMENTS.get(config.experiment) is not experiment:  # of somebody else, or read from imported data
        return experiment.count(config)
    known = _known_counts()
    key = json.dumps({k: v for k, v in config.to_dict().items() if k not in NOT_SETTINGS}, sort_keys=True)
    if key not in known:
        known[key] = experiment.count(config)
        with suppress(OSError, RuntimeError):  # it cannot be written: count again next time
            write_json(_counts_file(), {"code": _code(), "counts": known})
    return known[key]


def _counts_file() -> Path:
    return user_cache() / "acenode" / "parameter-counts.json"


@cache
def _known_counts() -> dict[str, int]:
    with suppress(OSError, RuntimeError, ValueError, TypeError, KeyError, AttributeError):
        stored = read_json(_counts_file())
        counts = stored["counts"].items()
        if stored["code"] == _code() and all(isinstance(n, int) and n >= 0 for _, n in counts):
            return dict(counts)
    return {}


@cache
def _code() -> int:
    """Return a checksum of names, sizes and times of the files that models are built from."""
    root, stamps = Path(acenode.__file__).parent, []
    for source in SOURCES:
        for path in sorted((root / source).rglob("*.py")) if (root / source).is_dir() else [root / source]:
            found = path.stat()
            stamps.append((str(path), found.st_size, found.st_mtime_ns))
    return zlib.crc32(repr(stamps).encode())
