"""A tiny imported set and runs on it, for tests of what comes after training."""

from __future__ import annotations

from pathlib import Path

from importing_tables import labelled, long, table, wide

from acenode import experiments
from acenode.config import Config
from acenode.data.importing.build import ImportRequest, import_table
from acenode.data.importing.store import ImportedSets
from acenode.execution.execute import create, execute
from acenode.runs.store import Run, RunStore

TINY = {"epochs": 1, "batch_size": 16, "block": 2, "units": 8, "recognition": 8, "embedding": 2, "step_size": 0.25,
        "snapshots": 2, "device": "cpu"}
TABLES = {"wind": (wide(100), {"window": 12.0}), "clinic": (long(), {}), "ward": (labelled(), {}),
          "gaps": (wide(100), {"window": 12.0, "task": "fill"})}


def import_set(root: Path, name: str) -> None:
    """Import one of `TABLES` into a data folder."""
    text, request = TABLES[name]
    ImportedSets(root).write(import_table(table(text), ImportRequest(name, **request)))  # type: ignore[arg-type]


def tiny(name: str, method: str = "ace", **given: object) -> Config:
    """Return a configuration that trains in a moment."""
    return experiments.get(name).configure(method, **{**TINY, **given})


def trained(root: Path, runs: Path, name: str, method: str = "ace", **given: object) -> Run:
    """Train a run on an imported set."""
    outcome = execute(create(RunStore(runs), tiny(name, method, **given)), root)
    assert outcome.state == "finished", outcome.error
    return outcome.run
