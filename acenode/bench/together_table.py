"""Format the table of `acenode bench together`."""

from __future__ import annotations

from typing import Any

TITLES = {"one": "one after another", "threads": "threads", "processes": "processes", "mps": "processes with MPS"}
HEADS = (("total", 10), ("of one by one", 15), ("share of each", 17), ("lowest/highest", 16), ("start", 9),
         ("memory", 10), ("GPU memory", 12))
NOTES = """\
total: time until all runs have ended, with validation, tests and snapshots. share: training time of a run alone divided
by its training time in this way; lowest/highest compares the least and the most served run. start: longest time until a
run that did not have to wait in the queue began. memory: highest sum over this process and its workers."""


def render(result: dict[str, Any]) -> str:
    """Format the result as text."""
    environment = result["environment"]
    service = "; CUDA's multi-process service is running, so processes use it" if result["mps_running"] else ""
    lines = [f"{result['each']} × ({result['train']}), data={result['data']}, {result['at_a_time']} at a time, "
             f"{environment['threads']} torch threads, on {environment['device']}{service}", "",
             f"  {'':<20}" + "".join(f"{name:>{width}}" for name, width in HEADS)]
    alone = next((arm for arm in result["arms"] if arm["way"] == "one"), None)
    for arm in sorted(result["arms"], key=lambda arm: list(TITLES).index(arm["way"])):
        cells = _cells(arm, alone, result["at_a_time"])
        lines.append(f"  {TITLES[arm['way']]:<20}"
                     + "".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, HEADS, strict=True)))
    return "\n".join([*lines, "", NOTES])


def shares(arm: dict[str, Any], alone: dict[str, Any]) -> list[float]:
    """Return each run's training time alone divided by its training time in this arm."""
    return [a["training"] / b["training"] for a, b in zip(alone["runs"], arm["runs"], strict=True)]


def _cells(arm: dict[str, Any], alone: dict[str, Any] | None, at_a_time: int) -> list[str]:
    compared = ["—", "—", "—"]
    if alone is not None:
        share = shares(arm, alone)
        compared = [f"{arm['seconds'] / alone['seconds']:.0%}", f"{min(share):.2f} to {max(share):.2f}",
                    f"{min(share) / max(share):.2f}"]
    began = sorted(run["began"] for run in arm["runs"])[:1 if arm["way"] == "one" else at_a_time]
    return [f"{arm['seconds']:.1f} s", *compared, f"{began[-1]:.1f} s", _memory(arm["memory"]),
            _memory(arm["gpu_memory"])]


def _memory(size: int | None) -> str:
    if size is None:
        return "—"
    return f"{size / 1e9:.2f} GB" if size >= 999.5e6 else f"{size / 1e6:.0f} MB"
