"""The experiments by name."""

from acenode.errors import UserError
from acenode.experiments.activity import ACTIVITY
from acenode.experiments.base import Experiment, Method
from acenode.experiments.cifar10 import CIFAR10
from acenode.experiments.mnist import MNIST
from acenode.experiments.physionet import PHYSIONET, VITALS
from acenode.experiments.svhn import SVHN
from acenode.experiments.ushcn import USHCN

EXPERIMENTS: dict[str, Experiment] = {e.name: e for e in (MNIST, SVHN, CIFAR10, USHCN, PHYSIONET, VITALS, ACTIVITY)}

__all__ = ["EXPERIMENTS", "Experiment", "Method", "get"]


def get(name: str) -> Experiment:
    """Return the experiment of that name."""
    if name not in EXPERIMENTS:
        raise UserError(f"there is no experiment {name!r}: choose one of {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
