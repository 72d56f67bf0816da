"""MNIST: 28×28 grey digits (the paper's table 2)."""

from acenode.experiments.images import ImageSet, experiment

IMAGES = ImageSet(
    name="mnist", title="MNIST", inputs=1, side=28, padding=0, learning_rate=1e-2, tolerance=1e-4,
    penalty_weight=1e-4, layers={"small": (1, 1), "large": (1, 2)},
)
MNIST = experiment(IMAGES)
