"""SVHN: 32×32 house numbers (the paper's table 3)."""

from acenode.experiments.images import ImageSet, experiment

SVHN = experiment(ImageSet(
    name="svhn", title="SVHN", inputs=3, side=32, padding=1, learning_rate=5e-2, tolerance=1e-5,
    penalty_weight=1e-3, layers={"small": (1, 2), "large": (2, 2)},
))
