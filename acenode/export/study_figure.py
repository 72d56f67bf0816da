"""The figure of a study as SVG: every seed of every group as a dot, the means, and the trivial references."""

from __future__ import annotations

import math
from html import escape

from acenode.results.study_table import StudyReport

WIDTH, LINE, PADDING = 600, 34, 24  # pixels: of the plot, of a group, around the dots
LETTER = 8.5  # pixels of a letter, at most on average
TICKS = 6  # about so many
STYLE = ("text{font:14px system-ui,sans-serif;fill:currentColor}.axis{stroke:currentColor;opacity:.35}"
         ".dot{fill:#3b7dd8;opacity:.75}.mean{stroke:#c2541b;stroke-width:3}.reference{stroke:currentColor;"
         "stroke-dasharray:5 4;opacity:.6}")


def to_svg(found: StudyReport) -> str:
    """Draw the values by group, with a vertical line for each trivial reference that is near them."""
    grid, measure = found.grid, found.grid.measure
    values = [value for row in grid.rows for value in row.values.values()]
    if not values:
        return ""
    low, high = _range(values, [reference.value for reference in found.references])
    left = 20 + LETTER * max(len(row.name) for row in grid.rows)
    bottom = LINE * len(grid.rows) + PADDING
    height = bottom + 44

    def x(value: float) -> float:
        return left + PADDING + (value - low) / (high - low) * (WIDTH - 2 * PADDING)

    parts = []
    for tick in ticks(low * measure.scale, high * measure.scale):
        at = f"{x(tick / measure.scale):.1f}"
        parts.append(f'<line class="axis" x1="{at}" x2="{at}" y1="0" y2="{bottom}"/>'
                     f'<text x="{at}" y="{bottom + 18}" text-anchor="middle">{f"{tick:.6g}".replace("-", "−")}</text>')
    for reference in found.references:
        if low <= reference.value <= high:
            parts.append(f'<line class="reference" x1="{x(reference.value):.1f}" x2="{x(reference.value):.1f}" y1="0" '
                         f'y2="{bottom}"><title>{escape(reference.name)}</title></line>')
    for i, row in enumerate(grid.rows):
        y = PADDING + LINE * i + LINE / 2
        parts.append(f'<text x="{left - 8:.0f}" y="{y + 5:.0f}" text-anchor="end">{escape(row.name)}</text>')
        parts += [f'<circle class="dot" cx="{x(value):.1f}" cy="{y:.0f}" r="6"/>' for value in row.values.values()]
        if row.mean is not None:
            parts.append(f'<line class="mean" x1="{x(row.mean):.1f}" x2="{x(row.mean):.1f}" y1="{y - 11:.0f}" '
                         f'y2="{y + 11:.0f}"/>')
    unit = f" ({measure.unit.strip()})" if measure.unit.strip() else ""
    near = [reference.name for reference in found.references if low <= reference.value <= high]
    legend = "dots: runs, lines: means" + (f", dashed: {', '.join(near)}" if near else "")
    parts.append(f'<text x="{left + WIDTH / 2:.0f}" y="{height - 6}" text-anchor="middle">'
                 f'{escape(f"Test {measure.title}{unit}; {legend}")}</text>')
    label = f"Test {measure.title} of every run by group"
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + WIDTH:.0f} {height}" role="img" '
            f'aria-label="{escape(label)}"><style>{STYLE}</style>{"".join(parts)}</svg>')


def _range(values: list[float], references: list[float]) -> tuple[float, float]:
    """Return the axis: all values, with references that are no further away than the values spread."""
    low, high = min(values), max(values)
    spread = (high - low) or abs(high) or 1.0
    near = [r for r in references if low - spread <= r <= high + spread]
    low, high = min([low, *near]), max([high, *near])
    margin = 0.06 * (high - low or abs(high) or 1.0)
    return low - margin, high + margin


def ticks(low: float, high: float) -> list[float]:
    """Return round numbers between two: multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
