"""How attention acts on h, and how a(0) = q(h(0)) is made.

Pairwise (Eq. 4 of the paper): a is d×d per sample, h'_i = Σ_j softmax_j(a_ij) h_j.
Elementwise (Eq. 5): a has h's shape, h'' = h ⊙ sigmoid(a).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from acenode.errors import UserError


class Pairwise:
    """Rows of σ(a) say how much of every coordinate j flows into coordinate i: h' = h σ(a)ᵀ."""

    name = "pairwise"

    @staticmethod
    def weights(a: Tensor) -> Tensor:
        return torch.softmax(a, dim=-1)  # (..., d, d), rows sum to one

    @staticmethod
    def check(h: Tensor, a: Tensor) -> None:
        """Whether a(0) fits h(0)."""
        if a.shape != (*h.shape, h.shape[-1]):
            raise UserError(f"pairwise attention on h of {tuple(h.shape)} needs a(0) of {(*h.shape, h.shape[-1])}, and "
                            f"q gave {tuple(a.shape)}: change q, or use attend=Elementwise()")

    def __call__(self, h: Tensor, a: Tensor) -> Tensor:
        return (self.weights(a) @ h.unsqueeze(-1)).squeeze(-1)  # (..., d)


class Elementwise:
    """φ(a) says how much of each coordinate passes: h'' = h ⊙ φ(a)."""

    name = "elementwise"

    @staticmethod
    def weights(a: Tensor) -> Tensor:
        return torch.sigmoid(a)

    @staticmethod
    def check(h: Tensor, a: Tensor) -> None:
        """Whether a(0) fits h(0)."""
        if a.shape != h.shape:
            raise UserError(f"elementwise attention needs a(0) of h's shape {tuple(h.shape)}, and q gave "
                            f"{tuple(a.shape)}")

    def __call__(self, h: Tensor, a: Tensor) -> Tensor:
        return h * self.weights(a)


Attend = Pairwise | Elementwise


def standardise(h: Tensor, eps: float = 1e-8) -> tuple[Tensor, Tensor]:
    """h (..., B, d) with every coordinate centred and of unit norm over the batch, and which of them vary at all.

    A coordinate varies if its mean square deviation exceeds eps times its mean square.
    """
    centred = h - h.mean(dim=-2, keepdim=True)
    square = centred.square().sum(dim=-2, keepdim=True)  # (..., 1, d)
    varies = square > eps * h.square().sum(dim=-2, keepdim=True)
    z = centred * torch.where(varies, square, torch.ones_like(square)).rsqrt() * varies
    return z, varies.squeeze(-2)


def correlation(h: Tensor) -> Tensor:
    """Correlation of the coordinates of h over the batch axis: (..., B, d) -> (..., d, d).

    A coordinate without variance, and so any batch of one, has the identity's row and column.
    """
    z, varies = standardise(h)
    c = z.transpose(-1, -2) @ z
    return c + torch.diag_embed((~varies).to(c))


def mean_correlation(h: Tensor) -> Tensor:
    """The row means of the correlation matrix, (..., B, d) -> (..., d), without forming the matrix."""
    z, varies = standardise(h)
    d = h.shape[-1]
    return (z * z.mean(dim=-1, keepdim=True)).sum(dim=-2) + (~varies).to(z) / d


class Correlation(nn.Module):
    """a = the correlation of h over its batch, detached; nothing is learned.

    Pairwise attention gets the matrix; elementwise attention, whose a has h's shape, its row means. In evaluation
    a running average of the training batches' values is used, so that a prediction never depends on what else is
    in its batch. Where h(t) is correlated at every t (fixed attention) the average is kept for `bins` times
    between 0 and 1 and interpolated.
    """

    running: Tensor
    seen: Tensor

    def __init__(self, shape: tuple[int, ...], kind: str = "pairwise", bins: int = 1, momentum: float = 0.1) -> None:
        super().__init__()
        self.shape, self.kind, self.bins, self.momentum = tuple(shape), kind, bins, momentum
        d = torch.Size(shape).numel()
        start = torch.eye(d) if kind == "pairwise" else torch.full((d,), 1.0 / d)
        self.register_buffer("running", start.expand(bins, *start.shape).clone())
        self.register_buffer("seen", torch.zeros(bins))

    def forward(self, h: Tensor, t: Tensor | float = 0.0) -> Tensor:
        if h.dim() <= len(self.shape) or h.shape[-len(self.shape):] != self.shape:
            raise UserError(f"Correlation was made for a batch of {self.shape}, not for {tuple(h.shape)}")
        flat = h.detach().flatten(h.dim() - len(self.shape))  # (..., B, d)
        if not self.training:
            a = self._recall(t, flat.shape[:-1]).to(h)
        else:
            c = correlation(flat) if self.kind == "pairwise" else mean_correlation(flat)
            if torch.is_grad_enabled():  # looking on does not change what is remembered
                self._remember(c, t)
            a = c.unsqueeze(-len(self.running.shape))  # over the batch axis
        if self.kind == "pairwise":
            return a.expand(*flat.shape[:-1], *a.shape[-2:])
        return a.expand_as(flat).reshape(h.shape)

    def _position(self, t: Tensor | float) -> Tensor:
        if not isinstance(t, Tensor):  # filled in where it is, not sent there
            t = torch.full((), t, dtype=self.seen.dtype, device=self.seen.device)
        return t.to(self.seen).clamp(0, 1) * (self.bins - 1)

    @torch.no_grad()
    def _remember(self, c: Tensor, t: Tensor | float) -> None:
        value = c.reshape(-1, *self.running.shape[1:]).mean(0)
        here = self._position(t).round().long().reshape(1)
        seen = self.seen[here]
        weight = (1 / (seen + 1)).clamp(min=self.momentum).view(1, *[1] * value.dim())  # a plain mean at first
        self.running.index_copy_(0, here, torch.lerp(self.running[here], value[None].to(self.running), weight))
        self.seen.index_copy_(0, here, seen + 1)

    def _recall(self, t: Tensor | float, batch: torch.Size) -> Tensor:
        """The average at t, or for one time a sample, (*batch, 1, …), each sample's."""
        at = self._position(t)
        at = at.reshape(batch) if at.numel() > 1 else at.reshape(())
        low = at.floor().long()
        high = (low + 1).clamp(max=self.bins - 1)
        known = (self.seen[torch.stack((low, high))] > 0).to(at)  # a bin never met lends its neighbour's value
        share = torch.where(known.sum(0) == 2, at - low, known[1])
        share = share.view(*share.shape, *[1] * (self.running.dim() - 1))
        return torch.lerp(self.running[low], self.running[high], share)


class Dense(nn.Module):
    """a(0) from fully connected layers on h(0), per sample: Linear–Tanh–Linear to d² or to h's own size."""

    def __init__(self, shape: tuple[int, ...], kind: str = "pairwise", hidden: int = 50) -> None:
        super().__init__()
        self.shape, self.kind = tuple(shape), kind
        d = torch.Size(shape).numel()
        self.layers = nn.Sequential(nn.Linear(d, hidden), nn.Tanh(),
                                    nn.Linear(hidden, d * d if kind == "pairwise" else d))

    def forward(self, h: Tensor, t: Tensor | float = 0.0) -> Tensor:
        flat = h.flatten(h.dim() - len(self.shape))
        a: Tensor = self.layers(flat)
        return a.unflatten(-1, (flat.shape[-1],) * 2) if self.kind == "pairwise" else a.reshape(h.shape)
