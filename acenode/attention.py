"""How attention acts on h, and how the initial attention a(0) = q(h(0)) is computed.

Pairwise attention (Eq. 4 of the paper): a is d×d per sample, h'_i = Σ_j softmax_j(a_ij) h_j.
Elementwise attention (Eq. 5): a has h's shape, h'' = h ⊙ sigmoid(a).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from acenode.errors import UserError


class Pairwise:
    """Pairwise attention (Eq. 4): h' = h σ(a)ᵀ, where σ is a softmax over each row of a.

    σ(a)_ij is how much of coordinate j flows into coordinate i.

    Examples:
        Equal logits average all coordinates.

        >>> import torch
        >>> from acenode import Pairwise
        >>> h, a = torch.tensor([[1.0, 2.0, 6.0]]), torch.zeros(1, 3, 3)
        >>> Pairwise.weights(a).sum(-1)
        tensor([[1., 1., 1.]])
        >>> Pairwise()(h, a)
        tensor([[3., 3., 3.]])
    """

    name = "pairwise"

    @staticmethod
    def weights(a: Tensor) -> Tensor:
        """Return σ(a), (..., d, d); each row sums to one."""
        return torch.softmax(a, dim=-1)

    @staticmethod
    def check(h: Tensor, a: Tensor) -> None:
        """Raise a UserError unless a(0) has the shape that h(0) needs."""
        if a.shape != (*h.shape, h.shape[-1]):
            raise UserError(f"pairwise attention on h of {tuple(h.shape)} needs a(0) of {(*h.shape, h.shape[-1])}, and "
                            f"q gave {tuple(a.shape)}: change q, or use attend=Elementwise()")

    def __call__(self, h: Tensor, a: Tensor) -> Tensor:
        """Apply attention to h.

        Args:
            h: (..., d).
            a: (..., d, d), the logits.

        Returns:
            h', (..., d).
        """
        return (self.weights(a) @ h.unsqueeze(-1)).squeeze(-1)


class Elementwise:
    """Elementwise attention (Eq. 5): h'' = h ⊙ φ(a), where φ is a sigmoid.

    φ(a)_i is the share of coordinate i that passes.

    Examples:
        >>> import torch
        >>> from acenode import Elementwise
        >>> h = torch.tensor([[1.0, 2.0, 6.0]])
        >>> Elementwise()(h, torch.zeros_like(h))
        tensor([[0.5000, 1.0000, 3.0000]])
    """

    name = "elementwise"

    @staticmethod
    def weights(a: Tensor) -> Tensor:
        """Return φ(a), of a's shape; each entry is between zero and one."""
        return torch.sigmoid(a)

    @staticmethod
    def check(h: Tensor, a: Tensor) -> None:
        """Raise a UserError unless a(0) has the shape of h(0)."""
        if a.shape != h.shape:
            raise UserError(f"elementwise attention needs a(0) of h's shape {tuple(h.shape)}, and q gave "
                            f"{tuple(a.shape)}")

    def __call__(self, h: Tensor, a: Tensor) -> Tensor:
        """Apply attention to h.

        Args:
            h: (B, ...).
            a: the logits, of h's shape.

        Returns:
            h'', of h's shape.
        """
        return h * self.weights(a)


Attend = Pairwise | Elementwise


def standardise(h: Tensor, eps: float = 1e-8) -> tuple[Tensor, Tensor]:
    """Centre every coordinate of h (..., B, d) and scale it to unit norm over the batch.

    A coordinate varies if its mean square deviation exceeds eps times its mean square; the others become zero.

    Returns:
        The standardised h, (..., B, d), and which coordinates vary, (..., d).
    """
    centred = h - h.mean(dim=-2, keepdim=True)
    square = centred.square().sum(dim=-2, keepdim=True)  # (..., 1, d)
    varies = square > eps * h.square().sum(dim=-2, keepdim=True)
    z = centred * torch.where(varies, square, torch.ones_like(square)).rsqrt() * varies
    return z, varies.squeeze(-2)


def correlation(h: Tensor) -> Tensor:
    """Compute the correlation between the coordinates of h over the batch.

    A coordinate that does not vary, as in a batch of one, gets the row and column of the identity matrix.

    Args:
        h: (..., B, d).

    Returns:
        The correlation matrix, (..., d, d).

    Examples:
        >>> import torch
        >>> from acenode import correlation
        >>> correlation(torch.tensor([[1.0, -1.0, 5.0], [3.0, -3.0, 5.0]])).round()
        tensor([[ 1., -1.,  0.],
                [-1.,  1.,  0.],
                [ 0.,  0.,  1.]])
    """
    z, varies = standardise(h)
    c = z.transpose(-1, -2) @ z
    return c + torch.diag_embed((~varies).to(c))


def mean_correlation(h: Tensor) -> Tensor:
    """Compute the row means of `correlation(h)`, (..., B, d) -> (..., d), without forming the matrix."""
    z, varies = standardise(h)
    d = h.shape[-1]
    return (z * z.mean(dim=-1, keepdim=True)).sum(dim=-2) + (~varies).to(z) / d


class Correlation(nn.Module):
    """q without parameters: a(0) is the correlation of h(0) over the batch, detached.

    Pairwise attention gets the correlation matrix; elementwise attention, whose a has h's shape, gets its row means. In
    evaluation mode a running average over the training batches is used, so that a prediction never depends on the rest
    of its batch. Fixed attention correlates h(t) at every t: the average is then kept for `bins` times between 0 and 1
    and interpolated.

    Args:
        shape: the shape of one sample of h, such as (d,) or (channels, height, width).
        kind: "pairwise" or "elementwise".
        bins: the number of times for which an average is kept; 1 if only a(0) is needed.
        momentum: the least weight of a new batch in the running average. The first 1 / momentum batches are averaged
            evenly.

    Examples:
        >>> import torch
        >>> from acenode import Correlation
        >>> q = Correlation((3,))
        >>> a = q(torch.randn(8, 3))
        >>> a.shape, torch.allclose(a[:, 0, 0], torch.ones(8)), torch.equal(a[0], a[7])
        (torch.Size([8, 3, 3]), True, True)
    """

    running: Tensor  # (bins, d, d) pairwise, (bins, d) elementwise
    seen: Tensor  # (bins,), the number of batches averaged

    def __init__(self, shape: tuple[int, ...], kind: str = "pairwise", bins: int = 1, momentum: float = 0.1) -> None:
        super().__init__()
        self.shape, self.kind, self.bins, self.momentum = tuple(shape), kind, bins, momentum
        d = torch.Size(shape).numel()
        start = torch.eye(d) if kind == "pairwise" else torch.full((d,), 1.0 / d)
        self.register_buffer("running", start.expand(bins, *start.shape).clone())
        self.register_buffer("seen", torch.zeros(bins))

    def forward(self, h: Tensor, t: Tensor | float = 0.0) -> Tensor:
        """Compute the attention logits. In training mode with gradients enabled, also update the running average.

        Args:
            h: (..., B, *shape).
            t: the time between 0 and 1; in evaluation mode also one time per sample, (..., B, 1, ...).

        Returns:
            a, (..., B, d, d) if pairwise, of h's shape if elementwise. In training mode all samples have the same a.

        Raises:
            UserError: h does not have the shape that the module was made for.
        """
        if h.dim() <= len(self.shape) or h.shape[-len(self.shape):] != self.shape:
            wanted = ", ".join(["B", *map(str, self.shape)])
            raise UserError(f"Correlation needs a batch of samples, h of ({wanted}), not {tuple(h.shape)}")
        flat = h.detach().flatten(h.dim() - len(self.shape))  # (..., B, d)
        if not self.training:
            a = self._average_at(t, flat.shape[:-1]).to(h)
        else:
            c = correlation(flat) if self.kind == "pairwise" else mean_correlation(flat)
            if torch.is_grad_enabled():  # a forward pass without gradients is not a training step
                self._update_average(c, t)
            a = c.unsqueeze(-len(self.running.shape))  # over the batch axis
        if self.kind == "pairwise":
            return a.expand(*flat.shape[:-1], *a.shape[-2:])
        return a.expand_as(flat).reshape(h.shape)

    def _bin_position(self, t: Tensor | float) -> Tensor:
        """Return t as a position among the bins, between 0 and bins - 1."""
        if not isinstance(t, Tensor):  # torch.full fills it on the device, without a copy from the host
            t = torch.full((), t, dtype=self.seen.dtype, device=self.seen.device)
        return t.to(self.seen).clamp(0, 1) * (self.bins - 1)

    @torch.no_grad()
    def _update_average(self, c: Tensor, t: Tensor | float) -> None:
        value = c.reshape(-1, *self.running.shape[1:]).mean(0)
        index = self._bin_position(t).round().long().reshape(1)
        seen = self.seen[index]
        weight = (1 / (seen + 1)).clamp(min=self.momentum).view(1, *[1] * value.dim())
        self.running.index_copy_(0, index, torch.lerp(self.running[index], value[None].to(self.running), weight))
        self.seen.index_copy_(0, index, seen + 1)

    def _average_at(self, t: Tensor | float, batch: torch.Size) -> Tensor:
        """Interpolate the running average at t, or per sample if t has one time per sample, (*batch, 1, ...)."""
        position = self._bin_position(t)
        position = position.reshape(batch) if position.numel() > 1 else position.reshape(())
        low = position.floor().long()
        high = (low + 1).clamp(max=self.bins - 1)
        filled = (self.seen[torch.stack((low, high))] > 0).to(position)  # an empty bin takes its neighbour's average
        share = torch.where(filled.sum(0) == 2, position - low, filled[1])
        share = share.view(*share.shape, *[1] * (self.running.dim() - 1))
        return torch.lerp(self.running[low], self.running[high], share)


class Dense(nn.Module):
    """q as fully connected layers on each sample: Linear, Tanh, Linear.

    Args:
        shape: the shape of one sample of h; d is its number of elements.
        kind: "pairwise" for d² outputs, "elementwise" for d.
        hidden: the width of the hidden layer.

    Examples:
        >>> import torch
        >>> from acenode import Dense
        >>> Dense((3,))(torch.randn(8, 3)).shape
        torch.Size([8, 3, 3])
        >>> Dense((4, 7, 7), "elementwise")(torch.randn(8, 4, 7, 7)).shape
        torch.Size([8, 4, 7, 7])
    """

    def __init__(self, shape: tuple[int, ...], kind: str = "pairwise", hidden: int = 50) -> None:
        super().__init__()
        self.shape, self.kind = tuple(shape), kind
        d = torch.Size(shape).numel()
        self.layers = nn.Sequential(nn.Linear(d, hidden), nn.Tanh(),
                                    nn.Linear(hidden, d * d if kind == "pairwise" else d))

    def forward(self, h: Tensor, t: Tensor | float = 0.0) -> Tensor:
        """Compute the attention logits.

        Args:
            h: (..., B, *shape).
            t: ignored; fixed attention passes it to every q.

        Returns:
            a, (..., B, d, d) if pairwise, of h's shape if elementwise.

        Raises:
            UserError: the samples of h do not have the shape that the module was made for.
        """
        if h.shape[-len(self.shape):] != self.shape:
            raise UserError(f"Dense was made for samples of {self.shape}, and h is {tuple(h.shape)}: give it the shape "
                            "of one sample of h")
        flat = h.flatten(h.dim() - len(self.shape))  # (..., B, d)
        a: Tensor = self.layers(flat)
        return a.unflatten(-1, (flat.shape[-1],) * 2) if self.kind == "pairwise" else a.reshape(h.shape)
