"""Metrics as people read them: what each is called, its unit and digits, and whether more of it is better."""

from __future__ import annotations

import math
from dataclasses import dataclass

from acenode.training.task import Metric

PLAIN = frozenset({"ushcn"})  # whose errors are of values that vary by one
THOUSANDTHS = frozenset({"physionet-vitals"})  # experiments whose MSE the paper prints ×10⁻³
TITLES = {"auc": "AUC", "mse": "MSE", "nfe": "NFE", "negll": "NegLL"}
LESS_IS_BETTER = ("loss", "mse", "mae", "rmse", "error", "nll", "negll")  # of an experiment that nobody knows


@dataclass(frozen=True)
class MetricFormat:
    """A metric of an experiment. `digits` stand after the point; without them four digits count."""

    name: str
    higher_is_better: bool = True
    scale: float = 1.0
    digits: int | None = None
    unit: str = ""

    @property
    def title(self) -> str:
        word, _, rest = self.name.partition("_")
        return " ".join(filter(None, (TITLES.get(word, word), rest.replace("_", " "))))

    def number(self, value: float, sign: str = "") -> str:
        """In the measure's unit, without it."""
        given = value * self.scale
        return f"{given:{sign}.4g}" if self.digits is None else f"{given:{sign}.{self.digits}f}"

    def text(self, value: float | None, std: float | None = None) -> str:
        """`98.12%`, `0.853 ± 0.003`, `2.025 ×10⁻³`."""
        if value is None or not math.isfinite(value):
            return "–"
        spread = ""
        if std is not None:
            spread = f" ± {std * self.scale:.2g}" if self.digits is None else f" ± {self.number(std)}"
        return f"{self.number(value)}{spread}{self.unit}"

    def gap(self, difference: float) -> str:
        """How far one value is from another, with its sign; where less is better, also which is the better one."""
        said = self.number(difference, "+").replace("-", "−")
        if self.higher_is_better or not any(c in "123456789" for c in said):
            return said
        return f"{said} {'better' if difference < 0 else 'worse'}"


def of(metric: str, experiment: str = "") -> MetricFormat:
    """The measure by its name, as the registry's experiment has it where there is one."""
    word = metric.partition("_")[0]
    more = _more_is_better(metric, experiment)
    if word == "accuracy":
        return MetricFormat(metric, more, 100.0, 2, "%")
    if word == "auc":
        return MetricFormat(metric, more, digits=3)
    if word == "mse" and experiment in THOUSANDTHS:
        return MetricFormat(metric, more, 1e3, 3, " ×10⁻³")
    if word in ("mse", "negll") and experiment in PLAIN:
        return MetricFormat(metric, more, digits=3)
    return MetricFormat(metric, more)


def name_of(experiment: str) -> str:
    """What an experiment is judged by; nothing where nobody knows it."""
    known = _registered(experiment)
    return known.name if known else ""


def _more_is_better(metric: str, experiment: str) -> bool:
    known = _registered(experiment)
    if known and known.name == metric:
        return known.higher_is_better
    return not set(metric.lower().split("_")) & set(LESS_IS_BETTER)


def _registered(experiment: str) -> Metric | None:
    from acenode.experiments import EXPERIMENTS

    found = EXPERIMENTS.get(experiment)
    return found.metric if found else None
