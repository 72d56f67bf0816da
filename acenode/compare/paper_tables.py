"""The tables of the paper as it prints them: rows and columns of cells, each a value that runs can reproduce.

The numbers are those of `paper`. A value that the paper prints in two tables is one cell that both tables show: there
are 79 cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from acenode import experiments
from acenode.compare import metric_format, paper
from acenode.compare.metric_format import MetricFormat
from acenode.config import Config
from acenode.config.presets import CHOSEN
from acenode.errors import UserError

HOSTS = {"mnist": "odenet", "svhn": "odenet", "cifar10": "odenet", "ushcn": "gru-ode-bayes", "physionet": "latent-ode",
         "physionet-vitals": "latent-ode", "activity": "latent-ode"}  # the methods that ACE adds attention to
TASKS = ("interpolation", "extrapolation")


@dataclass(frozen=True)
class PaperCell:
    """One value of the paper: what is trained, the metric, and the printed value in that metric's unit."""

    table: str  # the name of the first table that shows it
    experiment: str
    method: str
    metric: str
    printed: paper.Value
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
        return metric_format.of(self.metric, self.experiment)

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
class PaperRow:
    """A row of a table: its label and one cell a column, None where the paper prints nothing."""

    title: str
    cells: tuple[PaperCell | None, ...]


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper."""

    name: str
    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[PaperRow, ...]

    @property
    def cells(self) -> tuple[PaperCell, ...]:
        """The cells by row."""
        return tuple(cell for row in self.rows for cell in row.cells if cell is not None)


def _methods(name: str, title: str, caption: str, columns: Mapping[str, list[PaperCell]]) -> PaperTable:
    """Return a table with one row a method, in the order of the first column."""
    rows: dict[str, list[PaperCell | None]] = {}
    for number, cells in enumerate(columns.values()):
        for cell in cells:
            rows.setdefault(cell.title, [None] * len(columns))[number] = cell
    return PaperTable(name, title, caption, tuple(columns),
                      tuple(PaperRow(label, tuple(row)) for label, row in rows.items()))


def _series(table: str, experiment: str, metric: str, values: Mapping[str, paper.Value],
            task: str | None = None) -> list[PaperCell]:
    """Return the cells of a column of a time series table, without ablations."""
    settings = {"task": task} if task else {}
    return [PaperCell(table, experiment, method, metric, value, settings) for method, value in values.items()
            if method not in paper.ABLATIONS]


def _ablated(table: str, experiment: str, metric: str, task: str | None = None) -> list[PaperCell]:
    """Return the cells of an experiment's ablations of attention: a(0) by FC layers, and fixed attention."""
    values, settings = paper.SERIES[experiment, task], {"task": task} if task else {}
    return [PaperCell(table, experiment, "ace", metric, values[row], {**settings, **changed})
            for row, changed in paper.ABLATIONS.items() if row in values]


def _image(experiment: str) -> PaperTable:
    title = experiments.get(experiment).title
    cells = [PaperCell(experiment, experiment, method, "accuracy", value)
             for method, value in paper.ACCURACY[experiment].items()]
    return _methods(experiment, f"{title} classification", f"{title} results: test accuracy (%)",
                    {"Accuracy": cells})


def _tables() -> tuple[PaperTable, ...]:
    images = [_image(name) for name in paper.ACCURACY]
    silhouette = [PaperCell("silhouette", name, method, "silhouette", value)
                  for name, values in paper.SILHOUETTE.items() for method, value in values.items()]
    vitals = {task.capitalize(): _series("physionet-vitals", "physionet-vitals", "mse",
                                         paper.SERIES["physionet-vitals", task], task) for task in TASKS}
    found = [
        *images,
        _methods("silhouette", "Silhouette of image features",
                 "K-means silhouette of the features of CIFAR10's test images", {"CIFAR10": silhouette}),
        _methods("ushcn", "USHCN forecasting", "USHCN daily: error and negative log-likelihood of forecasts",
                 {"MSE": _series("ushcn", "ushcn", "mse", paper.USHCN["mse"]),
                  "NegLL": _series("ushcn", "ushcn", "negll", paper.USHCN["negll"])}),
        _methods("physionet", "PhysioNet mortality", "PhysioNet 2012: classification of deaths in hospital",
                 {"AUC": _series("physionet", "physionet", "auc", paper.SERIES["physionet", None])}),
        _methods("physionet-vitals", "PhysioNet regression", "PhysioNet 2012: mean squared error ×10⁻³", vitals),
        _methods("activity", "Human Activity",
                 "Human Activity: accuracy in % (the paper's column says AUC and holds accuracies)",
                 {"Accuracy": _series("activity", "activity", "accuracy", paper.SERIES["activity", None])}),
    ]
    ace = {cell.key: cell for table in found for cell in table.cells if cell.method == "ace"}
    sizes = ("cifar10", "svhn", "mnist")
    large = [PaperCell("size", name, "ace", "accuracy", paper.LARGE[name], {"size": "large"}) for name in sizes]
    found.append(PaperTable(
        "size", "Size of the model", "Image classification by the size of ACE-ODE-Net: test accuracy (%)",
        tuple(experiments.get(name).title for name in sizes),
        (PaperRow("ACE-ODE-Net (small)", tuple(ace[f"{name}/ace/accuracy"] for name in sizes)),
         PaperRow("ACE-ODE-Net (large)", tuple(large)))))
    found.append(_attention("attention", "Type of attention", "Time series classification by the type of attention",
                            {"PhysioNet (AUC)": _ablated("attention", "physionet", "auc"),
                             "Human Activity (accuracy)": _ablated("attention", "activity", "accuracy")},
                            (ace["physionet/ace/auc"], ace["activity/ace/accuracy"])))
    found.append(_attention("attention-error", "Type of attention, errors",
                            "Errors by the type of attention, as the paper's text gives them",
                            {"USHCN (MSE)": _ablated("attention-error", "ushcn", "mse"),
                             "PhysioNet extrapolation (MSE ×10⁻³)":
                                 _ablated("attention-error", "physionet-vitals", "mse", "extrapolation")},
                            (ace["ushcn/ace/mse"], ace["physionet-vitals/ace/extrapolation/mse"])))
    return tuple(found)


def _attention(name: str, title: str, caption: str, columns: Mapping[str, list[PaperCell]],
               ace: tuple[PaperCell, ...]) -> PaperTable:
    """Return a table with the rows FC, fixed and evolving attention."""
    rows = [PaperRow(label, tuple(next((c for c in cells if changed.items() <= c.settings.items()), None)
                             for cells in columns.values()))
            for label, changed in (("FC-ACE", {"initial": "dense"}), ("Fixed-ACE", {"attention": "fixed"}))]
    return PaperTable(name, title, caption, tuple(columns), (*rows, PaperRow("ACE", ace)))


TABLES: dict[str, PaperTable] = {table.name: table for table in _tables()}
CELLS: dict[str, PaperCell] = {cell.key: cell for table in TABLES.values() for cell in table.cells}


def table_of(name: str) -> PaperTable:
    """Return the table of that name; the error lists the names there are."""
    if name not in TABLES:
        raise UserError(f"there is no table {name!r}: choose one of {', '.join(TABLES)}")
    return TABLES[name]


@lru_cache(maxsize=1024)
def target(cell: PaperCell, preset: str = CHOSEN) -> Config:
    """Return the settings that a run must have to count for a cell, apart from its repetition and its epochs."""
    return cell.config(preset=preset)
