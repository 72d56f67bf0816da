"""The paper's tables: mean and standard deviation over five seeds, in the units of measured values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from acenode import experiments
from acenode.config import Config
from acenode.errors import UserError


@dataclass(frozen=True)
class Value:
    """A value of the paper. `std` is None if the paper prints none."""

    mean: float
    std: float | None = None
    params: str | None = None  # as printed
    digits: int = 2
    unit: str = ""

    def __str__(self) -> str:
        spread = "" if self.std is None else f" ± {self.std:.{self.digits}f}"
        return f"{self.mean:.{self.digits}f}{spread}{self.unit}"


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
    "cifar10": {
        "odenet": Value(0.5216, 0.003, digits=4),
        "augmented": Value(0.5220, 0.005, digits=4),
        "ace": Value(0.5406, 0.002, digits=4),
    },
}


def _auc(mean: float, std: float | None = None) -> Value:
    return Value(mean, std, digits=3)


def _mse(mean: float, std: float | None = None) -> Value:
    return Value(mean, std, digits=3, unit=" ×10⁻³")


def _share(mean: float, std: float | None = None) -> Value:
    """Convert a share, as printed, to percent, as measured."""
    return Value(100 * mean, None if std is None else 100 * std, digits=1)


# The tables of the time series. (experiment, task) -> method -> value; "ace:dense" and "ace:fixed" are the ablation on
# the type of attention: a(0) by fully connected layers, and a(t) = the correlation of h(t).
SERIES: dict[tuple[str, str | None], dict[str, Value]] = {
    ("physionet", None): {
        "rnn-dt": _auc(0.787, 0.014), "rnn-impute": _auc(0.764, 0.016), "rnn-decay": _auc(0.807, 0.003),
        "gru-d": _auc(0.818, 0.008), "rnn-vae": _auc(0.515, 0.040), "latent-rnn": _auc(0.781, 0.018),
        "ode-rnn": _auc(0.833, 0.009), "latent-poisson": _auc(0.826, 0.007), "latent-ode": _auc(0.829, 0.004),
        "augmented": _auc(0.851, 0.002), "ace": _auc(0.853, 0.003),
        "ace:dense": _auc(0.793), "ace:fixed": _auc(0.838),
    },
    ("physionet-vitals", "interpolation"): {
        "rnn-vae": _mse(5.930, 0.249), "latent-rnn": _mse(3.907, 0.252), "latent-ode": _mse(2.118, 0.271),
        "latent-poisson": _mse(2.789, 0.771), "augmented": _mse(2.697, 0.771), "ace": _mse(2.560, 0.08),
    },
    ("physionet-vitals", "extrapolation"): {
        "rnn-vae": _mse(3.055, 0.145), "latent-rnn": _mse(3.162, 0.052), "latent-ode": _mse(2.231, 0.029),
        "latent-poisson": _mse(2.208, 0.050), "augmented": _mse(2.042, 0.061), "ace": _mse(2.025, 0.028),
        "ace:dense": _mse(2.108), "ace:fixed": _mse(2.113),
    },
    ("activity", None): {  # the paper's column says AUC and holds accuracies
        "rnn-dt": _share(0.797, 0.003), "rnn-impute": _share(0.795, 0.008), "rnn-decay": _share(0.800, 0.010),
        "gru-d": _share(0.806, 0.007), "rnn-vae": _share(0.343, 0.040), "latent-rnn": _share(0.835, 0.010),
        "ode-rnn": _share(0.829, 0.016), "latent-ode": _share(0.846, 0.013), "augmented": _share(0.811, 0.031),
        "ace": _share(0.859, 0.011), "ace:dense": _share(0.569), "ace:fixed": _share(0.551),
    },
}

# USHCN prints two columns: metric -> method -> value.
USHCN: dict[str, dict[str, Value]] = {
    "mse": {
        "node-vae": Value(0.96, 0.11), "node-vae-mask": Value(0.83, 0.10), "seq-vae": Value(0.83, 0.07),
        "gru-simple": Value(0.75, 0.12), "gru-d": Value(0.53, 0.06), "t-lstm": Value(0.59, 0.11),
        "gru-ode-bayes": Value(0.42, 0.04), "augmented": Value(0.44, 0.03), "ace": Value(0.38, 0.03),
        "ace:dense": Value(0.55),
    },
    "negll": {
        "node-vae": Value(1.46, 0.10), "node-vae-mask": Value(1.36, 0.05), "seq-vae": Value(1.37, 0.06),
        "gru-simple": Value(1.23, 0.10), "gru-d": Value(0.99, 0.07), "t-lstm": Value(1.67, 0.50),
        "gru-ode-bayes": Value(0.98, 0.06), "augmented": Value(1.01, 0.02), "ace": Value(0.94, 0.05),
    },
}
SERIES["ushcn", None] = USHCN["mse"]
ABLATIONS: dict[str, dict[str, Any]] = {"ace:dense": {"initial": "dense"}, "ace:fixed": {"attention": "fixed"}}

# Settings that `value` takes into account: with any other setting changed, the paper has no value for a run.
CONSIDERED = frozenset({"size", "task", "attention", "initial", "fold", "epochs"})
SHORTEST = 1 / 8  # of the default epochs: shorter runs are trials, not measurements


def value(config: Config, metric: str | None = None) -> Value | None:
    """Return the paper's value for a configuration, or None; `metric` is another one than the experiment's own."""
    if config.experiment in ACCURACY:
        return _image(config)
    if metric is not None:
        return USHCN[metric].get(_row(config)) if config.experiment == "ushcn" and metric in USHCN else None
    table = SERIES.get((config.experiment, config.get("task")))
    return table.get(_row(config)) if table else None


def beside(config: Config, changed: Mapping[str, Any], partial: object = False,
           metric: str | None = None) -> Value | None:
    """Return the value that a run with these changed settings may be compared with.

    There is one only for runs on the whole full data that are not much shorter than usual.
    """
    if config.data != "full" or partial or not set(changed) <= CONSIDERED:
        return None
    if "epochs" in changed and not long_enough(config, int(changed["epochs"])):
        return None
    return value(config, metric)


def long_enough(config: Config, epochs: int) -> bool:
    """Return True if so many epochs are enough to measure a method, compared with its default on the full data."""
    try:
        return epochs >= SHORTEST * _default_epochs(config.experiment, config.method)
    except UserError:  # a method that this version does not have
        return False


@lru_cache
def _default_epochs(experiment: str, method: str) -> int:
    return int(experiments.get(experiment).configure(method, "full").get("epochs"))


def printed(experiment: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the method and the settings of every row of the tables of time series."""
    for (name, task), table in SERIES.items():
        for row in table if name == experiment else ():
            yield row.partition(":")[0], ({"task": task} if task else {}) | ABLATIONS.get(row, {})


def _image(config: Config) -> Value | None:
    """Return the value of an image model: with evolving attention that starts from convolutions."""
    if config.get("attention") not in (None, "evolving") or config.get("initial") not in (None, "conv"):
        return None
    if config.get("size") == "large":
        return LARGE.get(config.experiment) if config.method == "ace" else None
    return ACCURACY[config.experiment].get(config.method)


def _row(config: Config) -> str:
    """Return the row of a configuration: its method, with the paper's ablations of attention; empty for any other."""
    kind = (config.get("attention"), config.get("initial"))
    if config.method != "ace" or kind in ((None, None), ("evolving", None), ("evolving", "correlation")):
        return config.method
    if kind == ("evolving", "dense"):
        return "ace:dense"
    return "ace:fixed" if kind in (("fixed", None), ("fixed", "correlation")) else ""
