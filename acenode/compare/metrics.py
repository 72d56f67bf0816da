"""How metrics, durations and texts are written, and the records of metrics.jsonl."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from acenode.data.importing.cells import plain_float
from acenode.errors import UserError
from acenode.experiments import find
from acenode.runs.store import Run
from acenode.training.task import Metric

VALUES = {"ushcn": "standardised values", "physionet-vitals": "scaled values"}  # that errors are measured on
TITLES = {"auc": "AUC", "mae": "MAE", "mse": "MSE", "nfe": "NFE", "negll": "NegLL"}
LOWER_IS_BETTER = ("loss", "mse", "mae", "rmse", "error", "nll", "negll")  # for experiments that are not registered


@dataclass(frozen=True)
class MetricFormat:
    """How a metric of an experiment is written, with `digits` decimals, or four significant digits if None."""

    name: str
    higher_is_better: bool = True
    scale: float = 1.0
    digits: int | None = None
    unit: str = ""

    @property
    def sign(self) -> int:
        """1 if higher is better, else -1: a value times its sign is better if it is larger."""
        return 1 if self.higher_is_better else -1

    @property
    def title(self) -> str:
        """The metric's name as a label, such as `AUC`."""
        word, _, rest = self.name.partition("_")
        return " ".join(filter(None, (TITLES.get(word, word), rest.replace("_", " "))))

    @property
    def heading(self) -> str:
        """The title with its unit, for a column or an axis whose numbers are written without it: `accuracy (%)`."""
        return f"{self.title} (%)" if self.unit == "%" else f"{self.title}{self.unit}"

    @property
    def difference_unit(self) -> str:
        """The unit of a difference of two values: percentages differ by points."""
        return " points" if self.unit == "%" else self.unit

    def number(self, value: float, sign: str = "") -> str:
        """Write a value in the metric's unit, without the unit."""
        scaled = value * self.scale
        return f"{scaled:{sign}.4g}" if self.digits is None else f"{scaled:{sign}.{self.digits}f}"

    def text(self, value: float | None, std: float | None = None) -> str:
        """Write a value with its unit: `98.12%`, `0.853 ± 0.003`, `2.025 ×10⁻³`."""
        if value is None or not math.isfinite(value):
            return "–"
        spread = ""
        if std is not None:
            spread = f" ± {std * self.scale:.2g}" if self.digits is None else f" ± {self.number(std)}"
        return f"{self.number(value)}{spread}{self.unit}"


@lru_cache(maxsize=1024)
def metric_format(metric: str, experiment: str = "") -> MetricFormat:
    """Return the format of a metric, with the direction that the experiment registers for it."""
    known = _registered(experiment)
    higher = (known.higher_is_better if known and known.name == metric else
              not set(metric.lower().split("_")) & set(LOWER_IS_BETTER))
    word = metric.partition("_")[0]
    if word == "accuracy":
        return MetricFormat(metric, higher, 100.0, 2, "%")
    if word == "mse" and experiment == "physionet-vitals":  # the paper prints it ×10⁻³
        return MetricFormat(metric, higher, 1e3, 3, " ×10⁻³")
    standardised = word in ("mse", "negll") and experiment == "ushcn"
    return MetricFormat(metric, higher, digits=4 if word == "silhouette" else 3 if word == "auc" or standardised
                        else None)


def error_title(short: str, experiments: set[str], scale: float = 1.0) -> str:
    """Return the title of an axis of errors, which says on which values they are measured if all runs agree."""
    values = {VALUES.get(name, "") for name in experiments}
    of = values.pop() if len(values) == 1 else ""
    return short + f" of {of}" * bool(of) + " ×10⁻³" * (scale == 1e3)


def metric_name(experiment: str) -> str:
    """Return the name of an experiment's metric; empty if the experiment is not registered."""
    known = _registered(experiment)
    return known.name if known else ""


def _registered(experiment: str) -> Metric | None:
    try:
        found = find(experiment)
    except UserError:  # an imported set that is damaged
        return None
    return found.metric if found else None


def duration(seconds: float) -> str:
    """Write seconds as `45 s`, `12 min` or `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # a spreadsheet computes texts that start so


def as_text(text: str) -> str:
    """Return a text for a cell of a CSV file, after an apostrophe if it looks like a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text


def name_as_text(name: str) -> str:
    """Return a name from a user's data for a cell; numbers such as the id -5 stay as they are."""
    try:
        plain_float(name)
    except ValueError:
        return as_text(name)
    return name


# Records of metrics.jsonl -------------------------------------------------------------------------------------------

MetricRecord = dict[str, Any]


@dataclass(frozen=True)
class MetricRecords:
    """The records of steps and epochs in order, without their key `kind`."""

    steps: list[MetricRecord]
    epochs: list[MetricRecord]

    def __bool__(self) -> bool:
        return bool(self.steps or self.epochs)


def read_records(run: Run) -> MetricRecords:
    """Read the records of a run; records of other kinds are left out."""
    found: dict[str, list[MetricRecord]] = {"step": [], "epoch": []}
    for record in run.metrics()[0]:
        kind = record.pop("kind", None)
        if isinstance(kind, str) and kind in found:
            found[kind].append(record)
    return MetricRecords(found["step"], found["epoch"])


def to_float(value: Any) -> float | None:
    """Return a number as a float, None (null in JSON, for a value that is not finite) as NaN, else None."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer beyond the range of floats
        return math.inf


def finite(value: Any) -> float | None:
    """Return a finite number as a float, else None."""
    number = to_float(value)
    return number if number is not None and math.isfinite(number) else None


def axis_index(record: MetricRecord, key: str) -> int | None:
    """Return a record's position on an axis (`step` or `epoch`), or None."""
    value = record.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None
