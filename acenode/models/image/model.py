"""The image classifiers: a stem encodes an image into h(0), h evolves, and a head reads the class off h(1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.attention import Correlation, Dense, Elementwise
from acenode.backend import ACCELERATED, Backend
from acenode.models.image.layers import ConvAttention, ConvField, ResidualStack, group_norm
from acenode.node import ACENODE, NODE, Attention, AugmentedNODE, Times, Trajectory
from acenode.ode.solve import Solver


class Stem(nn.Sequential):
    """A 3×3 convolution, then `halvings` times GroupNorm, ReLU and a 4×4 convolution of stride 2."""

    def __init__(self, inputs: int, channels: int, padding: int, halvings: int = 2) -> None:
        layers: list[nn.Module] = [nn.Conv2d(inputs, channels, 3, padding=padding)]
        for _ in range(halvings):
            layers += [group_norm(channels), nn.ReLU(), nn.Conv2d(channels, channels, 4, stride=2, padding=1)]
        super().__init__(*layers)

    @staticmethod
    def side(image: int, padding: int, halvings: int) -> int:
        """Return height and width of its feature maps."""
        side = image - 2 + 2 * padding
        for _ in range(halvings):
            side = (side - 2) // 2 + 1
        return side


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
        """Height and width of h."""
        return Stem.side(self.side, self.padding, self.halvings)


class ImageModel(nn.Module):
    """Stem, ODE layer or residual stack, head.

    Args:
        extra: Channels that the ODE layer appends to h(0).
    """

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
        """Return h and a at times t."""
        return self.ode(h0, t, detach_attention=detach_attention)

    def read_out(self, h1: Tensor) -> Tensor:
        """Return logits (B, classes)."""
        return self.head(h1)

    def forward(self, x: Tensor) -> Tensor:
        return self.read_out(self.evolve(self.encode(x)).h[-1])


def resnet(shape: ImageShape, backend: Backend = ACCELERATED) -> ImageModel:
    """Return ResNet: six residual blocks."""
    return ImageModel(shape, ResidualStack(shape.channels, backend=backend))


def ode_net(shape: ImageShape, solver: Solver, backend: Backend = ACCELERATED) -> ImageModel:
    """Return ODE-Net; with one rk4 step it is RKNet."""
    return ImageModel(shape, NODE(ConvField(shape.channels, backend=backend), solver))


def augmented_ode_net(shape: ImageShape, solver: Solver, extra: int, backend: Backend = ACCELERATED) -> ImageModel:
    """Return Augmented-ODE-Net: `extra` zero channels are appended to h(0), which f and the head read."""
    f = ConvField(shape.channels + extra, backend=backend)
    return ImageModel(shape, AugmentedNODE(f, extra, dim=1, solver=solver), extra)


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
