"""The main figure of a study as SVG: every seed of every group as a dot, the means, and the trivial references."""

from __future__ import annotations

from acenode.compare.study_answer import StudyReport
from acenode.export.svg_parts import LETTER, LINE, PADDING, WIDTH, across, line, margins, svg, text


def to_svg(found: StudyReport) -> str:
    """Draw the values by group, with a vertical line for each trivial reference that is near them."""
    grid, measure = found.grid, found.grid.measure
    values = [value for row in grid.rows for value in row.values.values()]
    if not values:
        return ""
    near = [reference for reference in found.references if _near(reference.value, values)]
    low, high = margins([*values, *(reference.value for reference in near)])
    left = 20 + LETTER * max(len(row.name) for row in grid.rows)
    bottom = LINE * len(grid.rows) + PADDING
    height = bottom + 44
    x, parts = across(low, high, measure.scale, left, bottom)
    parts += [line("reference", (x(r.value), x(r.value)), (0, bottom), r.name) for r in near]
    for i, row in enumerate(grid.rows):
        y = PADDING + LINE * i + LINE / 2
        parts.append(text(left - 8, y + 5, row.name, "end"))
        parts += [f'<circle class="dot" cx="{x(value):.1f}" cy="{y:.0f}" r="6"/>' for value in row.values.values()]
        if row.mean is not None:
            parts.append(line("mean", (x(row.mean), x(row.mean)), (y - 11, y + 11)))
    unit = f" ({measure.unit.strip()})" if measure.unit.strip() else ""
    legend = "dots: runs, lines: means" + (f", dashed: {', '.join(r.name for r in near)}" if near else "")
    parts.append(text(left + WIDTH / 2, height - 6, f"Test {measure.title}{unit}; {legend}"))
    return svg(left + WIDTH, height, f"Test {measure.title} of every run by group", parts)


def _near(reference: float, values: list[float]) -> bool:
    """Return True if a reference is no further away from the values than they spread."""
    low, high = min(values), max(values)
    spread = (high - low) or abs(high) or 1.0
    return low - spread <= reference <= high + spread
