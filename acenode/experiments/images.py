"""The image experiments: MNIST, SVHN and CIFAR10 differ in data, stem and hyperparameters only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acenode.backend import ACCELERATED, PLAIN, Backend
from acenode.config import Config
from acenode.config.groups import ImageNetwork
from acenode.data import images as image_data
from acenode.data.images import ImageArrays, digits
from acenode.experiments.base import Experiment
from acenode.experiments.image_methods import METHODS
from acenode.training.task import Metric

if TYPE_CHECKING:
    import torch

    from acenode.experiments.image_task import ImageTask
    from acenode.models.image.model import ImageModel, ImageShape


@dataclass(frozen=True)
class ImageSet:
    """What differs between the image experiments. `layers` has ACE's convolutions in (f, q) by size, inferred from the
    printed parameter counts."""

    name: str
    title: str
    inputs: int
    side: int
    padding: int
    learning_rate: float
    tolerance: float
    penalty_weight: float
    layers: Mapping[str, tuple[int, int]]
    validation: int = 5000
    method_defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # defaults of single methods

    def load(self, data: str, root: Path) -> ImageArrays:
        return digits(colour=self.inputs == 3) if data == "sample" else image_data.load(self.name, root)

    def shape(self, config: Config) -> ImageShape:
        from acenode.models.image.model import ImageShape

        network = config.part(ImageNetwork)
        width = 2 if network.size == "large" else 1
        if config.data == "sample":
            return ImageShape(self.inputs, 8, 10, 24 * width, network.stem_padding, halvings=1)
        return ImageShape(self.inputs, self.side, 10, 64 * width, network.stem_padding)

    def build(self, config: Config, backend: Backend) -> ImageModel:
        """Return the model that a configuration describes, not yet initialised."""
        return METHODS[config.method].build(self.shape(config), config, backend)

    def make(self, config: Config, root: Path, device: torch.device,
             backend: Backend = ACCELERATED) -> ImageTask:
        from acenode.experiments.image_task import ImageTask

        arrays = self.load(config.data, root)
        held = self.validation if config.data == "full" else len(arrays.x_train) // 5
        pad = 4 if config.data == "full" else 0  # a digit of 8 pixels shifted by one is a different digit
        return ImageTask(config, arrays, held, self.build(config, backend), pad=pad, device=device)

    def defaults(self, method: str, data: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the paper's best settings, or ones chosen for the digits; fixed attention is the correlation."""
        f_layers, q_layers = self.layers.get(given.get("size", "small"), self.layers["small"])
        values: dict[str, Any] = {
            "epochs": 160, "batch_size": 128, "learning_rate": self.learning_rate, "momentum": 0.9,
            "weight_decay": 0.0, "size": "small", "crop": self.side, "stem_padding": self.padding,
            "solver": "dopri5", "rtol": self.tolerance, "atol": self.tolerance, "step_size": 0.1, "max_steps": 1000,
            "gradient": "backprop", "seminorm": False, "engine": "auto", "augment": 5,
            "attention": "evolving", "schedule": "alternating", "penalty": "l2",
            "initial": "correlation" if given.get("attention") == "fixed" else "conv",
            "penalty_weight": self.penalty_weight, "detach_attention": False, "f_layers": f_layers,
            "q_layers": q_layers, "snapshots": 12, "analysis": True,
        }
        if data == "sample":  # 24 + 4 channels are normalised in pairs; 24 + 5 is prime and would be one group
            values |= {"epochs": 12, "batch_size": 64, "learning_rate": 0.15, "crop": 8, "stem_padding": 1,
                       "rtol": 1e-2, "atol": 1e-2, "augment": 4}
        return {**values, **METHODS[method].defaults, **self.method_defaults.get(method, {})}


def experiment(spec: ImageSet) -> Experiment:
    """Return the registry entry of an image set."""
    return Experiment(
        name=spec.name,
        title=spec.title,
        summary=f"{spec.title}: images of ten classes, elementwise attention on a feature map",
        about_sample="scikit-learn's 1,797 digits of 8×8 pixels, with smaller networks of the same design",
        sample_title="handwritten digits" if spec.name == "mnist" else f"handwritten digits, not {spec.title}",
        metric=Metric("accuracy"),
        methods=METHODS,
        defaults=spec.defaults,
        make=spec.make,
        count=lambda config: sum(p.numel() for p in spec.build(config, PLAIN).parameters()),
        source=spec.name,
        allowed_choices={"initial": ("correlation", "dense", "conv")},
    )
