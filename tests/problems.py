"""ODE problems with closed-form solutions, numerical gradients, and stand-ins for engines and kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from acenode import ACENODE, Dense, Elementwise, Pairwise, Solver

TIGHT = {"rtol": 1e-10, "atol": 1e-12}


class Linear(nn.Module):
    """d(h, a)/dt = M (h, a), whose solution is a matrix exponential."""

    def __init__(self, d: int, generator: torch.Generator) -> None:
        super().__init__()
        self.M = nn.Parameter(torch.randn(2 * d, 2 * d, generator=generator, dtype=torch.float64) / d)
        self.d = d

    def forward(self, t: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        y = torch.cat(state, dim=-1) @ self.M.T
        return y[..., : self.d], y[..., self.d :]

    def exact(self, h0: Tensor, a0: Tensor, t: float) -> tuple[Tensor, Tensor]:
        y = torch.cat((h0, a0), dim=-1) @ torch.linalg.matrix_exp(self.M * t).T
        return y[..., : self.d], y[..., self.d :]


class Smooth(nn.Module):
    """A small smooth network of (h, t), for f and g."""

    def __init__(self, d: int, out: int, square: bool = False) -> None:
        super().__init__()
        self.inner, self.outer, self.square = nn.Linear(d + 1, 4), nn.Linear(4, out), square

    def forward(self, h: Tensor, t: Tensor) -> Tensor:
        time = (t * torch.ones_like(h[..., :1])).to(h)
        y = self.outer(torch.tanh(self.inner(torch.cat((h, time), dim=-1))))
        return y.unflatten(-1, (h.shape[-1],) * 2) if self.square else y


def co_evolving(kind: str, solver: Solver, d: int = 2, seed: int = 0) -> ACENODE:
    """Build a double-precision ACE layer with a learned q, so that θ_f, θ_g and θ_q all have gradients."""
    f, g = Smooth(d, d), Smooth(d, d * d if kind == "pairwise" else d, square=kind == "pairwise")
    q = Dense((d,), kind, hidden=3)
    layer = ACENODE(f, g, q, attend=Pairwise() if kind == "pairwise" else Elementwise(), solver=solver).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype) * 0.5)
    return layer


def central_difference(loss: Callable[[], Tensor], x: Tensor, eps: float = 1e-5) -> Tensor:
    """Compute ∂loss/∂x as (loss(x+ε) − loss(x−ε)) / 2ε, coordinate by coordinate."""
    gradient = torch.zeros_like(x)
    with torch.no_grad():
        flat, out = x.view(-1), gradient.view(-1)
        for i in range(flat.numel()):
            keep = flat[i].item()
            flat[i] = keep + eps
            up = loss().item()
            flat[i] = keep - eps
            down = loss().item()
            flat[i] = keep
            out[i] = (up - down) / (2 * eps)
    return gradient


@torch.no_grad()
def directional_derivative(loss: Callable[[], Tensor], p: Tensor, direction: Tensor, eps: float = 1e-5) -> float:
    """Return the directional derivative of the loss by a central difference."""
    start, values = p.clone(), []
    for sign in (1, -1):
        p.copy_(start + sign * eps * direction)
        values.append(float(loss()))
    p.copy_(start)
    return (values[0] - values[1]) / (2 * eps)


def check_gradients(loss: Callable[[], Tensor], parameters: Iterable[tuple[str, Tensor]], rel: float) -> int:
    """Compare gradients with central differences along random directions; returns the number compared."""
    loss().backward()
    generator = torch.Generator().manual_seed(3)
    compared = [(name, p, p.grad) for name, p in parameters if p.grad is not None]
    for name, p, grad in compared:
        direction = torch.randn(p.shape, generator=generator, dtype=p.dtype)
        exact = directional_derivative(loss, p, direction)
        assert float((grad * direction).sum()) == pytest.approx(exact, rel=rel, abs=1e-6), name
    return len(compared)


def relative(x: Tensor, y: Tensor) -> float:
    """Return ‖x − y‖ / ‖y‖."""
    return float(torch.linalg.vector_norm((x - y).detach()) / torch.linalg.vector_norm(y.detach()))


def hasten(layer: Any, factor: float) -> None:
    """Multiply the f and g of an image model by a factor; from about 15 on, steps are rejected."""
    with torch.no_grad():
        for field in filter(None, (getattr(layer, name, None) for name in "fg")):
            field.norms[-1].weight.mul_(factor)


class IdleEngine:
    """An engine that leaves every pass to the trainer."""

    def __init__(self) -> None:
        self.passes = self.closed = 0
        self.on_fallback: Callable[[str], None] = lambda line: None

    def run(self, *_: Any) -> None:
        self.passes += 1

    def close(self) -> None:
        self.closed += 1


class FailingKernel:
    """A kernel whose launch fails."""

    def __getitem__(self, grid: Any) -> Any:
        def launch(*given: Any, **options: Any) -> None:
            raise RuntimeError("out of resource: registers\nand more")
        return launch
