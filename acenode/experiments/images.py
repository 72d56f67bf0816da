"""The image experiments: MNIST, SVHN and CIFAR10 (tables 2 to 4) differ in data, stem and hyperparameters only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acenode.backend import ACCELERATED, Backend
from acenode.config import Config
from acenode.config import groups as keys
from acenode.data.images import IMAGE_SOURCES, digits
from acenode.experiments.base import DEFAULTS, Method, Spec, later
from acenode.training.task import Metric

if TYPE_CHECKING:  # type checking only: avoids importing torch
    import torch

    from acenode.experiments.image_task import ImageTask
    from acenode.models.image import ImageModel, ImageShape

COMMON = (keys.MomentumTraining, keys.ImageNetwork, keys.FeatureSnapshotSettings)
METHODS: dict[str, Method[ImageShape]] = {m.name: m for m in (
    Method("resnet", "ResNet", later("image_task", "build_resnet"), COMMON),
    Method("rknet", "RKNet", later("image_task", "build_ode_net"), (*COMMON, keys.SolverSettings),
           {"solver": "rk4", "step_size": 1.0, "gradient": "adjoint"}),
    Method("odenet", "ODE-Net", later("image_task", "build_ode_net"), (*COMMON, keys.SolverSettings)),
    Method("augmented", "Augmented-ODE-Net", later("image_task", "build_augmented"),
           (*COMMON, keys.SolverSettings, keys.Augmentation)),
    Method("ace", "ACE-ODE-Net", later("image_task", "build_ace"),
           (*COMMON, keys.SolverSettings, keys.ImageAttention, keys.AttentionTraining)),
)}


@dataclass(frozen=True, kw_only=True)
class ImageSet(Spec):
    """What differs between the image experiments. `layers` has ACE's convolutions in (f, q) by size, inferred from the
    printed parameter counts."""

    metric: Metric = field(default_factory=lambda: Metric("accuracy"))
    methods: Mapping[str, Method] = field(default_factory=lambda: METHODS)
    allowed_choices: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: {"initial": ("correlation", "dense", "conv")})
    inputs: int
    side: int
    padding: int
    learning_rate: float
    tolerance: float
    penalty_weight: float
    layers: Mapping[str, tuple[int, int]]
    method_defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # defaults of single methods

    def shape(self, config: Config) -> ImageShape:
        from acenode.models.image import ImageShape

        network = config.part(keys.ImageNetwork)
        width = 2 if network.size == "large" else 1
        if config.data == "sample":
            return ImageShape(self.inputs, 8, 10, 24 * width, network.stem_padding, halvings=1)
        return ImageShape(self.inputs, self.side, 10, 64 * width, network.stem_padding)

    def build(self, config: Config, backend: Backend) -> ImageModel:
        return METHODS[config.method].build(self.shape(config), config, backend)

    def make(self, config: Config, root: Path, device: torch.device, backend: Backend = ACCELERATED) -> ImageTask:
        from acenode.experiments.image_task import ImageTask

        full = config.data == "full"
        arrays = IMAGE_SOURCES[self.name].load(root) if full else digits(colour=self.inputs == 3)
        held = 5000 if full else len(arrays.x_train) // 5
        pad = 4 if full else 0  # a digit of 8 pixels shifted by one is a different digit
        return ImageTask(config, arrays, held, self.build(config, backend), pad=pad, device=device)

    def defaults(self, method: str, data: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the paper's best settings, or ones chosen for the digits; fixed attention is the correlation."""
        f_layers, q_layers = self.layers.get(given.get("size", "small"), self.layers["small"])
        values = DEFAULTS | {
            "epochs": 160, "batch_size": 128, "learning_rate": self.learning_rate, "momentum": 0.9,
            "weight_decay": 0.0, "size": "small", "crop": self.side, "stem_padding": self.padding,
            "rtol": self.tolerance, "atol": self.tolerance, "step_size": 0.1,
            "initial": "correlation" if given.get("attention") == "fixed" else "conv",
            "penalty_weight": self.penalty_weight, "f_layers": f_layers, "q_layers": q_layers, "analysis": True,
        }
        if data == "sample":  # 24 + 4 channels are normalised in pairs; 24 + 5 is prime and would be one group
            values |= {"epochs": 12, "batch_size": 64, "learning_rate": 0.15, "crop": 8, "stem_padding": 1,
                       "rtol": 1e-2, "atol": 1e-2, "augment": 4}
        return {**values, **METHODS[method].defaults, **self.method_defaults.get(method, {})}


def _image_set(name: str, title: str, **more: Any) -> ImageSet:
    return ImageSet(
        name=name, title=title, summary=f"{title}: images of ten classes, elementwise attention on a feature map",
        about_sample="scikit-learn's 1,797 digits of 8×8 pixels, with smaller networks of the same design",
        sample_title="handwritten digits" if name == "mnist" else f"handwritten digits, not {title}", source=name,
        **more)


MNIST = _image_set("mnist", "MNIST", inputs=1, side=28, padding=0, learning_rate=1e-2, tolerance=1e-4,
                   penalty_weight=1e-4, layers={"small": (1, 1), "large": (1, 2)})
SVHN = _image_set("svhn", "SVHN", inputs=3, side=32, padding=1, learning_rate=5e-2, tolerance=1e-5,
                  penalty_weight=1e-3, layers={"small": (1, 2), "large": (2, 2)})
CIFAR10 = _image_set("cifar10", "CIFAR10", inputs=3, side=32, padding=0, learning_rate=1e-2, tolerance=1e-5,
                     penalty_weight=1e-3, layers={"small": (2, 2), "large": (1, 2)},
                     method_defaults={"ace": {"weight_decay": 1e-5}})
