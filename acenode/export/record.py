"""Record finished runs: write compact copies that come with the project and are read like other runs."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from acenode.compare.result_charts import kept_points
from acenode.errors import UserError
from acenode.files import read_json, write_atomic
from acenode.player import snapshots
from acenode.player.snapshots import Limits, Snapshot
from acenode.runs import recorded
from acenode.runs.recorded import Arrays
from acenode.runs.store import Run

SIZE = 300_000  # bytes of a copy without its parameters, if its snapshots can be chosen so
TOTAL = 40_000_000  # bytes of all recorded runs
PARAMETERS = 300_000  # bytes: larger parameters are not copied
RESULT_SHARE = 0.25  # of the size

POINTS = 1000  # most steps of a curve
DIGITS = 4  # significant digits of what is only drawn
GRID_POINTS = (200, 120, 80)  # of a predicted curve of a record: the first that makes the result small enough
SMALL = 2000  # bytes: what is smaller is kept exactly, which all metrics are
NOT_DRAWN = frozenset({"steps", "rejected", "steps_a", "rejected_a", "dt_min_a", "dt_max_a"})  # of a step
MACHINES = re.compile(r"x86_64|AMD64|aarch64|arm64|ppc64le", re.IGNORECASE)
PATH = re.compile(r"(?<![\w.])(?:/[\w.+-]+){2,}/?|[A-Za-z]:\\[^\s:]+")

MOST = 12  # snapshots of a run
LEVELS = 255  # the player's grey levels of a map
TOLERANCE = 1.0  # levels by which 99.9% of a map's cells may differ
WIDEST = 64  # of an axis that is written in its principal components
COARSEST, FINER, TRIES = 4.0, 0.7, 12  # the first step that is tried, in units of range / 255, and how it is reduced

Record = dict[str, Any]
Transform = tuple[bool, tuple[int, ...]]  # polynomials in time, axes in principal components


class Recorded(NamedTuple):
    run: Run
    snapshots: int
    size: int  # bytes


def record(run: Run, folder: Path, *, note: str | None = None, commit: str | None = None, size: int = SIZE,
           total: int = TOTAL) -> Recorded:
    """Write a compact copy of a finished run to `folder`, in place of an earlier copy.

    Metrics of the test are exact, curves have at most 1,000 steps, and as many snapshots are kept as `size` bytes
    allow, without the parameters. `note` says what is to be known about the data; `commit` is that of the code that
    trained the run. A UserError is raised if the run is not finished, its metrics are damaged, or the folder would have
    more than `total` bytes.
    """
    target = folder / run.id
    check([run], target)
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


def check(runs: Sequence[Run], target: Path | None = None) -> None:
    """Raise a UserError if any of the runs cannot be recorded, before the first one is."""
    for run in runs:
        state = run.status()["state"]
        if state != "finished" or run.result() is None:
            raise UserError(f"{run.id} is {state}: only a finished run can be recorded")
        if run.recorded or (target is not None and run.path.resolve() == target.resolve()):
            raise UserError(f"{run.id} is a recorded run already: record it from the original")
        _metrics(run)


def _metrics(run: Run) -> list[Record]:
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
    found = run.result() or {}
    try:
        earlier = read_json(target / "config.json")
    except (OSError, ValueError):
        earlier = {}
    made = result(found, int(RESULT_SHARE * size))
    status = run.status() | {"process": {}, "result_bytes": len(made), "test": found["test"]}
    about = description(run.description(), earlier if isinstance(earlier, dict) else {}, note, commit)
    files = {"config.json": json.dumps(about, ensure_ascii=False, indent=2, allow_nan=False).encode(),
             "status.json": json.dumps(without_paths(status), ensure_ascii=False, allow_nan=False).encode(),
             "result.json": made, "metrics.jsonl.gz": metrics(_metrics(run))}
    if (run.path / "log.txt").exists():
        log = (run.path / "log.txt").read_text(encoding="utf-8", errors="replace")
        files["log.txt"] = without_paths(log).encode()
    rest = size - sum(map(len, files.values()))
    files |= {f"snapshots/{name}": content for name, content in choose(run, rest).items()}
    best = run.path / "checkpoints" / "best.safetensors"
    if best.exists() and best.stat().st_size < PARAMETERS:
        files["checkpoints/best.safetensors"] = best.read_bytes()
    return files


# Its description without the machine's particulars ------------------------------------------------------------------

def description(found: Record, earlier: Record, note: str | None, commit: str | None) -> Record:
    """Return config.json without host names, paths and exact platform.

    Of the `earlier` copy that this one replaces, note and version are kept unless they are given, and that it is not
    partial, which is known better after a data set was checked again.
    """
    before, environment = earlier.get("environment") or {}, dict(found.get("environment") or {})
    if "platform" in environment:  # the system and the kind of processor
        text = str(environment["platform"])
        machine = MACHINES.search(text)
        environment["platform"] = "-".join(filter(None, (text.split("-")[0], machine[0] if machine else "")))
    versions = dict(environment.get("versions") or {})
    if not versions.get("acenode"):
        with suppress(metadata.PackageNotFoundError):
            versions["acenode"] = (before.get("versions") or {}).get("acenode") or metadata.version("acenode")
    environment["versions"] = versions
    if commit := commit or environment.get("commit") or before.get("commit"):
        environment["commit"] = commit
    note = note or found.get("data_note") or earlier.get("data_note")
    kept = {k: v for k, v in found.items() if k != "partial" or not earlier or earlier.get("partial")}
    return without_paths({**kept, "environment": environment, **({"data_note": note} if note else {})})


def without_paths(value: Any) -> Any:
    """Replace absolute paths in texts by the last part of each."""
    def shorten(text: Any) -> Any:
        return text if not isinstance(text, str) else PATH.sub(
            lambda found: "…/" + re.split(r"[\\/]", found[0].rstrip("/\\"))[-1], text)

    return _changed(value, shorten)


def rounded(value: Any) -> Any:
    """Round every number to the significant digits of what is only drawn."""
    return _changed(value, lambda one: float(f"{one:.{DIGITS}g}") if isinstance(one, float) else one)


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {k: _changed(v, change) for k, v in value.items()}
    return [_changed(v, change) for v in value] if isinstance(value, list) else change(value)


# Thinned curves -----------------------------------------------------------------------------------------------------

def metrics(records: list[Record], most: int = POINTS) -> bytes:
    """Return metrics.jsonl.gz: every epoch, and at most `most` steps with the training time up to each."""
    steps = [i for i, record in enumerate(records) if record.get("kind") == "step"]
    kept = {steps[i] for i in chosen_steps([records[i] for i in steps], most)}
    lines, elapsed = [], 0.0
    for i, record in enumerate(records):
        if record.get("kind") != "step":
            lines.append(record)
            continue
        elapsed += record.get("seconds") or 0.0
        if i in kept:
            drawn = {k: rounded(v) for k, v in record.items() if k not in NOT_DRAWN}
            lines.append(drawn | {"elapsed": round(elapsed, 2)})
    return gzip.compress("".join(f"{_json(line)}\n" for line in lines).encode(), 9, mtime=0)


def chosen_steps(steps: list[Record], most: int) -> list[int]:
    """Choose steps of a long run: the first and the last, the extremes of each curve, and the smallest and largest loss
    of each of many equal parts."""
    if len(steps) <= most:
        return list(range(len(steps)))
    keys = list(dict.fromkeys(k for step in steps for k, v in step.items() if _number(v) and k not in NOT_DRAWN))
    loss = "L_h" if "L_h" in keys else keys[0]
    kept = {0, len(steps) - 1}
    for key in keys:
        kept |= _extremes(steps, key, range(len(steps)))
    parts = max(1, (most - len(kept)) // 2)
    for part in range(parts):
        kept |= _extremes(steps, loss, range(part * len(steps) // parts, (part + 1) * len(steps) // parts))
    return sorted(kept)


def _extremes(steps: list[Record], key: str, among: range) -> set[int]:
    valid = [i for i in among if _number(steps[i].get(key))]
    return {choose(valid, key=lambda i: steps[i][key]) for choose in (min, max)} if valid else set()


# A smaller result ---------------------------------------------------------------------------------------------------

def result(found: Record, most: int) -> bytes:
    """Return result.json: metrics and all that is small exact, the rest rounded.

    If it has more than `most` bytes, predicted curves of its records get fewer points, then there are fewer records.
    """
    small = {k: v if k.startswith("test") or len(_json(v)) < SMALL else rounded(v) for k, v in found.items()}
    records = small.get("records")
    if isinstance(records, list):
        for points in GRID_POINTS:
            if len(_json(small)) > most:
                small["records"] = [{**record, "variables": [_thinned(v, points) for v in record.get("variables", [])]}
                                    for record in records]
        while len(_json(small)) > most and len(small["records"]) > 1:
            small["records"] = small["records"][:-1]
    return _json(small).encode()


def _thinned(variable: Record, most: int) -> Record:
    grid = variable.get("grid") or []
    kept = kept_points(grid, most)
    return {k: [v[i] for i in kept] if k in ("grid", "mean", "low", "high") and v
            and len(v) == len(grid) else v for k, v in variable.items()}


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


# Fewer and smaller snapshots, of which the player shows the same ----------------------------------------------------

class Form(NamedTuple):
    """How the arrays of a run are stored: a transform of each, and its step in units of its range / 255."""

    transforms: dict[str, Transform]
    steps: dict[str, float]


def choose(run: Run, bytes_left: int) -> dict[str, bytes]:
    """Return the files of as many snapshots as fit, evenly spaced, with the last one, by their names: at least that
    one, and none if the run has no snapshot that can be drawn."""
    found = [(path, s) for path in run.snapshots() if isinstance(s := snapshots.load(run, path), Snapshot)]
    if not found:
        return {}
    form = choose_form(found[-1][1].arrays)
    last = recorded.pack(_members(found[-1][1].arrays, form))
    for count in range(max(1, min(MOST, len(found), bytes_left // max(len(last), 1))), 0, -1):
        chosen = sorted({round(i) for i in np.linspace(0, len(found) - 1, count)}) if count > 1 else [len(found) - 1]
        files = {path.name: last if path is found[-1][0] else recorded.pack(_members(s.arrays, form))
                 for path, s in map(found.__getitem__, chosen)}
        if sum(map(len, files.values())) <= bytes_left:
            break
    return files


def choose_form(arrays: Arrays) -> Form:
    """Choose for each array the transform with the smallest result, and a step at which the player shows the same."""
    names: list[str] = [name for name in ("h", "a") if name in arrays]
    steps: dict[str, float] = dict.fromkeys(names, COARSEST)
    transforms: dict[str, Transform] = {}
    for name in names:
        x = arrays[name]
        matrices = [(False, (x.ndim - 2, x.ndim - 1))] if x.ndim == 4 and max(x.shape[-2:]) <= WIDEST else []
        # smooth in time, of few layers, matrices of correlated rows and columns, none
        tried: list[Transform] = [(True, ()), (False, (0,)), *matrices, (False, ())]
        transforms[name] = min(tried, key=lambda form, name=name: _size(  # type: ignore[misc]
            recorded.encode(name, arrays[name], _step(arrays[name], 1.0), *form)))
    for _ in range(TRIES):
        form = Form(transforms, dict(steps))
        error = difference(arrays, recorded.decode(_members(arrays, form)))
        too_coarse = [name for name in names if error[name] > TOLERANCE]
        if not too_coarse:
            break
        for name in too_coarse:
            steps[name] *= FINER
    return form


def _members(arrays: Arrays, form: Form) -> Arrays:
    """Return what the file of a snapshot holds; arrays other than h and a are stored as they are."""
    members = {name: x for name, x in arrays.items() if name not in form.steps}
    for name, step in form.steps.items():
        members |= recorded.encode(name, arrays[name], _step(arrays[name], step), *form.transforms[name])
    return members


def difference(original: Arrays, copy: Arrays) -> dict[str, float]:
    """Return for h and a by how many of the player's levels their maps differ, at the 99.9th percentile."""
    found = {"h": 0.0, "a": 0.0}
    maps = snapshots.pictures(copy, Limits())
    for key, x in snapshots.pictures(original, Limits()).items():
        name = "h" if key in ("features", "state") else "a"
        low, high = (np.percentile(x, 0.25), np.percentile(x, 99.75)) if name == "h" else (x.min(), x.max())
        level = max(float(high - low), 1e-6) / LEVELS
        found[name] = max(found[name], float(np.percentile(np.abs(maps[key] - x), 99.9)) / level)
    return found


def _step(x: np.ndarray, step: float) -> float:
    low, high = np.percentile(x.astype(np.float32), [0.25, 99.75])
    return max(float(high - low), 1e-6) / LEVELS * step


def _size(members: Arrays) -> int:
    return sum(len(zlib.compress(np.ascontiguousarray(x).tobytes(), 6)) for x in members.values())
