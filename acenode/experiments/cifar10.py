"""CIFAR10: 32×32 photographs of ten classes (the paper's table 4)."""

from acenode.experiments.images import ImageSet, experiment

CIFAR10 = experiment(ImageSet(
    name="cifar10", title="CIFAR10", inputs=3, side=32, padding=0, learning_rate=1e-2, tolerance=1e-5,
    penalty_weight=1e-3, layers={"small": (2, 2), "large": (1, 2)}, method_defaults={"ace": {"weight_decay": 1e-5}},
))
