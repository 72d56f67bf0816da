"""The methods of the paper's image tables: what each is built from, and the settings that have a meaning for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acenode.backend import Backend
from acenode.config import Config
from acenode.config.groups import (
    AttentionTraining,
    Augmentation,
    FeatureSnapshotSettings,
    ImageAttention,
    ImageNetwork,
    MomentumTraining,
    SolverSettings,
)
from acenode.errors import UserError
from acenode.experiments.base import Method

if TYPE_CHECKING:  # type checking only: avoids importing torch
    from acenode.models.image.model import ImageModel, ImageShape

COMMON = (MomentumTraining, ImageNetwork, FeatureSnapshotSettings)


def build_resnet(shape: ImageShape, config: Config, backend: Backend) -> ImageModel:
    from acenode.models.image.model import resnet

    return resnet(shape, backend)


def build_ode_net(shape: ImageShape, config: Config, backend: Backend) -> ImageModel:
    from acenode.models.image.model import ode_net

    return ode_net(shape, config.part(SolverSettings).to_solver(), backend)


def build_augmented(shape: ImageShape, config: Config, backend: Backend) -> ImageModel:
    from acenode.models.image.model import augmented_ode_net

    solver, extra = config.part(SolverSettings).to_solver(), config.part(Augmentation).augment
    return augmented_ode_net(shape, solver, extra, backend)


def build_ace(shape: ImageShape, config: Config, backend: Backend) -> ImageModel:
    from acenode.models.image.model import ace_ode_net

    chosen = config.part(ImageAttention)
    if chosen.attention != "none" and chosen.initial != "conv" and config.part(ImageNetwork).crop != shape.side:
        raise UserError(f"initial={chosen.initial} needs maps of one size: leave crop at {shape.side}")
    return ace_ode_net(shape, config.part(SolverSettings).to_solver(), backend, f_layers=chosen.f_layers,
                       q_layers=chosen.q_layers, attention=chosen.attention, initial=chosen.initial)


METHODS: dict[str, Method[ImageShape]] = {m.name: m for m in (
    Method("resnet", "ResNet", build_resnet, COMMON),
    Method("rknet", "RKNet", build_ode_net, (*COMMON, SolverSettings),
           {"solver": "rk4", "step_size": 1.0, "gradient": "adjoint"}),
    Method("odenet", "ODE-Net", build_ode_net, (*COMMON, SolverSettings)),
    Method("augmented", "Augmented-ODE-Net", build_augmented, (*COMMON, SolverSettings, Augmentation)),
    Method("ace", "ACE-ODE-Net", build_ace, (*COMMON, SolverSettings, ImageAttention, AttentionTraining)),
)}
