"""The methods of the paper's image tables: what each is built from, and the settings that have a meaning for it."""

from __future__ import annotations

from acenode.config import Config
from acenode.errors import UserError
from acenode.experiments.base import Method
from acenode.models.image import ImageModel, ImageShape, ace_ode_net, augmented_ode_net, ode_net, resnet
from acenode.solve import Solver

COMMON = frozenset({"epochs", "batch_size", "learning_rate", "momentum", "weight_decay", "size", "crop", "stem_padding",
                    "snapshots", "checkpoint_seconds", "analysis"})
SOLVER = frozenset({"solver", "rtol", "atol", "step_size", "max_steps", "gradient", "seminorm", "engine"})
ATTENTION = frozenset({"attention", "initial", "schedule", "penalty", "penalty_weight", "detach_attention", "f_layers",
                       "q_layers"})


def solver_of(config: Config) -> Solver:
    """The solver that a configuration describes."""
    names = ("rtol", "atol", "step_size", "max_steps", "gradient", "seminorm", "engine")
    given = {k: getattr(config, k) for k in names if getattr(config, k) is not None}
    return Solver(config.solver or "dopri5", **given)


def build_ace(shape: ImageShape, config: Config) -> ImageModel:
    if config.initial in ("dense", "correlation") and config.crop != shape.side:
        raise UserError(f"initial={config.initial} needs maps of one size: leave crop at {shape.side}")
    return ace_ode_net(shape, solver_of(config), f_layers=config.f_layers or 1, q_layers=config.q_layers or 1,
                       attention=config.attention or "none", initial=config.initial or "conv")  # type: ignore[arg-type]


METHODS: dict[str, Method[ImageShape]] = {m.name: m for m in (
    Method("resnet", "ResNet", lambda shape, config: resnet(shape), COMMON),
    Method("rknet", "RKNet", lambda shape, config: ode_net(shape, solver_of(config)), COMMON | SOLVER,
           {"solver": "rk4", "step_size": 1.0, "gradient": "adjoint"}),
    Method("odenet", "ODE-Net", lambda shape, config: ode_net(shape, solver_of(config)), COMMON | SOLVER),
    Method("augmented", "Augmented-ODE-Net",
           lambda shape, config: augmented_ode_net(shape, solver_of(config), config.augment or 5),
           COMMON | SOLVER | {"augment"}),
    Method("ace", "ACE-ODE-Net", build_ace, COMMON | SOLVER | ATTENTION),
)}
