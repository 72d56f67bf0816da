"""The tables of the paper as it prints them, and what other papers print on the same data.

`PaperTable` has rows and columns of cells, each a value that runs can reproduce. A value that the paper prints in two
tables is one cell that both tables show: there are 79 cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from acenode import experiments
from acenode.compare.metrics import MetricFormat, metric_format
from acenode.config import Config
from acenode.config.vocabulary import CHOSEN


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


def _auc(mean: float, std: float | None = None) -> Value:
    return Value(mean, std, digits=3)


def _mse(mean: float, std: float | None = None) -> Value:
    return Value(mean, std, digits=3, unit=" ×10⁻³")


def _share(mean: float, std: float | None = None) -> Value:
    """Convert a share, as printed, to percent, as measured."""
    return Value(100 * mean, None if std is None else 100 * std, digits=1)


# What the paper prints: experiment, metric and task of a column -> row -> value. A row is a method, or an ablation of
# ACE: a larger network, a(0) by fully connected layers, and a(t) = the correlation of h(t).
ABLATIONS: dict[str, dict[str, Any]] = {
    "ace:large": {"size": "large"}, "ace:dense": {"initial": "dense"}, "ace:fixed": {"attention": "fixed"}}
Column = tuple[str, str, str | None]
VALUES: dict[Column, dict[str, Value]] = {
    ("mnist", "accuracy", None): {  # in percent, with the printed number of parameters
        "resnet": Value(99.65, 0.03, "0.58M"), "rknet": Value(98.66, 0.57, "0.21M"),
        "odenet": Value(99.61, 0.05, "0.21M"), "augmented": Value(99.66, 0.04, "0.22M"),
        "ace": Value(99.68, 0.03, "0.28M"), "ace:large": Value(99.58, params="1.27M"),
    },
    ("svhn", "accuracy", None): {
        "resnet": Value(95.78, 0.05, "0.58M"), "rknet": Value(91.00, 0.71, "0.21M"),
        "odenet": Value(95.54, 0.13, "0.21M"), "augmented": Value(95.80, 0.08, "0.22M"),
        "ace": Value(96.01, 0.10, "0.32M"), "ace:large": Value(96.12, params="1.42M"),
    },
    ("cifar10", "accuracy", None): {
        "resnet": Value(86.36, 0.41, "0.58M"), "rknet": Value(84.81, 0.23, "0.21M"),
        "odenet": Value(85.35, 0.62, "0.21M"), "augmented": Value(85.59, 0.09, "0.22M"),
        "ace": Value(85.99, 0.12, "0.36M"), "ace:large": Value(88.12, params="1.27M"),
    },
    ("cifar10", "silhouette", None): {  # of the K-means clusters of the features
        "odenet": Value(0.5216, 0.003, digits=4), "augmented": Value(0.5220, 0.005, digits=4),
        "ace": Value(0.5406, 0.002, digits=4),
    },
    ("ushcn", "mse", None): {
        "node-vae": Value(0.96, 0.11), "node-vae-mask": Value(0.83, 0.10), "seq-vae": Value(0.83, 0.07),
        "gru-simple": Value(0.75, 0.12), "gru-d": Value(0.53, 0.06), "t-lstm": Value(0.59, 0.11),
        "gru-ode-bayes": Value(0.42, 0.04), "augmented": Value(0.44, 0.03), "ace": Value(0.38, 0.03),
        "ace:dense": Value(0.55),
    },
    ("ushcn", "negll", None): {
        "node-vae": Value(1.46, 0.10), "node-vae-mask": Value(1.36, 0.05), "seq-vae": Value(1.37, 0.06),
        "gru-simple": Value(1.23, 0.10), "gru-d": Value(0.99, 0.07), "t-lstm": Value(1.67, 0.50),
        "gru-ode-bayes": Value(0.98, 0.06), "augmented": Value(1.01, 0.02), "ace": Value(0.94, 0.05),
    },
    ("physionet", "auc", None): {
        "rnn-dt": _auc(0.787, 0.014), "rnn-impute": _auc(0.764, 0.016), "rnn-decay": _auc(0.807, 0.003),
        "gru-d": _auc(0.818, 0.008), "rnn-vae": _auc(0.515, 0.040), "latent-rnn": _auc(0.781, 0.018),
        "ode-rnn": _auc(0.833, 0.009), "latent-poisson": _auc(0.826, 0.007), "latent-ode": _auc(0.829, 0.004),
        "augmented": _auc(0.851, 0.002), "ace": _auc(0.853, 0.003),
        "ace:dense": _auc(0.793), "ace:fixed": _auc(0.838),
    },
    ("physionet-vitals", "mse", "interpolation"): {
        "rnn-vae": _mse(5.930, 0.249), "latent-rnn": _mse(3.907, 0.252), "latent-ode": _mse(2.118, 0.271),
        "latent-poisson": _mse(2.789, 0.771), "augmented": _mse(2.697, 0.771), "ace": _mse(2.560, 0.08),
    },
    ("physionet-vitals", "mse", "extrapolation"): {
        "rnn-vae": _mse(3.055, 0.145), "latent-rnn": _mse(3.162, 0.052), "latent-ode": _mse(2.231, 0.029),
        "latent-poisson": _mse(2.208, 0.050), "augmented": _mse(2.042, 0.061), "ace": _mse(2.025, 0.028),
        "ace:dense": _mse(2.108), "ace:fixed": _mse(2.113),
    },
    ("activity", "accuracy", None): {  # the paper's column says AUC and holds accuracies
        "rnn-dt": _share(0.797, 0.003), "rnn-impute": _share(0.795, 0.008), "rnn-decay": _share(0.800, 0.010),
        "gru-d": _share(0.806, 0.007), "rnn-vae": _share(0.343, 0.040), "latent-rnn": _share(0.835, 0.010),
        "ode-rnn": _share(0.829, 0.016), "latent-ode": _share(0.846, 0.013), "augmented": _share(0.811, 0.031),
        "ace": _share(0.859, 0.011), "ace:dense": _share(0.569), "ace:fixed": _share(0.551),
    },
}
IMAGES = ("mnist", "svhn", "cifar10")
HOSTS = {"mnist": "odenet", "svhn": "odenet", "cifar10": "odenet", "ushcn": "gru-ode-bayes", "physionet": "latent-ode",
         "physionet-vitals": "latent-ode", "activity": "latent-ode"}  # the methods that ACE adds attention to
SHORTEST = 1 / 8  # of the default epochs: shorter runs are trials, not measurements


def _settings(row: str, task: str | None) -> dict[str, Any]:
    return ({"task": task} if task else {}) | ABLATIONS.get(row, {})


@dataclass(frozen=True)
class PaperCell:
    """One value of the paper: what is trained, the metric, and the printed value in that metric's unit."""

    table: str  # the name of the first table that shows it
    experiment: str
    method: str
    metric: str
    printed: Value
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)  # that define it: task, size, attention, ...

    @property
    def key(self) -> str:
        """A stable name for addresses, such as `ushcn/ace/mse` or `physionet/ace/dense/auc`."""
        return "/".join((self.experiment, self.method, *map(str, self.settings.values()), self.metric))

    @property
    def title(self) -> str:
        """The method's title, with the ablation."""
        title = experiments.get(self.experiment).methods[self.method].title
        words = {"dense": "FC", "fixed": "fixed attention", "large": "large"}
        found = [words[v] for v in self.settings.values() if v in words]
        return f"{title} ({', '.join(found)})" if found else title

    @property
    def format(self) -> MetricFormat:
        """How the metric is written. `printed` and measured values are already in its unit."""
        return metric_format(self.metric, self.experiment)

    @property
    def main(self) -> bool:
        """True for the method that ACE extends, the augmented one and ACE itself, without ablations."""
        return not self.ablation and self.method in (HOSTS[self.experiment], "augmented", "ace")

    @property
    def ablation(self) -> bool:
        """True if the cell changes the size or the attention of ACE."""
        return bool(self.settings.keys() - {"task"})

    @property
    def folds(self) -> bool:
        """True if the repetitions of the cell are folds of the data."""
        return "fold" in experiments.get(self.experiment).method(self.method).uses

    def config(self, repetition: int = 0, epochs: int | None = None, preset: str = CHOSEN) -> Config:
        """Return the configuration of one repetition: a seed, or a fold with its number as the seed."""
        given: dict[str, Any] = {**self.settings, "seed": repetition}
        if self.folds:
            given["fold"] = repetition
        if epochs is not None:
            given["epochs"] = epochs
        return experiments.get(self.experiment).configure(self.method, "full", preset=preset, **given)


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper."""

    name: str
    title: str
    caption: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[PaperCell | None, ...]]  # one cell a column, None where the paper prints nothing

    @property
    def cells(self) -> tuple[PaperCell, ...]:
        """The cells by row."""
        return tuple(cell for row in self.rows.values() for cell in row if cell is not None)


def _table(name: str, title: str, caption: str, columns: Mapping[str, Column],
           rows: Mapping[str, str] | None = None) -> PaperTable:
    """Return a table: its columns by their heads, and its rows by their labels, by default one a method."""
    experiment = next(iter(columns.values()))[0]
    rows = rows or {experiments.get(experiment).methods[row].title: row for row in VALUES[next(iter(columns.values()))]
                    if row not in ABLATIONS}
    return PaperTable(name, title, caption, tuple(columns), {
        label: tuple(_cell(name, column, row) for column in columns.values()) for label, row in rows.items()})


def _cell(table: str, column: Column, row: str) -> PaperCell | None:
    """Return the cell of a column; a method's cell belongs to the table of its experiment."""
    (experiment, metric, task), value = column, VALUES[column].get(row)
    if row not in ABLATIONS and metric != "silhouette":
        table = experiment
    method = row.partition(":")[0]
    return None if value is None else PaperCell(table, experiment, method, metric, value, _settings(row, task))


def _tables() -> Iterator[PaperTable]:
    titles = {name: experiments.get(name).title for name in IMAGES}
    for name, title in titles.items():
        yield _table(name, f"{title} classification", f"{title} results: test accuracy (%)",
                     {"Accuracy": (name, "accuracy", None)})
    yield _table("silhouette", "Silhouette of image features",
                 "K-means silhouette of the features of CIFAR10's test images",
                 {"CIFAR10": ("cifar10", "silhouette", None)})
    yield _table("ushcn", "USHCN forecasting", "USHCN daily: error and negative log-likelihood of forecasts",
                 {"MSE": ("ushcn", "mse", None), "NegLL": ("ushcn", "negll", None)})
    yield _table("physionet", "PhysioNet mortality", "PhysioNet 2012: classification of deaths in hospital",
                 {"AUC": ("physionet", "auc", None)})
    yield _table("physionet-vitals", "PhysioNet regression", "PhysioNet 2012: mean squared error ×10⁻³",
                 {task.capitalize(): ("physionet-vitals", "mse", task) for task in ("interpolation", "extrapolation")})
    yield _table("activity", "Human Activity",
                 "Human Activity: accuracy in % (the paper's column says AUC and holds accuracies)",
                 {"Accuracy": ("activity", "accuracy", None)})
    yield _table("size", "Size of the model", "Image classification by the size of ACE-ODE-Net: test accuracy (%)",
                 {titles[name]: (name, "accuracy", None) for name in reversed(IMAGES)},
                 {"ACE-ODE-Net (small)": "ace", "ACE-ODE-Net (large)": "ace:large"})
    attention = {"FC-ACE": "ace:dense", "Fixed-ACE": "ace:fixed", "ACE": "ace"}
    yield _table("attention", "Type of attention", "Time series classification by the type of attention",
                 {"PhysioNet (AUC)": ("physionet", "auc", None),
                  "Human Activity (accuracy)": ("activity", "accuracy", None)}, attention)
    yield _table("attention-error", "Type of attention, errors",
                 "Errors by the type of attention, as the paper's text gives them",
                 {"USHCN (MSE)": ("ushcn", "mse", None),
                  "PhysioNet extrapolation (MSE ×10⁻³)": ("physionet-vitals", "mse", "extrapolation")}, attention)


TABLES: dict[str, PaperTable] = {table.name: table for table in _tables()}
CELLS: dict[str, PaperCell] = {cell.key: cell for table in TABLES.values() for cell in table.cells}


@lru_cache(maxsize=1024)
def target(cell: PaperCell, preset: str = CHOSEN) -> Config:
    """Return the settings that a run must have to count for a cell, apart from its repetition and its epochs."""
    return cell.config(preset=preset)


# Results of others --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Published:
    """A value that others have published for an experiment of the paper."""

    experiment: str
    method: str
    metric: str
    value: str  # as published
    protocol: str
    source: str
    url: str


MTAN = ("Shukla and Marlin, ICLR 2021", "https://arxiv.org/abs/2101.10318")
MTAN_FIRST_RERUN = ("Users' report, mTAN issue 1", "https://github.com/reml-lab/mTAN/issues/1")
MTAN_SECOND_RERUN = ("Users' report, mTAN issue 2", "https://github.com/reml-lab/mTAN/issues/2")
RAINDROP = ("Zhang et al., ICLR 2022", "https://arxiv.org/abs/2110.05357")
MTM = ("Zhong et al., KDD 2025", "https://arxiv.org/abs/2509.17809")
_LATER = "; value on Raindrop's splits from later comparisons"
WARPFORMER = (f"Zhang et al., KDD 2023{_LATER}", "https://arxiv.org/abs/2306.09368")
GRAFITI = ("Yalavarthi et al., AAAI 2024", "https://arxiv.org/abs/2305.12932")
GRAFITI_MORTALITY = (GRAFITI[0] + _LATER, GRAFITI[1])
GRU_ODE_BAYES = ("De Brouwer et al., NeurIPS 2019", "https://arxiv.org/abs/1905.12374")
LATENT_ODE = ("Rubanova et al., NeurIPS 2019", "https://arxiv.org/abs/1907.03907")
RELEASED = ("README of the published code", "https://github.com/sheoyon-jhin/ACE-NODE")
ANODE_AGAIN = ("Reproducibility report of Augmented Neural ODEs, 2019", "https://openreview.net/forum?id=O1IJIoWN6p")
_RELEASED_IMAGES = "Five seeds of the published code, which takes the best epoch on the test set"
_LATENT_ODE_SPLIT = "80% training and 20% test of set-a, no validation set"
_MTAN_SPLIT = "Set-a and set-b (8,000 stays), observations rounded to a minute; own random splits"
_MTAN_AGAIN = f"{_MTAN_SPLIT}; rerun with the published code"
_RAINDROP_SPLIT = "11,988 stays, five fixed splits of Raindrop (80/10/10)"
_GRAFITI_FOLDS = "USHCN as in GRU-ODE-Bayes, five folds of GraFITi's own"
_PIXELS = "ODE on the pixels, without the convolutions that ODE-Net applies first"
_WINDOWS = "Windows of 50 points, 80/20; overlapping windows on both sides"
PUBLISHED: tuple[Published, ...] = (
    Published("cifar10", "ACE-ODE-Net", "accuracy", "85.82 ± 0.31%", _RELEASED_IMAGES, *RELEASED),
    Published("cifar10", "ACE-ODE-Net, large", "accuracy", "87.72 ± 0.24%",
              f"{_RELEASED_IMAGES}; the paper prints the best of them, 88.12", *RELEASED),
    Published("svhn", "ACE-ODE-Net", "accuracy", "95.81 ± 0.24%", _RELEASED_IMAGES, *RELEASED),
    *(Published(experiment, method, "accuracy", value, _PIXELS, *ANODE_AGAIN) for experiment, method, value in (
        ("mnist", "Augmented neural ODE", "97.25 ± 0.54%"), ("mnist", "Neural ODE", "95.57 ± 0.32%"),
        ("cifar10", "Augmented neural ODE", "52.42 ± 1.19%"), ("cifar10", "Neural ODE", "51.72 ± 0.57%"))),
    Published("ushcn", "GRU-ODE-Bayes", "MSE", "0.43", "Five folds, the first three observations after the cut",
              *GRU_ODE_BAYES),
    Published("ushcn", "ACE-GRU-ODE-Bayes", "MSE", "0.343", "Published code: fold 0 only, five seeds", *RELEASED),
    Published("ushcn", "ACE-GRU-ODE-Bayes", "NegLL", "0.89", "Published code: fold 0 only, five seeds", *RELEASED),
    *(Published("ushcn", method, "MSE", value, _GRAFITI_FOLDS, *GRAFITI) for method, value in (
        ("GRU-ODE-Bayes", "0.401"), ("Neural Flow", "0.414"), ("DLinear+ (linear)", "0.347"), ("mTAN", "0.300"),
        ("CRU", "0.290"), ("GraFITi", "0.272"))),
    Published("physionet", "Latent-ODE", "AUC", "0.829 ± 0.004", _LATENT_ODE_SPLIT, *LATENT_ODE),
    Published("physionet", "ACE-Latent-ODE", "AUC", "0.846 ± 0.002", "Five seeds of the published code", *RELEASED),
    Published("physionet", "mTAND", "AUC", "0.858", _MTAN_SPLIT, *MTAN),
    Published("physionet", "mTAND", "AUC", "0.830", _MTAN_AGAIN, *MTAN_FIRST_RERUN),
    Published("physionet", "mTAND", "AUC", "0.827", _MTAN_AGAIN, *MTAN_SECOND_RERUN),
    Published("physionet", "mTAND", "AUC", "0.842", _RAINDROP_SPLIT, *RAINDROP),
    Published("physionet", "Warpformer", "AUC", "0.865", _RAINDROP_SPLIT, *WARPFORMER),
    Published("physionet", "GraFITi", "AUC", "0.866", _RAINDROP_SPLIT, *GRAFITI_MORTALITY),
    Published("physionet", "MTM", "AUC", "0.880", _RAINDROP_SPLIT, *MTM),
    Published("physionet-vitals", "ACE-Latent-ODE", "MSE, extrapolation", "2.045 ± 0.039 ×10⁻³",
              "Five seeds of the published code", *RELEASED),
    Published("activity", "ODE-RNN", "accuracy", "82.9%", _WINDOWS, *LATENT_ODE),
    Published("activity", "ODE-RNN", "accuracy", "88.5%", "mTAN's set-up: other windows and splits", *MTAN),
)
