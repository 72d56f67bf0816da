"""Parts of the figures of a study: the frame, axes with round numbers, and the style."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape

WIDTH, LINE, PADDING = 600, 34, 24  # pixels: of the plot, of a group, around the marks
LETTER = 8.5  # pixels of a letter, at most on average
TICKS = 6  # about so many
COLOURS = ("#2b62d9", "#d9662b", "#2a9d74", "#a24bc9", "#c9a227", "#d63864", "#4aa3c7", "#7a6f5d", "#7fb23f", "#8b7be8")
STYLE = (".study-svg text{font:14px system-ui,sans-serif;fill:currentColor}.study-svg .axis{stroke:currentColor;"
         "opacity:.35}.study-svg .dot{fill:#3b7dd8;opacity:.75}.study-svg .mean{stroke:#c2541b;stroke-width:3}"
         ".study-svg .reference{stroke:currentColor;stroke-dasharray:5 4;opacity:.6}.study-svg .interval{"
         "stroke:#3b7dd8;stroke-width:3}.study-svg .zero{stroke:currentColor;stroke-width:1.5}.study-svg .curve{"
         "fill:none;stroke-width:2.5}.study-svg .band{opacity:.18;stroke:none}")  # a page may hold other SVGs

Position = Callable[[float], float]


def svg(width: float, height: float, label: str, parts: list[str]) -> str:
    """Return a drawing with a text that says what it shows."""
    return (f'<svg xmlns="http://www.w3.org/2000/svg" class="study-svg" viewBox="0 0 {width:.0f} {height:.0f}" '
            f'role="img" aria-label="{escape(label)}"><style>{STYLE}</style>{"".join(parts)}</svg>')


def text(x: float, y: float, words: str, anchor: str = "middle") -> str:
    """Return words at a place."""
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(words)}</text>'


def line(kind: str, x: tuple[float, float], y: tuple[float, float], hint: str = "") -> str:
    """Return a straight line."""
    title = f"<title>{escape(hint)}</title>" if hint else ""
    return f'<line class="{kind}" x1="{x[0]:.1f}" x2="{x[1]:.1f}" y1="{y[0]:.1f}" y2="{y[1]:.1f}">{title}</line>'


def across(low: float, high: float, scale: float, left: float, bottom: float) -> tuple[Position, list[str]]:
    """Return where values stand on a horizontal axis, and the lines and numbers of the axis.

    Args:
        low, high: the ends.
        scale: from values to the numbers that are written.
        left, bottom: the corner of the plot.
    """
    def x(value: float) -> float:
        return left + PADDING + (value - low) / (high - low) * (WIDTH - 2 * PADDING)

    parts = []
    for tick in ticks(low * scale, high * scale):
        at = x(tick / scale)
        parts += [line("axis", (at, at), (0, bottom)), text(at, bottom + 18, number(tick))]
    return x, parts


def ticks(low: float, high: float) -> list[float]:
    """Return round numbers between two: multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def number(value: float) -> str:
    """Write a number of an axis."""
    return f"{value:.6g}".replace("-", "−")


def margins(values: list[float]) -> tuple[float, float]:
    """Return the ends of an axis on which these values stand."""
    low, high = min(values), max(values)
    margin = 0.06 * (high - low or abs(high) or 1.0)
    return low - margin, high + margin
