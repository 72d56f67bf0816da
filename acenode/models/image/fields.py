"""The convolutional networks f, g and q of the image models."""

from __future__ import annotations

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from acenode.backend import ACCELERATED, Backend
from acenode.models.image.layers import Conv3x3, TimeConv, group_norm


class ConvField(nn.Module):
    """f(h, t) or g(h, t) on feature maps h (B, C, H, W), as in the paper's table of ODE-Net's network.

    Layer 1 is GroupNorm–ReLU, layer 2 Conv–GroupNorm–ReLU, layer 3 Conv–GroupNorm; every convolution also reads t. With
    one convolution, layer 2 is left out, as in ACE's f''.
    """

    def __init__(self, channels: int, convolutions: int = 2, hidden: int | None = None,
                 backend: Backend = ACCELERATED) -> None:
        super().__init__()
        widths = [channels] + [hidden or channels] * (convolutions - 1) + [channels]
        self.norms = nn.ModuleList(group_norm(c) for c in widths)
        self.convs = nn.ModuleList(TimeConv(a, b, backend) for a, b in pairwise(widths))

    def forward(self, h: Tensor, t: Tensor) -> Tensor:
        for norm, conv in zip(self.norms, self.convs, strict=False):
            h = conv(F.relu_(norm(h)), t)  # in place: the norm keeps its input, not its output
        return self.norms[-1](h)

    def time_conv_layers(self) -> tuple[list[nn.GroupNorm], list[TimeConv]]:
        """Return the norms, one more than convolutions, and the convolutions, for accelerated versions of `forward`."""
        return list(self.norms), list(self.convs)  # type: ignore[arg-type]


class ConvAttention(nn.Module):
    """q(h(0)) = a(0) by convolutions that do not read t: GroupNorm–ReLU–Conv–GroupNorm–ReLU–Conv–GroupNorm.

    With one convolution the second is left out but not its norm: this reproduces the paper's parameter count for MNIST.
    """

    def __init__(self, channels: int, convolutions: int = 2, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.norms = nn.ModuleList(group_norm(channels) for _ in range(3))
        self.convs = nn.ModuleList(Conv3x3(channels, channels, backend=backend) for _ in range(convolutions))

    def forward(self, h: Tensor, t: Tensor | float = 0.0) -> Tensor:
        for i, norm in enumerate(self.norms[:-1]):
            h = F.relu_(norm(h))
            if i < len(self.convs):
                h = self.convs[i](h)
        return self.norms[-1](h)
