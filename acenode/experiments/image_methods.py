"""The methods of the paper's image tables: what each is built from, and the settings that have a meaning for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acenode.accelerate.dispatch import Backend
from acenode.config import Config
from acenode.errors import UserError
from acenode.experiments.base import Method
from acenode.experiments.solver_settings import SOLVER, solver_of

if TYPE_CHECKING:
    from acenode.models.image.model import ImageModel, ImageShape  # needs torch, which a list of methods does not

COMMON = frozenset({"epochs", "batch_size", "learning_rate", "momentum", "weight_decay", "size", "crop", "stem_padding",
                    "snapshots", "checkpoint_seconds", "analysis"})
ATTENTION = frozenset({"attention", "initial", "schedule", "penalty", "penalty_weight", "detach_attention", "f_layers",
                       "q_layers"})


def build_resnet(shape: ImageShape, config: Config, backend: Backend) -> ImageModel:
    from acenode.models.image.model import resnet

    return resnet(shape, backend)


def build_ode_net(shape: ImageShape, config: Config, backend: Backend) -> ImageModel:
    from acenode.models.image.model import ode_net

    return ode_net(shape, solver_of(config), backend)


def build_augmented(shape: ImageShape, config: Config, backend: Backend) -> ImageModel:
    from acenode.models.image.model import augmented_ode_net

    return augmented_ode_net(shape, solver_of(config), config.augment or 5, backend)


def build_ace(shape: ImageShape, config: Config, backend: Backend) -> ImageModel:
    from acenode.models.image.model import ace_ode_net

    if config.initial in ("dense", "correlation") and config.crop != shape.side:
        raise UserError(f"initial={config.initial} needs maps of one size: leave crop at {shape.side}")
    return ace_ode_net(shape, solver_of(config), backend, f_layers=config.f_layers or 1, q_layers=config.q_layers or 1,
                       attention=config.attention or "none", initial=config.initial or "conv")  # type: ignore[arg-type]


METHODS: dict[str, Method[ImageShape]] = {m.name: m for m in (
    Method("resnet", "ResNet", build_resnet, COMMON),
    Method("rknet", "RKNet", build_ode_net, COMMON | SOLVER,
           {"solver": "rk4", "step_size": 1.0, "gradient": "adjoint"}),
    Method("odenet", "ODE-Net", build_ode_net, COMMON | SOLVER),
    Method("augmented", "Augmented-ODE-Net", build_augmented, COMMON | SOLVER | {"augment"}),
    Method("ace", "ACE-ODE-Net", build_ace, COMMON | SOLVER | ATTENTION),
)}
