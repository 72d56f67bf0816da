"""Experiments on the user's own data: every imported set by its name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from acenode.data.folder import data_dir, is_file
from acenode.data.importing.store import FOLDER, ImportedSets
from acenode.data.named_set import NamedSet, check_name
from acenode.errors import UserError
from acenode.experiments.base import Experiment
from acenode.experiments.named import named_spec
from acenode.files import Stamp, stamp

YOUR_DATA = "your data"  # what texts call an imported set
WORDS = {"forecast": "forecast what follows the first {given:g} {unit}", "fill": "fill in observations that were left "
         "out", "classify": "tell the classes of series apart"}
STEPS, MOST_EPOCHS, UPDATES = 24, 100, 1500  # of the ODE; epochs, and updates of the parameters that are aimed at


def imported_names(root: Path | None = None) -> list[str]:
    try:
        return ImportedSets(root or data_dir()).names()
    except (OSError, UserError):
        return []


def imported_experiment(name: str, root: Path | None = None) -> Experiment | None:
    """Return the experiment of an imported set, or None if there is none of that name.

    Raises:
        UserError: the set's files are damaged.
    """
    try:
        folder = (root or data_dir()) / FOLDER / check_name(name)
    except UserError:  # no name of a set, or no data folder
        return None
    if not is_file(folder / "about.json"):
        return None
    return _experiment(folder, stamp(folder / "about.json"), stamp(folder / "set.npz"))


@lru_cache(maxsize=16)
def _experiment(folder: Path, about: Stamp | None, arrays: Stamp | None) -> Experiment:
    """Return the experiment of a set, read once until one of its files changes."""
    source, name = NamedSet.load(folder), folder.name

    def load(root: Path | None) -> NamedSet:
        return source if root is None else NamedSet.load(root / FOLDER / name)

    words = WORDS[source.task].format(given=source.given, unit=source.time_unit)
    return named_spec(name, source.title or name, f"{len(source.variables)} variables: {words}",
                      source.note or f"{len(source):,} imported series", source.task, load=load,
                      values=imported_values(source), classes=source.classes, sample_title=YOUR_DATA,
                      imported=True).experiment()


def changed_set(description: Mapping[str, Any], source: NamedSet | None) -> str:
    """Say in one sentence that the imported set of a run has changed since its training; "" if not, or if unknown.

    `description` is the run's config.json, and `source` the set as it is now; None for a run on other data.
    """
    before = description.get("data_fingerprint")
    if not before or source is None or before == source.fingerprint:
        return ""
    return (f"the imported set {source.name!r} has changed since this run was trained, so its predictions may be "
            "wrong: train it again")


def imported_values(source: NamedSet) -> dict[str, Any]:
    train = len(source.parts["train"])
    batch = max(8, min(100, train // 10))
    start = source.given / source.duration if source.task == "forecast" else 0.0
    return {"batch_size": batch, "epochs": max(10, min(MOST_EPOCHS, UPDATES // max(1, train // batch))),
            "step_size": round(max(1e-3, (1 - start) / STEPS), 4), "relative_to": "mean" if source.task == "classify"
            else "last"}
