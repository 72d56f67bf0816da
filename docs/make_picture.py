"""README's picture from a real run: python docs/make_picture.py RUN_FOLDER docs/attention.svg"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from acenode.runs import Run

CELL, GAP, LEFT, TOP = 15, 16, 64, 40
FRAMES, DIGITS = 7, 5
RAMP = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))  # dark to light
CLASSES = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0")


def colour(x: float) -> str:
    place = min(max(x, 0.0), 0.9999) * (len(RAMP) - 1)
    low, share = int(place), place % 1
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(RAMP[low], RAMP[low + 1], strict=True))


def grey(x: float) -> str:
    return f"#{round(x * 255):02x}" + f"{round(x * 255):02x}" * 2


def cells(values: np.ndarray, x: float, y: float, size: float, paint: Callable[[float], str]) -> list[str]:
    return [f'<rect x="{x + c * size:.1f}" y="{y + r * size:.1f}" width="{size:.1f}" height="{size:.1f}" '
            f'fill="{paint(values[r, c])}"/>' for r in range(len(values)) for c in range(len(values[0]))]


def draw(run: Run) -> str:
    arrays = run.snapshot(run.snapshots()[-1])
    h, a = arrays["h"].astype(float), arrays["a"].astype(float)  # (T, N, C, H, W)
    attention = (1 / (1 + np.exp(-a))).mean(2)  # (T, N, H, W)
    frames = np.linspace(0, len(attention) - 1, FRAMES).round().astype(int)
    low, high = attention[frames, :DIGITS].min(), attention[frames, :DIGITS].max()
    side = CELL * attention.shape[-1]
    out, step = [], side + GAP
    for n in range(DIGITS):
        y = TOP + n * step
        image = 1 - arrays["image"][n, 0] / 255.0
        out += cells(image, LEFT - 52, y, side / len(image), grey)
        for k, t in enumerate(frames):
            out += cells((attention[t, n] - low) / (high - low), LEFT + 40 + k * step, y, CELL, colour)
    label = 'font-family="Helvetica, Arial, sans-serif" font-size="13" fill="#555"'
    for k, t in enumerate(frames):
        out.append(f'<text x="{LEFT + 40 + k * step + side / 2:.0f}" y="{TOP - 12}" text-anchor="middle" {label}>'
                   f'{"σ(a) at " if k == 0 else ""}t = {arrays["t"][t]:.2f}</text>')
    out.append(f'<text x="{LEFT - 52}" y="{TOP - 12}" {label}>input</text>')
    width = LEFT + 40 + FRAMES * step
    out += path_panel(h, arrays["label"], width + 20, TOP, DIGITS * step - GAP, label)
    total, height = width + 30 + DIGITS * step, TOP + DIGITS * step + 22
    out.append(f'<text x="{LEFT + 40}" y="{height - 10}" {label}>'
               f"attention from {low:.2f} (dark) to {high:.2f} (light), mean over channels</text>")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total:.0f} {height:.0f}" width="{total:.0f}">'
            f'<rect width="100%" height="100%" fill="#fff"/>{"".join(out)}</svg>\n')


def path_panel(h: np.ndarray, labels: np.ndarray, x: float, y: float, size: float, label: str) -> list[str]:
    """The probes' h(t) in the plane of the two largest principal components."""
    T, N = h.shape[:2]
    flat = h.reshape(T * N, -1)
    flat = flat - flat.mean(0)
    plane = (flat @ np.linalg.svd(flat, full_matrices=False)[2][:2].T).reshape(T, N, 2)
    low, high = plane.min((0, 1)), plane.max((0, 1))
    points = x + 8 + (size - 16) * (plane[..., 0] - low[0]) / (high - low)[0]
    heights = y + 8 + (size - 16) * (plane[..., 1] - low[1]) / (high - low)[1]
    out = [f'<rect x="{x}" y="{y}" width="{size}" height="{size}" fill="none" stroke="#ccc"/>',
           f'<text x="{x + size / 2}" y="{y - 12}" text-anchor="middle" {label}>h(t), principal components</text>']
    for n in range(N):
        line = " ".join(f"{points[t, n]:.1f},{heights[t, n]:.1f}" for t in range(T))
        shade = CLASSES[int(labels[n])]
        out += [f'<polyline points="{line}" fill="none" stroke="{shade}" stroke-width="2"/>',
                f'<circle cx="{points[0, n]:.1f}" cy="{heights[0, n]:.1f}" r="3" fill="#fff" stroke="{shade}"/>',
                f'<text x="{points[-1, n]:.1f}" y="{heights[-1, n] + 4:.1f}" font-family="Helvetica, Arial" '
                f'font-size="14" font-weight="bold" text-anchor="middle" fill="{shade}">{int(labels[n])}</text>']
    return out


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(draw(Run(Path(sys.argv[1]))))
