"""The experiments by name: those of the paper, examples of named variables, and imported sets."""

from pathlib import Path

from acenode.errors import UserError
from acenode.experiments.base import Experiment, Method
from acenode.experiments.forecast import USHCN
from acenode.experiments.images import CIFAR10, MNIST, SVHN
from acenode.experiments.imported import YOUR_DATA, imported_experiment, imported_names
from acenode.experiments.named import EXAMPLES
from acenode.experiments.series import ACTIVITY, PHYSIONET, VITALS

EXPERIMENTS: dict[str, Experiment] = {spec.name: spec.experiment() for spec in (
    MNIST, SVHN, CIFAR10, USHCN, PHYSIONET, VITALS, ACTIVITY)}

__all__ = ["EXAMPLES", "EXPERIMENTS", "YOUR_DATA", "Experiment", "Method", "find", "get", "imported_names",
           "is_imported"]


def find(name: str, root: Path | None = None) -> Experiment | None:
    """Return the experiment of that name: of the paper, an example, or a set imported to `root`; None if there is none.

    `root` is the data folder; None is the usual one.
    """
    return EXPERIMENTS.get(name) or EXAMPLES.get(name) or imported_experiment(name, root)


def get(name: str, root: Path | None = None) -> Experiment:
    """Return the experiment of that name as `find` does; the error lists the names there are."""
    found = find(name, root)
    if found is None:
        names = ", ".join([*EXPERIMENTS, *EXAMPLES, *imported_names(root)])
        raise UserError(f"there is no experiment {name!r}: choose one of {names}")
    return found


def is_imported(name: str) -> bool:
    """Return True if an experiment is on a set of the user's own, even one that has been deleted since."""
    return name not in EXPERIMENTS and name not in EXAMPLES
