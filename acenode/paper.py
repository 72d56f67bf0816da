"""The paper's tables as data: mean and standard deviation over five seeds, as printed."""

from __future__ import annotations

from dataclasses import dataclass

from acenode.config import Config


@dataclass(frozen=True)
class Value:
    """A number of the paper. `std` is None where it prints none."""

    mean: float
    std: float | None = None
    params: str | None = None  # as printed

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.std is None else f"{self.mean:.2f} ± {self.std:.2f}"


# Tables 2 to 4: accuracy in percent and printed size. experiment -> method -> value.
ACCURACY: dict[str, dict[str, Value]] = {
    "mnist": {
        "resnet": Value(99.65, 0.03, "0.58M"),
        "rknet": Value(98.66, 0.57, "0.21M"),
        "odenet": Value(99.61, 0.05, "0.21M"),
        "augmented": Value(99.66, 0.04, "0.22M"),
        "ace": Value(99.68, 0.03, "0.28M"),
    },
    "svhn": {
        "resnet": Value(95.78, 0.05, "0.58M"),
        "rknet": Value(91.00, 0.71, "0.21M"),
        "odenet": Value(95.54, 0.13, "0.21M"),
        "augmented": Value(95.80, 0.08, "0.22M"),
        "ace": Value(96.01, 0.10, "0.32M"),
    },
    "cifar10": {
        "resnet": Value(86.36, 0.41, "0.58M"),
        "rknet": Value(84.81, 0.23, "0.21M"),
        "odenet": Value(85.35, 0.62, "0.21M"),
        "augmented": Value(85.59, 0.09, "0.22M"),
        "ace": Value(85.99, 0.12, "0.36M"),
    },
}

# The ablation on model size: ACE, large.
LARGE: dict[str, Value] = {
    "mnist": Value(99.58, params="1.27M"),
    "svhn": Value(96.12, params="1.42M"),
    "cifar10": Value(88.12, params="1.27M"),
}

# Table 5: K-means silhouette of the features.
SILHOUETTE: dict[str, dict[str, Value]] = {
    "cifar10": {"odenet": Value(0.5216, 0.003), "augmented": Value(0.5220, 0.005), "ace": Value(0.5406, 0.002)},
}


def accuracy(config: Config) -> Value | None:
    """The paper's value for what a configuration trains, if it has one: evolving attention begun by convolutions."""
    if config.attention not in (None, "evolving") or config.initial not in (None, "conv"):
        return None
    if config.size == "large":
        return LARGE.get(config.experiment) if config.method == "ace" else None
    return ACCURACY.get(config.experiment, {}).get(config.method)
