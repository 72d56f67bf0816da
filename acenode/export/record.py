"""Record finished runs: write compact copies that come with the project and are read like other runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acenode.errors import UserError
from acenode.export import record_parts, record_snapshots
from acenode.files import read_json, write_atomic
from acenode.runs.store import Run

SIZE = 300_000  # bytes of a copy without its parameters, if its snapshots can be chosen so
TOTAL = 40_000_000  # bytes of all recorded runs
PARAMETERS = 300_000  # bytes: larger parameters are not copied
RESULT_SHARE = 0.25  # of the size


@dataclass(frozen=True)
class Recorded:
    """A recorded copy."""

    run: Run
    snapshots: int
    size: int  # bytes


def record(run: Run, folder: Path, *, note: str | None = None, commit: str | None = None, size: int = SIZE,
           total: int = TOTAL) -> Recorded:
    """Write a compact copy of a finished run to `folder`, in place of an earlier copy.

    Metrics of the test are exact, curves have at most 1,000 steps, and as many snapshots are kept as `size` allows.

    Args:
        run: the run.
        folder: the folder of recorded runs.
        note: what is to be known about its data; kept in config.json as `data_note`.
        commit: the commit of the code that trained it.
        size: bytes that the copy should have, without the parameters.
        total: most bytes of the whole folder.

    Raises:
        UserError: if the run is not finished, its metrics are damaged, or the folder would become larger than `total`.
    """
    if run.status()["state"] != "finished":
        raise UserError(f"{run.id} is {run.status()['state']}: only a finished run can be recorded")
    if run.recorded or run.path.resolve() == (folder / run.id).resolve():
        raise UserError(f"{run.id} is a recorded run already: record it from the original")
    target = folder / run.id
    files = _files(run, target, note, commit, size)
    used = sum(len(content) for content in files.values())
    others = folder_size(folder) - folder_size(target)
    if others + used > total:
        raise UserError(f"{run.id} would make the recorded runs {(others + used) / 1e6:.1f} MB, above the limit of "
                        f"{total / 1e6:.0f} MB: use a smaller --size, or delete copies from {folder}")
    if target.exists():
        shutil.rmtree(target)
    for name, content in files.items():
        write_atomic(target / name, content)
    return Recorded(Run(target, recorded=True), sum(name.startswith("snapshots/") for name in files), used)


def check(runs: Sequence[Run]) -> None:
    """Raise a UserError if any of the runs cannot be recorded, before the first one is."""
    for run in runs:
        state = run.status()["state"]
        if state != "finished" or run.result() is None:
            raise UserError(f"{run.id} is {state}: only a finished run can be recorded")
        if run.recorded:
            raise UserError(f"{run.id} is a recorded run already: record it from the original")
        _metrics(run)


def _metrics(run: Run) -> list[dict[str, Any]]:
    """Return all metrics of a run; raise a UserError if any are missing or damaged, which readers skip."""
    try:
        with run.open_metrics() as file:
            lines = sum(1 for line in file if line.strip())
        reason = "there are none"
    except OSError as error:
        lines, reason = 0, error.strerror or str(error)
    found = run.metrics()[0]
    if not found or len(found) < lines:
        reason = f"{lines - len(found):,} of {lines:,} lines are damaged" if lines else reason
        raise UserError(f"the metrics of {run.id} cannot be read ({reason}): restore metrics.jsonl, or train it again")
    return found


def folder_size(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _files(run: Run, target: Path, note: str | None, commit: str | None, size: int) -> dict[str, bytes]:
    """Return the contents of the copy by name."""
    found = run.result()
    if found is None:
        raise UserError(f"{run.id} has no result: only a finished run can be recorded")
    earlier = _earlier(target)
    result = record_parts.result(found, int(RESULT_SHARE * size))
    status = run.status() | {"process": {}, "result_bytes": len(result), "test": found["test"]}
    files = {
        "config.json": _json(record_parts.description(run.description(), earlier, note, commit), indent=2),
        "status.json": _json(record_parts.without_paths(status)),
        "result.json": result,
        "metrics.jsonl.gz": record_parts.metrics(_metrics(run)),
    }
    if (run.path / "log.txt").exists():
        log = (run.path / "log.txt").read_text(encoding="utf-8", errors="replace")
        files["log.txt"] = record_parts.without_paths(log).encode()
    rest = size - sum(map(len, files.values()))
    files |= {f"snapshots/{name}": content for name, content in record_snapshots.choose(run, rest).items()}
    best = run.path / "checkpoints" / "best.safetensors"
    if best.exists() and best.stat().st_size < PARAMETERS:
        files["checkpoints/best.safetensors"] = best.read_bytes()
    return files


def _earlier(target: Path) -> dict[str, Any]:
    """Return config.json of an earlier copy, or nothing."""
    try:
        value = read_json(target / "config.json")
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _json(value: Any, indent: int | None = None) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False).encode()
