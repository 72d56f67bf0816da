"""The networks of the paper's image tables, all with the same stem and head."""

from __future__ import annotations

from acenode.attention import Correlation, Dense, Elementwise
from acenode.backend import ACCELERATED, Backend
from acenode.models.image.fields import ConvAttention, ConvField
from acenode.models.image.model import ImageModel, ImageShape
from acenode.models.image.residual import ResidualStack
from acenode.node import ACENODE, NODE, Attention, AugmentedNODE
from acenode.ode.solve import Solver


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
