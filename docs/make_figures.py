"""Draw the figures of the documentation as SVG files: python docs/make_figures.py

The trajectories are solved and the attention maps are read from recorded runs, so the pictures show what the code does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from acenode import Solver, solve

HERE = Path(__file__).parent
RECORDED = HERE.parent / "runs" / "paper"
BLUE, ORANGE, GREY, INK = "#2b62d9", "#d9822b", "#9aa5b8", "#1b2433"


class Drawing:
    """An SVG with a white background and text in one font."""

    def __init__(self, width: int, height: int) -> None:
        self.size = width, height
        self.parts: list[str] = []

    def line(self, points: Sequence[tuple[float, float]], colour: str = INK, width: float = 1.5, dash: str = "",
             arrow: bool = False) -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"'
                          f'{f" stroke-dasharray={dash!r}" if dash else ""}'
                          f'{" marker-end=" + chr(34) + "url(#arrow)" + chr(34) if arrow else ""}/>')

    def dot(self, x: float, y: float, colour: str, radius: float = 4, hollow: bool = False) -> None:
        fill = "#fff" if hollow else colour
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{fill}" stroke="{colour}" '
                          'stroke-width="1.5"/>')

    def text(self, x: float, y: float, words: str, size: int = 14, anchor: str = "middle", colour: str = INK) -> None:
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">'
                          f"{words}</text>")

    def box(self, x: float, y: float, w: float, h: float, lines: Sequence[str], colour: str = INK) -> None:
        self.parts.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="8" fill="{colour}14" '
                          f'stroke="{colour}"/>')
        for i, words in enumerate(lines):
            self.text(x + w / 2, y + h / 2 + 5 + 20 * (i - (len(lines) - 1) / 2), words)

    def heatmap(self, x: float, y: float, side: float, values: np.ndarray, low: float, high: float) -> None:
        """Draw a matrix, white at `low` and dark blue at `high`."""
        rows, columns = values.shape
        w, h = side / columns, side / rows
        for i in range(rows):
            for j in range(columns):
                v = float(np.clip((values[i, j] - low) / (high - low), 0, 1))
                colour = "#" + "".join(f"{round(255 + v * (end - 255)):02x}" for end in (0x1B, 0x3A, 0x8F))
                self.parts.append(f'<rect x="{x + j * w:.2f}" y="{y + i * h:.2f}" width="{w + 0.2:.2f}" '
                                  f'height="{h + 0.2:.2f}" fill="{colour}"/>')
        self.parts.append(f'<rect x="{x}" y="{y}" width="{side}" height="{side}" fill="none" stroke="{GREY}"/>')

    def save(self, name: str) -> None:
        w, h = self.size
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}" '
                'font-family="system-ui, sans-serif"><defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" '
                f'markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L10 5L0 10z" fill="{INK}"/></marker>'
                f'</defs><rect width="{w}" height="{h}" rx="10" fill="#fff"/>')
        (HERE / "figures" / name).write_text(head + "".join(self.parts) + "</svg>\n", encoding="utf-8")


def flow() -> None:
    """A neural ODE moves points: a spiral field carries twelve points from t = 0 to t = 1."""
    angles = torch.linspace(0, 2 * math.pi, 13)[:-1]
    start = 1.6 * torch.stack((angles.cos(), angles.sin()), -1)
    field = torch.tensor([[-1.0, -2.2], [2.2, -1.0]])
    path = solve(lambda t, y: (y[0] @ field.T,), (start,), torch.linspace(0, 1, 60), Solver("dopri5")).states[0]
    d = Drawing(520, 380)

    def at(p: torch.Tensor) -> tuple[float, float]:
        return 260 + 98 * float(p[0]), 175 - 98 * float(p[1])

    for i in range(len(angles)):
        colour = BLUE if i % 2 else ORANGE
        d.line([at(p) for p in path[:, i]], colour)
        d.dot(*at(path[0, i]), colour, hollow=True)
        d.dot(*at(path[-1, i]), colour)
    d.text(260, 368, "hollow: h(0)   filled: h(1)   lines: h(t), solved from dh/dt = f(h, t)", 13)
    d.save("flow.svg")


def crossing() -> None:
    """Trajectories cannot cross, unless there is another dimension to pass in."""
    d = Drawing(760, 300)
    t = torch.linspace(0, 1, 60)
    turn = torch.tensor([[0.0, -math.pi], [math.pi, 0.0]])
    start = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    path = solve(lambda s, y: (y[0] @ turn.T,), (start,), t, Solver("dopri5")).states[0]
    titles = {50: "one dimension: they would have to meet", 430: "one zero appended: they pass each other"}
    for left, title in titles.items():
        d.line([(left, 250), (left + 280, 250)], INK, 1, arrow=True)
        d.line([(left, 250), (left, 40)], INK, 1, arrow=True)
        d.text(left + 275, 268, "t", 13)
        d.text(left - 18, 50, "h₁", 13)
        d.text(left + 140, 25, title, 13)
    for i, colour in enumerate((BLUE, ORANGE)):
        y0, y1 = (70, 220) if i == 0 else (220, 70)
        d.line([(55, y0), (320, y1)], colour, 2, "6 5")
        d.dot(55, y0, colour, hollow=True)
        d.dot(320, y1, colour)
        d.line([(435 + 265 * float(s), 145 - 75 * float(p[0])) for s, p in zip(t, path[:, i], strict=True)], colour, 2)
        d.dot(435, 145 - 75 * float(path[0, i, 0]), colour, hollow=True)
        d.dot(700, 145 - 75 * float(path[-1, i, 0]), colour)
    d.line([(177, 135), (198, 156)], "#c62828", 3)
    d.line([(198, 135), (177, 156)], "#c62828", 3)
    d.text(572, 288, "at the crossing, h₂ is +1 for one and −1 for the other", 12, colour=GREY)
    d.save("crossing.svg")


def coevolution() -> None:
    """What reads what in an ACE-NODE."""
    d = Drawing(760, 300)
    d.box(30, 50, 90, 60, ["h(0)"], BLUE)
    d.box(30, 190, 90, 60, ["a(0)"], ORANGE)
    d.line([(75, 110), (75, 188)], arrow=True)
    d.text(92, 155, "q", 15)
    d.box(210, 110, 210, 80, ["h′ = h softmax(a)ᵀ", "or h ⊙ sigmoid(a)"])
    d.line([(120, 80), (165, 80), (208, 130)], arrow=True)
    d.line([(120, 220), (165, 220), (208, 170)], arrow=True)
    d.box(500, 50, 150, 60, ["dh/dt = f(h′, t)"], BLUE)
    d.box(500, 190, 150, 60, ["da/dt = g(h′, t)"], ORANGE)
    d.line([(420, 135), (498, 85)], arrow=True)
    d.line([(420, 165), (498, 215)], arrow=True)
    d.line([(650, 80), (725, 80)], BLUE, 2)
    d.line([(650, 220), (725, 220)], ORANGE, 2)
    d.text(700, 70, "h(1)", 14)
    d.text(700, 210, "a(1)", 14)
    d.line([(575, 50), (575, 22), (315, 22), (315, 108)], GREY, 1.5, "5 4", arrow=True)
    d.line([(575, 250), (575, 280), (315, 280), (315, 192)], GREY, 1.5, "5 4", arrow=True)
    d.text(445, 16, "h(t) and a(t) feed each other at every step of one solver call", 12, colour=GREY)
    d.save("coevolution.svg")


def algorithm() -> None:
    """The two phases of Algorithm 1 on one mini-batch."""
    d = Drawing(760, 170)
    d.box(20, 40, 150, 80, ["one mini-batch"])
    d.box(230, 40, 210, 80, ["phase 1: forward, ∇L_h", "update θ_f and θ_others"], BLUE)
    d.box(500, 40, 235, 80, ["phase 2: forward again, ∇L_a", "update θ_g"], ORANGE)
    d.line([(170, 80), (228, 80)], arrow=True)
    d.line([(440, 80), (498, 80)], arrow=True)
    d.text(335, 145, "L_h = L_task", 13)
    d.text(617, 145, "L_a = L_task + λ‖θ_g‖", 13)
    d.line([(617, 38), (617, 16), (95, 16), (95, 38)], GREY, 1.5, "5 4", arrow=True)
    d.save("algorithm.svg")


def attention() -> None:
    """softmax(a(t)) of one patient in intensive care, from a recorded ACE run on PhysioNet."""
    run = next(RECORDED.glob("physionet-ace-*"))
    arrays = np.load(sorted((run / "snapshots").glob("*.npz"))[-1])
    t, a = arrays["t"], arrays["a"][:, 0].astype(np.float64)
    weights = np.exp(a - a.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    d = Drawing(760, 270)
    high = float(np.quantile(weights, 0.995))
    for n, frame in enumerate((0, len(t) // 3, 2 * len(t) // 3, len(t) - 1)):
        d.heatmap(20 + 185 * n, 30, 165, weights[frame], 0.0, high)
        d.text(102 + 185 * n, 215, f"t = {t[frame]:.2f}", 14)
    d.text(380, 248, f"row i: how much z_i reads of each z_j; rows sum to 1; white is 0, dark blue {high:.2f}", 13)
    d.save("attention.svg")


if __name__ == "__main__":
    (HERE / "figures").mkdir(exist_ok=True)
    for draw in (flow, crossing, coevolution, algorithm, attention):
        draw()
