"""The image classifiers: one stem, one ODE layer or stack of residual blocks, one head.

encode (image → h(0)), evolve (h(0) → trajectory), read out (h(1) → logits), as the trainer composes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.attention import Correlation, Dense, Elementwise
from acenode.backend import ACCELERATED, Backend
from acenode.errors import UserError
from acenode.models.image.layers import Conv3x3, TimeConv, group_norm
from acenode.node import ACENODE, NODE, Attention, AugmentedNODE, Times, Trajectory
from acenode.ode.runge_kutta import Evaluations
from acenode.ode.solve import Solver


class Stem(nn.Sequential):
    """Conv3x3, then `halvings` times GroupNorm, ReLU and a 4×4 convolution of stride 2."""

    def __init__(self, inputs: int, channels: int, padding: int, halvings: int = 2) -> None:
        layers: list[nn.Module] = [nn.Conv2d(inputs, channels, 3, padding=padding)]
        for _ in range(halvings):
            layers += [group_norm(channels), nn.ReLU(), nn.Conv2d(channels, channels, 4, stride=2, padding=1)]
        super().__init__(*layers)

    @staticmethod
    def side(image: int, padding: int, halvings: int) -> int:
        """Height and width of the maps that come out."""
        side = image - 2 + 2 * padding
        for _ in range(halvings):
            side = (side - 2) // 2 + 1
        return side


class Head(nn.Module):
    """GroupNorm, ReLU, average over the map, Linear to the classes."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.norm, self.linear = group_norm(channels), nn.Linear(channels, classes)

    def features(self, h: Tensor) -> Tensor:
        return F.relu_(self.norm(h)).mean(dim=(-2, -1))  # (B, C)

    def forward(self, h: Tensor) -> Tensor:
        return self.linear(self.features(h))


class ConvField(nn.Module):
    """f and g of the paper's table of ODE-Net's network: layer 1 GroupNorm–ReLU, layer 2 Conv–GroupNorm–ReLU,
    layer 3 Conv–GroupNorm. With one convolution, layer 2 is left out, as in ACE's f''.
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


class ConvAttention(nn.Module):
    """q: a(0) from h(0) by convolutions, GroupNorm–ReLU–Conv … GroupNorm, without time.

    With one convolution the second is left out but not its norm, as the printed size of the MNIST model says.
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


class ResidualBlock(nn.Module):
    """x + Conv(ReLU(GN(Conv(ReLU(GN(x)))))), convolutions without bias."""

    def __init__(self, channels: int, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.norm1, self.conv1 = group_norm(channels), Conv3x3(channels, channels, bias=False, backend=backend)
        self.norm2, self.conv2 = group_norm(channels), Conv3x3(channels, channels, bias=False, backend=backend)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv2(F.relu_(self.norm2(self.conv1(F.relu_(self.norm1(x))))))


@dataclass(frozen=True)
class ImageShape:
    """What every image model of an experiment shares."""

    inputs: int  # channels of the image
    side: int  # height and width of the image
    classes: int
    channels: int  # C, width of the model
    padding: int  # of the stem's first convolution
    halvings: int = 2

    @property
    def map_side(self) -> int:
        return Stem.side(self.side, self.padding, self.halvings)


class ResidualStack(nn.Module):
    """Residual blocks as the discrete counterpart of an ODE layer: block n is a step of length 1/N, and the state
    between two steps lies on the line that joins them."""

    def __init__(self, channels: int, blocks: int = 6, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(ResidualBlock(channels, backend) for _ in range(blocks))

    def forward(self, h0: Tensor, t: Times = (0.0, 1.0), *, detach_attention: bool = False) -> Trajectory:
        states = [h0]
        for block in self.blocks:
            states.append(block(states[-1]))
        times, rows = torch.as_tensor(t, dtype=torch.float64), []
        if not bool(((times >= 0) & (times <= 1)).all()):
            raise UserError("a residual stack has states from t = 0 to t = 1 only")
        for x in (times * len(self.blocks)).tolist():
            low = min(int(x), len(self.blocks) - 1)
            rows.append(torch.lerp(states[low], states[low + 1], x - low))
        return Trajectory(times, torch.stack(rows), None, Evaluations())


class ImageModel(nn.Module):
    """stem → ODE layer (or residual stack) → head."""

    def __init__(self, shape: ImageShape, ode: nn.Module, extra: int = 0) -> None:
        super().__init__()
        self.stem = Stem(shape.inputs, shape.channels, shape.padding, shape.halvings)
        self.ode = ode
        self.head = Head(shape.channels + extra, shape.classes)

    def encode(self, x: Tensor) -> Tensor:
        # plain strides: a grey image looks channels-last too, and CPU group norms are slow, even unsafe, in that layout
        return self.stem(x.clone(memory_format=torch.contiguous_format))

    def evolve(self, h0: Tensor, t: Times = (0.0, 1.0), *, detach_attention: bool = False) -> Trajectory:
        return self.ode(h0, t, detach_attention=detach_attention)

    def read_out(self, h1: Tensor) -> Tensor:
        return self.head(h1)

    def forward(self, x: Tensor) -> Tensor:
        return self.read_out(self.evolve(self.encode(x)).h[-1])


def resnet(shape: ImageShape, backend: Backend = ACCELERATED) -> ImageModel:
    """ResNet: six residual blocks between the same stem and head."""
    return ImageModel(shape, ResidualStack(shape.channels, backend=backend))


def ode_net(shape: ImageShape, solver: Solver, backend: Backend = ACCELERATED) -> ImageModel:
    """ODE-Net, and RKNet with one rk4 step."""
    return ImageModel(shape, NODE(ConvField(shape.channels, backend=backend), solver))


def augmented_ode_net(shape: ImageShape, solver: Solver, extra: int, backend: Backend = ACCELERATED) -> ImageModel:
    """Augmented-ODE-Net: zero channels appended to h(0), seen by f and by the head."""
    f = ConvField(shape.channels + extra, backend=backend)
    return ImageModel(shape, AugmentedNODE(f, extra, dim=1, solver=solver), extra)


def ace_ode_net(shape: ImageShape, solver: Solver, backend: Backend = ACCELERATED, *, f_layers: int, q_layers: int,
                attention: Attention = "evolving", initial: str = "conv") -> ImageModel:
    """ACE-ODE-Net: elementwise attention that co-evolves with the feature map."""
    C, map_shape = shape.channels, (shape.channels, shape.map_side, shape.map_side)
    starts = {
        "conv": lambda: ConvAttention(C, q_layers, backend),
        "dense": lambda: Dense(map_shape, "elementwise"),
        "correlation": lambda: Correlation(map_shape, "elementwise", bins=16 if attention == "fixed" else 1),
    }
    g = ConvField(C, backend=backend) if attention == "evolving" else None
    q = starts[initial]() if attention != "none" else None
    f = ConvField(C, f_layers, backend=backend)
    return ImageModel(shape, ACENODE(f, g, q, attend=Elementwise(), attention=attention, solver=solver))
