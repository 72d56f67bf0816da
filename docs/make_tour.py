"""Train the small neural ODEs of the app's tour and write what they do: python docs/make_tour.py

Three are trained with fixed seeds: one in the plane that separates two half moons, one on a line that is asked to swap
two points, and the same with one more dimension. The file has the trajectories, and the parameters so that a test can
solve them again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from acenode import NODE, AugmentedNODE, Solver

TARGET = Path(__file__).parents[1] / "app" / "assets" / "tour_flows.json"
FRAMES = torch.linspace(0, 1, 41)
SWAP = torch.tensor([[-1.0], [1.0]])  # h(0) of the two points; each has to arrive where the other started
GRID = 13  # arrows in a row of the vector field
TRAINING = Solver("rk4", step_size=0.1)
DRAWING = Solver("dopri5", rtol=1e-6, atol=1e-8)


class Field(nn.Module):
    """f(h, t): a hidden layer of `width` units with tanh. Without `timed`, f is the same at all t."""

    def __init__(self, d: int, width: int, timed: bool = True) -> None:
        super().__init__()
        self.timed = timed
        self.layers = nn.Sequential(nn.Linear(d + timed, width), nn.Tanh(), nn.Linear(width, d))

    def forward(self, h: Tensor, t: Tensor) -> Tensor:
        rate: Tensor = self.layers(torch.cat((h, t.expand(*h.shape[:-1], 1).to(h)), -1) if self.timed else h)
        return rate


def swap_layer(augmented: bool) -> NODE | AugmentedNODE:
    """Return an untrained layer for the two points, on the line or with one zero appended."""
    f = Field(2 if augmented else 1, 16)
    return AugmentedNODE(f, 1, solver=TRAINING) if augmented else NODE(f, TRAINING)


def moons_layer() -> NODE:
    """Return an untrained layer for points of the plane."""
    return NODE(Field(2, 24, timed=False), TRAINING)


def train(modules: list[nn.Module], loss_of: Callable[[], Tensor], steps: int) -> float:
    """Minimise a loss with Adam and return its last value."""
    optimiser = torch.optim.Adam([p for m in modules for p in m.parameters()], 0.02)
    loss = torch.zeros(())
    for _ in range(steps):
        optimiser.zero_grad()
        loss = loss_of()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return float(loss.detach())


@torch.no_grad()
def solve(layer: NODE | AugmentedNODE, h0: Tensor) -> Tensor:
    """Return h at all frames, (T, B, d), with small errors."""
    layer.solver = DRAWING
    return layer.eval()(h0, FRAMES).h


def swap(augmented: bool) -> dict[str, Any]:
    """Train a layer to swap the two points. Only the first coordinate counts; an appended one is free."""
    torch.manual_seed(0)
    layer = swap_layer(augmented)
    train([layer], lambda: (layer(SWAP).h[-1][:, :1] + SWAP).square().mean(), 600)
    h = solve(layer, SWAP)
    error = float((h[-1][:, :1] + SWAP).square().mean())
    return {"h": rounded(h), "error": round(error, 4), "parameters": parameters(layer)}


def moons() -> dict[str, Any]:
    """Train a layer and a straight boundary to separate two half moons."""
    from sklearn.datasets import make_moons  # a test imports this file, and scikit-learn loads slowly

    torch.manual_seed(0)
    x, label = make_moons(120, noise=0.06, random_state=0)
    points = torch.tensor((x - x.mean(0)) * 1.2, dtype=torch.float32)
    target = torch.tensor(label, dtype=torch.float32)
    layer, boundary = moons_layer(), nn.Linear(2, 1)

    def loss() -> Tensor:
        h = layer(points, [0.0, 0.5, 1.0]).h
        speed = layer.f(h, torch.tensor(0.0)).square().mean()  # a penalty on it keeps the points in view
        return F.binary_cross_entropy_with_logits(boundary(h[-1]).squeeze(-1), target) + 0.05 * speed

    train([layer, boundary], loss, 600)
    h = solve(layer, points)
    right = float(((boundary(h[-1]).squeeze(-1) > 0) == (target > 0.5)).float().mean())
    low, high = h.amin((0, 1)), h.amax((0, 1))
    places = torch.cartesian_prod(*(torch.linspace(float(a), float(b), GRID) for a, b in zip(low, high, strict=True)))
    with torch.no_grad():
        rates = layer.f(places, torch.tensor(0.0))
    return {"h": rounded(h), "label": label.tolist(), "right": right, "parameters": parameters(layer),
            "boundary": rounded(torch.cat((boundary.weight.detach()[0], boundary.bias.detach()))),
            "places": rounded(places), "rates": rounded(rates)}


def parameters(layer: nn.Module) -> dict[str, Any]:
    """Return the parameters as lists, exactly."""
    return {name: p.detach().double().tolist() for name, p in layer.named_parameters()}


def rounded(x: Tensor) -> Any:
    """Return four decimals of a tensor as lists."""
    return np.round(x.double().numpy(), 4).tolist()


if __name__ == "__main__":
    found = {"t": rounded(FRAMES), "moons": moons(), "line": swap(False), "augmented": swap(True)}
    TARGET.write_text(json.dumps(found, separators=(",", ":")) + "\n", encoding="utf-8")
    for name in ("line", "augmented"):
        print(f"{name}: mean squared error {found[name]['error']:.4f}")
    print(f"moons: {found['moons']['right']:.1%} on the right side; {TARGET.stat().st_size / 1000:.0f} kB")
