"""The parts of a recorded run: its description without the machine's particulars, thinned curves, a smaller result."""

from __future__ import annotations

import gzip
import json
import re
from typing import Any

POINTS = 1000  # most steps of a curve
DIGITS = 4  # significant digits of what is only drawn
GRID_POINTS = (200, 120, 80)  # of a predicted curve of a record: the first that makes the result small enough
SMALL = 2000  # bytes: what is smaller is kept exactly, which all metrics are
NOT_DRAWN = frozenset({"steps", "rejected", "steps_a", "rejected_a", "dt_min_a", "dt_max_a"})  # of a step
MACHINES = re.compile(r"x86_64|AMD64|aarch64|arm64|ppc64le", re.IGNORECASE)
PATH = re.compile(r"(?<![\w.])(?:/[\w.+-]+){2,}/?|[A-Za-z]:\\[^\s:]+")

Record = dict[str, Any]


def description(found: Record, earlier: Record, note: str | None, commit: str | None) -> Record:
    """Return config.json without host names, paths and exact platform.

    Args:
        found: the run's config.json.
        earlier: config.json of the copy that this one replaces. Its note and version are kept unless they are given,
            and that it is not partial, which is known better after a data set was checked again.
        note: what is to be known about the data.
        commit: the commit of the code that trained the run.
    """
    before = earlier.get("environment") or {}
    environment = dict(found.get("environment") or {})
    if "platform" in environment:
        environment["platform"] = _platform(str(environment["platform"]))
    versions = dict(environment.get("versions") or {})
    if not versions.get("acenode"):
        versions["acenode"] = (before.get("versions") or {}).get("acenode") or _version()
    environment["versions"] = versions
    commit = commit or environment.get("commit") or before.get("commit")
    if commit:
        environment["commit"] = commit
    note = note or found.get("data_note") or earlier.get("data_note")
    kept = {k: v for k, v in found.items() if k != "partial" or not earlier or earlier.get("partial")}
    return without_paths({**kept, "environment": environment, **({"data_note": note} if note else {})})


def _platform(text: str) -> str:
    """Shorten a platform to the system and the kind of processor."""
    machine = MACHINES.search(text)
    return "-".join(filter(None, (text.split("-")[0], machine[0] if machine else "")))


def _version() -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("acenode")
    except PackageNotFoundError:
        return None


def without_paths(value: Any) -> Any:
    """Replace absolute paths in texts by the last part of each."""
    if isinstance(value, str):
        return PATH.sub(lambda found: "…/" + re.split(r"[\\/]", found[0].rstrip("/\\"))[-1], value)
    if isinstance(value, dict):
        return {k: without_paths(v) for k, v in value.items()}
    return [without_paths(v) for v in value] if isinstance(value, list) else value


# Curves -------------------------------------------------------------------------------------------------------------


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
            drawn = {k: rounded(v, DIGITS) for k, v in record.items() if k not in NOT_DRAWN}
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
    """Return the indices of the smallest and the largest value of a key."""
    valid = [i for i in among if _number(steps[i].get(key))]
    if not valid:
        return set()
    return {min(valid, key=lambda i: steps[i][key]), max(valid, key=lambda i: steps[i][key])}


# Result -------------------------------------------------------------------------------------------------------------


def result(found: Record, most: int) -> bytes:
    """Return result.json: metrics and all that is small exact, the rest rounded.

    If it has more than `most` bytes, predicted curves of its records get fewer points, then there are fewer records.
    """
    small = {k: v if k.startswith("test") or len(_json(v)) < SMALL else rounded(v, DIGITS) for k, v in found.items()}
    records = small.get("records")
    if not isinstance(records, list) or len(_json(small)) <= most:
        return _json(small).encode()
    for points in GRID_POINTS:
        small["records"] = [thin_record(record, points) for record in records]
        if len(_json(small)) <= most:
            break
    while len(_json(small)) > most and len(small["records"]) > 1:
        small["records"] = small["records"][:-1]
    return _json(small).encode()


def thin_record(record: Record, most: int) -> Record:
    """Return a record with fewer points in the predicted curve of each variable."""
    return {**record, "variables": [_thin_variable(v, most) for v in record.get("variables", [])]}


def _thin_variable(variable: Record, most: int) -> Record:
    grid = variable.get("grid") or []
    every = -(-len(grid) // most)
    if every <= 1:
        return variable
    kept = sorted({*range(0, len(grid), every), len(grid) - 1})
    jumps = {j for i in kept for j in (i - 1, i + 1) if 0 <= j < len(grid) and grid[j] == grid[i]}  # both sides
    kept = sorted({*kept, *jumps})
    return {k: [v[i] for i in kept] if k in ("grid", "mean", "low", "high") and v and len(v) == len(grid) else v
            for k, v in variable.items()}


def rounded(value: Any, digits: int) -> Any:
    """Round every number to so many significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {k: rounded(v, digits) for k, v in value.items()}
    return [rounded(v, digits) for v in value] if isinstance(value, list) else value


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
