"""A direct implementation of ACE-ODE-Net, the baseline of `acenode bench image`.

Time is concatenated as a channel, f and g attend to h separately, and torchdiffeq's adjoint computes the gradient. The
parameters are copied from an `ImageModel`, so both compute the same function.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.models.image.layers import Conv3x3, ConvAttention, ConvField, TimeConv
from acenode.models.image.model import ImageModel
from acenode.node import ACENODE


class DirectField(nn.Module):
    """f or g: GroupNorm, ReLU and convolution of [h, t], repeated, and a last GroupNorm."""

    def __init__(self, source: ConvField) -> None:
        super().__init__()
        self.norms, self.convs = _copies(source)

    def forward(self, h: Tensor, t: Tensor) -> Tensor:
        for norm, conv in zip(self.norms, self.convs, strict=False):
            h = F.relu(norm(h))
            time = torch.ones_like(h[:, :1]) * t
            h = conv(torch.cat((h, time), dim=1))
        return self.norms[-1](h)


class DirectAttention(nn.Module):
    """q with `nn.Conv2d`."""

    def __init__(self, source: ConvAttention) -> None:
        super().__init__()
        self.norms, self.convs = _copies(source)

    def forward(self, h: Tensor) -> Tensor:
        for i, norm in enumerate(self.norms[:-1]):
            h = F.relu(norm(h))
            if i < len(self.convs):
                h = self.convs[i](h)
        return self.norms[-1](h)


class _DirectCoEvolving(nn.Module):
    """The vector field of (h, a) with elementwise attention."""

    def __init__(self, f: nn.Module, g: nn.Module) -> None:
        super().__init__()
        self.f, self.g = f, g

    def forward(self, t: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        h, a = state
        return self.f(h * torch.sigmoid(a), t), self.g(h * torch.sigmoid(a), t)


class DirectACE(nn.Module):
    """Stem, q, torchdiffeq's `odeint_adjoint` on (h, a), and head."""

    def __init__(self, source: ImageModel, tolerance: float) -> None:
        super().__init__()
        ode = source.ode
        assert isinstance(ode, ACENODE)
        assert isinstance(ode.f, ConvField)
        assert isinstance(ode.g, ConvField)
        assert isinstance(ode.q, ConvAttention)
        self.stem, self.head, self.tolerance = source.stem, source.head, tolerance
        self.q, self.field = DirectAttention(ode.q), _DirectCoEvolving(DirectField(ode.f), DirectField(ode.g))

    def forward(self, x: Tensor) -> Tensor:
        from torchdiffeq import odeint_adjoint

        h0 = self.stem(x)
        t = torch.tensor([0.0, 1.0], device=x.device)
        h, _ = odeint_adjoint(self.field, (h0, self.q(h0)), t, rtol=self.tolerance, atol=self.tolerance)
        return self.head(h[-1])


def _copies(source: ConvField | ConvAttention) -> tuple[nn.ModuleList, nn.ModuleList]:
    """Copy a network's norms and convolutions into torch's layers; the time weights become an input channel."""
    norms, convs = nn.ModuleList(), nn.ModuleList()
    for norm in source.norms:
        assert isinstance(norm, nn.GroupNorm)
        norms.append(nn.GroupNorm(norm.num_groups, norm.num_channels))
        norms[-1].load_state_dict(norm.state_dict())
    for conv in source.convs:
        assert isinstance(conv, TimeConv | Conv3x3)
        weight = torch.cat((conv.weight, conv.time), dim=1) if isinstance(conv, TimeConv) else conv.weight
        assert conv.bias is not None
        convs.append(nn.Conv2d(weight.shape[1], weight.shape[0], 3, padding=1))
        convs[-1].load_state_dict({"weight": weight.detach(), "bias": conv.bias.detach()})
    return norms, convs
