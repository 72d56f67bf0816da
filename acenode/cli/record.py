"""The command `record`: keep compact copies of finished runs with the project."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from acenode.cli.common import run_store
from acenode.errors import UserError


def record(options: Namespace) -> int:
    """Write the copies and print their sizes."""
    from acenode.export import record as recording
    from acenode.runs.catalogue import Catalogue

    folder = _folder(options.to)
    if options.size < 1:
        raise UserError("--size takes a number of kilobytes, such as 300")
    store = run_store(options)
    if options.run_ids == ["all"]:
        ids = [entry.id for entry in Catalogue(store).entries() if entry.state == "finished" and not entry.recorded
               and not entry.search]
        if not ids:
            raise UserError(f"there is no finished run in {store.root}")
        options.run_ids = sorted(ids)
    runs = [store.open(name) for name in options.run_ids]
    recording.check(runs)
    for run in runs:
        copy = recording.record(run, folder, note=options.note, commit=options.commit, size=1000 * options.size)
        plural = "s" * (copy.snapshots != 1)
        print(f"{run.id}  {copy.size / 1000:.0f} KB, {copy.snapshots} snapshot{plural}", flush=True)
    total, count = recording.folder_size(folder), sum(p.is_dir() for p in folder.iterdir())
    print(f"{count} recorded run{'s' * (count != 1)} in {folder}: {total / 1e6:.1f} of {recording.TOTAL / 1e6:.0f} MB")
    return 0


def _folder(given: Path | None) -> Path:
    from acenode.runs.recorded import repository_folder

    folder = given or repository_folder()
    if folder is None:
        raise UserError("this is not a clone of the repository: choose a folder for the copies with --to DIR")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is not a folder: choose another with --to DIR")
    return folder
