"""Image classifiers: ResNet, ODE-Net, RKNet, Augmented-ODE-Net and ACE-ODE-Net.

A stem encodes an image into h(0), h evolves by 3×3 convolutions, and a head reads the class off h(1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.accelerate.dispatch import convolution, time_convolution
from acenode.attention import Correlation, Dense, Elementwise
from acenode.backend import ACCELERATED, Backend
from acenode.errors import UserError
from acenode.node import ACENODE, Attention, Times, Trajectory
from acenode.ode.runge_kutta import Evaluations
from acenode.ode.solve import Solver


def group_norm(channels: int) -> nn.GroupNorm:
    """Return a GroupNorm: its number of groups divides `channels`, at most 32, of two or more channels each."""
    most = max(1, min(32, channels // 2))
    return nn.GroupNorm(max(n for n in range(1, most + 1) if channels % n == 0), channels)


class Conv3x3(nn.Module):
    """A 3×3 convolution with padding 1."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.backend = backend
        self.weight = nn.Parameter(torch.empty(outputs, inputs, 3, 3))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None

    def initialise(self, generator: torch.Generator) -> None:
        bound = 1 / math.sqrt(self.weight[0].numel())
        for p in self.parameters():
            p.data.uniform_(-bound, bound, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        y = convolution(self.backend, x, self.weight, self.bias)
        return F.conv2d(x, self.weight, self.bias, padding=1) if y is None else y


class TimeConv(nn.Module):
    """A 3×3 convolution with padding 1 of h (B, C, H, W) and one more channel that is t everywhere.

    `time` holds the weights of that channel, `weight` those of h. t is a scalar, or one time a sample, (B, 1, 1, 1).
    """

    def __init__(self, inputs: int, outputs: int, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.backend = backend
        self.weight = nn.Parameter(torch.empty(outputs, inputs, 3, 3))
        self.time = nn.Parameter(torch.empty(outputs, 1, 3, 3))
        self.bias = nn.Parameter(torch.empty(outputs))
        self.inside: Tensor | None = None  # (9, H·W), which weights lie inside the image, for the accelerated version

    def initialise(self, generator: torch.Generator) -> None:
        bound = 1 / math.sqrt(9 * (self.weight.shape[1] + 1))  # the fan-in counts the time channel
        for p in self.parameters():
            p.data.uniform_(-bound, bound, generator=generator)

    def forward(self, h: Tensor, t: Tensor) -> Tensor:
        H, W = h.shape[-2:]
        inside = self.inside
        if inside is None or inside.shape[1] != H * W or inside.dtype != h.dtype or inside.device != h.device:
            ones = torch.ones(1, 1, H, W, dtype=h.dtype, device=h.device)  # of no batch, also inside vmap
            inside = self.inside = F.unfold(ones, 3, padding=1)[0]
        y = time_convolution(self.backend, h, t, self.weight, self.time, self.bias, inside)
        if y is not None:
            return y
        everywhere = t.expand(len(h), 1, H, W)
        return F.conv2d(torch.cat((h, everywhere), 1), torch.cat((self.weight, self.time), 1), self.bias, padding=1)


class ConvField(nn.Module):
    """f(h, t) or g(h, t) on feature maps h (B, C, H, W), as in the paper's table of ODE-Net's network.

    Layer 1 is GroupNorm–ReLU, layer 2 Conv–GroupNorm–ReLU, layer 3 Conv–GroupNorm; every convolution also reads t. With
    one convolution, layer 2 is left out, as in ACE's f''.
    """

    def __init__(self, channels: int, convolutions: int = 2, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.norms = nn.ModuleList(group_norm(channels) for _ in range(convolutions + 1))
        self.convs = nn.ModuleList(TimeConv(channels, channels, backend) for _ in range(convolutions))

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


class ResidualBlock(nn.Module):
    """x + Conv(ReLU(GroupNorm(Conv(ReLU(GroupNorm(x)))))), with convolutions without bias."""

    def __init__(self, channels: int, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.norm1, self.conv1 = group_norm(channels), Conv3x3(channels, channels, bias=False, backend=backend)
        self.norm2, self.conv2 = group_norm(channels), Conv3x3(channels, channels, bias=False, backend=backend)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv2(F.relu_(self.norm2(self.conv1(F.relu_(self.norm1(x))))))


class ResidualStack(nn.Module):
    """Residual blocks as the discrete counterpart of an ODE layer.

    Each of the N blocks is a step of length 1/N. Between two steps the state is interpolated linearly.
    """

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


class Stem(nn.Sequential):
    """A 3×3 convolution, then `halvings` times GroupNorm, ReLU and a 4×4 convolution of stride 2."""

    def __init__(self, inputs: int, channels: int, padding: int, halvings: int = 2) -> None:
        layers: list[nn.Module] = [nn.Conv2d(inputs, channels, 3, padding=padding)]
        for _ in range(halvings):
            layers += [group_norm(channels), nn.ReLU(), nn.Conv2d(channels, channels, 4, stride=2, padding=1)]
        super().__init__(*layers)


class Head(nn.Module):
    """GroupNorm, ReLU, average over the feature map, linear layer to the classes."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.norm, self.linear = group_norm(channels), nn.Linear(channels, classes)

    def features(self, h: Tensor) -> Tensor:
        """Return what the linear layer reads, (B, C)."""
        return F.relu_(self.norm(h)).mean(dim=(-2, -1))

    def forward(self, h: Tensor) -> Tensor:
        return self.linear(self.features(h))


@dataclass(frozen=True)
class ImageShape:
    """Sizes that all image models of an experiment share."""

    inputs: int  # channels of the image
    side: int  # height and width of the image
    classes: int
    channels: int  # C, width of the model
    padding: int  # of the stem's first convolution
    halvings: int = 2

    @property
    def map_side(self) -> int:
        """Height and width of the stem's feature maps."""
        return (self.side - 2 + 2 * self.padding) // 2**self.halvings


class ImageModel(nn.Module):
    """Stem, ODE layer or residual stack, head; `extra` is the number of channels that the ODE layer appends to h(0)."""

    def __init__(self, shape: ImageShape, ode: nn.Module, extra: int = 0) -> None:
        super().__init__()
        self.stem = Stem(shape.inputs, shape.channels, shape.padding, shape.halvings)
        self.ode = ode
        self.head = Head(shape.channels + extra, shape.classes)

    def encode(self, x: Tensor) -> Tensor:
        """Return h(0) (B, C, H, W) of images x."""
        # torch may take images of one channel for channels-last, where group norms on a CPU are slow and unsafe
        return self.stem(x.clone(memory_format=torch.contiguous_format))

    def evolve(self, h0: Tensor, t: Times = (0.0, 1.0), *, detach_attention: bool = False) -> Trajectory:
        return self.ode(h0, t, detach_attention=detach_attention)

    def read_out(self, h1: Tensor) -> Tensor:
        return self.head(h1)

    def forward(self, x: Tensor) -> Tensor:
        return self.read_out(self.evolve(self.encode(x)).h[-1])


def ace_ode_net(shape: ImageShape, solver: Solver, backend: Backend = ACCELERATED, *, f_layers: int, q_layers: int,
                attention: Attention = "evolving", initial: str = "conv") -> ImageModel:
    """Return ACE-ODE-Net: elementwise attention that co-evolves with the feature map.

    Args:
        f_layers: Convolutions of f; g always has two.
        q_layers: Convolutions of q, if `initial` is "conv".
        attention: "evolving", "fixed" (the correlation of h(t)) or "none".
        initial: How a(0) is made: "conv", "dense" or "correlation".
    """
    C, map_shape = shape.channels, (shape.channels, shape.map_side, shape.map_side)
    initials = {
        "conv": lambda: ConvAttention(C, q_layers, backend),
        "dense": lambda: Dense(map_shape, "elementwise"),
        "correlation": lambda: Correlation(map_shape, "elementwise", bins=16 if attention == "fixed" else 1),
    }
    g = ConvField(C, backend=backend) if attention == "evolving" else None
    q = initials[initial]() if attention != "none" else None
    f = ConvField(C, f_layers, backend=backend)
    return ImageModel(shape, ACENODE(f, g, q, attend=Elementwise(), attention=attention, solver=solver))
