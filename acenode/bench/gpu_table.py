"""Format the table of `acenode bench gpu`."""

from __future__ import annotations

from typing import Any

from acenode.bench.gpu_workloads import FAMILIES

HEADS = (("1 run", 10), ("5 runs", 10), ("NFE", 7), ("samples/s", 11), ("memory", 10), ("setup", 10))
NOTES = """\
1 run: median time of one training iteration (both phases of Algorithm 1 for ace). 5 runs: {threads} runs in threads of
one process, wall time divided by all their iterations; — if not measured (--full measures all rows). NFE: evaluations
of f per forward pass. memory: peak GPU memory of torch. setup: building the model and the first iteration, with
compiling and recording not done by an earlier row. published: one iteration of the published code, measured on an H200.
Engines: reference uses torchdiffeq and plain torch; native uses our Runge–Kutta steps; graph records CUDA graphs, with
convolutions in TF32 (torch's default) or float32; auto uses our own kernels and recorded steps where they exist."""


def render(result: dict[str, Any]) -> str:
    """Format the result as text."""
    by = "" if result["kernels"] else "; kernels cannot be compiled on this machine"
    lines = [f"One iteration of training on {result['environment']['device']}{by}"]
    shown = None
    for row in result["rows"]:
        if row["family"] != shown:
            shown = row["family"]
            lines += ["", f"{shown}: {FAMILIES[shown].title}, batch {row['batch']}", _heads()]
        lines += row_lines(row)
    return "\n".join([*lines, "", NOTES.format(threads=result["threads"])])


def _heads() -> str:
    heads = "".join(f"{name:>{width}}" for name, width in HEADS)
    return f"  {'':<15}{'':<15}{heads}   {'target':<25}published"


def row_lines(row: dict[str, Any]) -> list[str]:
    """Format a row; an error stands in a line of its own."""
    name = f"  {row['method']:<15}{row['engine']:<15}"
    failed = [] if row["error"] is None else [f"{name}failed: {row['error']}"]
    if "ms" not in row:
        return failed
    cells = (_time(row["ms"]), _time(row["ms_in_threads"]),
             "—" if row["evaluations"] is None else f"{row['evaluations']:.0f}",
             f"{row['samples_per_second']:,.0f}", _memory(row["memory_megabytes"]), f"{row['ready_seconds']:.1f} s")
    text = "".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, HEADS, strict=True))
    beside = f"   {row['target'] or '':<25}{row['published'] or ''}"
    return [f"{name}{text}{beside}".rstrip(), *failed]


def _time(ms: float | None) -> str:
    if ms is None:
        return "—"
    if ms >= 999.5:
        return f"{ms / 1e3:.2f} s"
    return f"{ms:.0f} ms" if ms >= 99.5 else f"{ms:.1f} ms"


def _memory(megabytes: float | None) -> str:
    if megabytes is None:
        return "—"
    return f"{megabytes / 1e3:.2f} GB" if megabytes >= 999.5 else f"{megabytes:.0f} MB"
