"""The vector field of named variables: how the states h_i and the attention a between them change.

    m = softmax(a) h                       what each variable attends to, (V × V)(V × k)
    dh_i/dt = f(h_i, m_i, c_i, e_i, t)     own: one f for all variables, told apart by an embedding e_i
    dh/dt = f(m, c, t)                     mixed: one f on everything, as in the paper (Eq. 3)
    da/dt = g(m, e, t) − ρ (a − a(0))      g is a bilinear form of the embedded m

c_i(t) are the variable's own observations as a function of time, for tasks in which they continue while the ODE runs.
With `own`, others act on a variable through m alone, so that softmax(a) is the coupling that the model uses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from acenode.attention import Pairwise
from acenode.ode.runge_kutta import State

SPEED = 4.0  # factor of f: a series lasts one unit of time, in which a state changes several times
WRITTEN_OUT = 400_000  # products in a sum over small matrices that is written out, at most
CONTROLS = 2  # numbers of c_i(t): the interpolated value, and how near the last and next observations are


class Embedding(nn.Module):
    """The vectors e_i that tell variables apart, (V, E)."""

    def __init__(self, variables: int, size: int) -> None:
        super().__init__()
        self.e = nn.Parameter(torch.zeros(variables, size))

    def initialise(self, generator: torch.Generator) -> None:
        self.e.data.normal_(0.0, 0.3, generator=generator)

    def forward(self, *parts: Tensor) -> Tensor:
        """Append e_i to the parts of variable i, (..., V, ·) each."""
        return torch.cat((*parts, self.e.expand(*parts[0].shape[:-1], -1)), -1)


def time_like(t: Tensor, x: Tensor) -> Tensor:
    """Return t, a number or one per sample, as a column beside x (B, ..., ·)."""
    column = t if t.dim() == 0 else t.reshape(-1, *[1] * (x.dim() - 1))
    return column.expand(*x.shape[:-1], 1)


def weighted_sums(S: Tensor, h: Tensor) -> Tensor:
    """Return S h, (..., V, V) times (..., V, k).

    On a CPU a product of many small matrices costs more than the sums written out.
    """
    if h.device.type != "cpu" or products(S, h) > WRITTEN_OUT:
        return S @ h
    return (S.unsqueeze(-1) * h.unsqueeze(-3)).sum(-2)


def products(S: Tensor, h: Tensor) -> int:
    """Count the products of numbers in S h, (..., V, V) times (..., V, k), either of which may be shared by a batch."""
    batch = torch.broadcast_shapes(S.shape[:-2], h.shape[:-2])
    return math.prod(batch) * math.prod(S.shape[-2:]) * h.shape[-1]


def layers(*sizes: int) -> nn.Sequential:
    """Return linear layers of these sizes with tanh between them."""
    modules: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        modules += [nn.Tanh()] if modules else []
        modules.append(nn.Linear(inputs, outputs))
    return nn.Sequential(*modules)


class OwnRate(nn.Module):
    """dh_i/dt = f(h_i, m_i, c_i, e_i, t), the same f for every variable. Without attention, there is no m_i."""

    def __init__(self, block: int, embedding: Embedding, units: int, controls: int, *, attends: bool) -> None:
        super().__init__()
        inputs = (1 + attends) * block + embedding.e.shape[1] + controls + 1
        self.layers, self.attends = layers(inputs, units, units, block), attends

    def forward(self, h: Tensor, m: Tensor | None, c: Tensor | None, t: Tensor, embedding: Embedding) -> Tensor:
        parts = [x for x in (h, m if self.attends else None, c, time_like(t, h)) if x is not None]
        return SPEED * self.layers(embedding(*parts))


class MixedRate(nn.Module):
    """dh/dt = f(m, c, t), one f on all variables at once; f(h, c, t) without attention."""

    def __init__(self, variables: int, block: int, units: int, controls: int) -> None:
        super().__init__()
        self.layers = layers(variables * (block + controls) + 1, units, units, variables * block)
        self.shape = (variables, block)

    def forward(self, h: Tensor, m: Tensor | None, c: Tensor | None, t: Tensor, embedding: Embedding) -> Tensor:
        parts = [x.flatten(1) for x in (h if m is None else m, c) if x is not None]
        x = torch.cat((*parts, time_like(t, parts[0])), -1)
        return SPEED * self.layers(x).unflatten(-1, self.shape)


class BilinearRate(nn.Module):
    """g: da_ij/dt = u(m_i, e_i, t) · w(m_j, e_j, t) / r, with linear u and w of r numbers."""

    def __init__(self, block: int, embedding: int, rank: int) -> None:
        super().__init__()
        self.u_and_w, self.rank = nn.Linear(block + embedding + 1, 2 * rank), rank

    def forward(self, m: Tensor, t: Tensor, embedding: Embedding) -> Tensor:
        u, w = self.u_and_w(embedding(m, time_like(t, m))).split(self.rank, -1)
        return SPEED / self.rank * weighted_sums(u, w.transpose(-1, -2))


@dataclass(frozen=True)
class Control:
    """A path c(t), (B, G, V, CONTROLS) on G equal steps of the span; linear between them."""

    values: Tensor
    span: tuple[float, float]

    def __call__(self, t: Tensor) -> Tensor:
        """Return c(t), (B, V, CONTROLS); t is a number or one per sample."""
        last = self.values.shape[1] - 1
        place = ((t - self.span[0]) / (self.span[1] - self.span[0]) * last).clamp(0, last)
        low = place.floor().clamp(max=last - 1)
        share, index = place - low, low.long()
        if t.dim() == 0:
            low_value, high_value = (self.values.index_select(1, (index + i).reshape(1)).squeeze(1) for i in (0, 1))
        else:
            rows, index = torch.arange(len(self.values), device=t.device), index.reshape(-1)
            low_value, high_value = self.values[rows, index], self.values[rows, index + 1]
            share = share.reshape(-1, 1, 1)
        return torch.lerp(low_value, high_value, share.to(low_value))

    def at(self, t: Tensor) -> Tensor:
        """Return c at common times t (T,), as (T, B, V, CONTROLS)."""
        last = self.values.shape[1] - 1
        place = ((t - self.span[0]) / (self.span[1] - self.span[0]) * last).clamp(0, last)
        low = place.floor().clamp(max=last - 1)
        by_time, index = self.values.transpose(0, 1), low.long()
        return torch.lerp(by_time[index], by_time[index + 1], (place - low).to(by_time).view(-1, 1, 1, 1))


class NamedField(nn.Module):
    """The vector field of (h, a), or of (h,) if attention does not evolve. h is (B, V, k), a is (B, V, V).

    With `q`, a(0) is computed in every evaluation, so that gradients "checkpointed" and "adjoint" find its parameters.
    """

    def __init__(self, f: nn.Module, g: nn.Module | None, embedding: Embedding, a0: Tensor | None, pull: float,
                 control: Control | None = None, *, detach_attention: bool = False, q: nn.Module | None = None) -> None:
        super().__init__()
        self.q = q
        self.f, self.g, self.embedding, self.a0, self.pull = f, g, embedding, a0, pull
        self.control, self.detach_attention = control, detach_attention

    def forward(self, t: Tensor, state: State) -> State:
        a0 = self.a0 if self.q is None else self.q()
        h, a = state[0], state[1] if len(state) > 1 else a0
        c = None if self.control is None else self.control(t)
        if a is None:
            return (self.f(h, None, c, t, self.embedding),)
        m = weighted_sums(self.weights(a.detach() if self.detach_attention else a), h)
        dh = self.f(h, m, c, t, self.embedding)
        if self.g is None:
            return (dh,)
        assert a0 is not None
        return dh, self.g(m, t, self.embedding) - self.pull * (a - a0)

    def weights(self, a: Tensor) -> Tensor:
        """Return softmax(a): row i is what variable i attends to."""
        return Pairwise.weights(a)
