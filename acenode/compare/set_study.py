"""The study of a set of named variables: does attention between the variables help, over three seeds?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from acenode import experiments
from acenode.compare.metric_format import MetricFormat
from acenode.compare.study_answer import WITHOUT_LEARNING
from acenode.compare.study_grid import GridRow
from acenode.compare.study_references import TrivialReference
from acenode.data.registry import DATA_SOURCES
from acenode.errors import UserError
from acenode.runs.catalogue import Catalogue
from acenode.runs.studies import Study, StudyGroup

SEEDS = (0, 1, 2)
ACE, WITHOUT = "ace", "no-attention"
PAGES = ("home", "tour", "playground", "paper", "your-data", "studies", "compare", "runs")  # addresses of the app
WORDS = {"forecast": "forecast", "fill": "fill in", "classify": "classify"}
DOES = {"forecast": "forecasts", "fill": "fills in", "classify": "classifies"}
REFERENCES = {"ridge": "ridge regression", "ridge, own past": "ridge regression on each variable's own past",
              **WITHOUT_LEARNING}
RIDGE_READS = {"forecast": "the recent values of all variables",
               "fill": "the values of all variables around that time"}


@dataclass(frozen=True, eq=False)
class FoundCoupling:
    """How variables act on each other, averaged over test series, time and runs: [i, j] is from j to i."""

    names: tuple[str, ...]
    attention: np.ndarray | None  # rows sum to one
    influence: np.ndarray  # |∂ḣ_i/∂h_j| as a share of its row
    runs: int


def set_study(name: str, task: str, epochs: int | None = None, seeds: tuple[int, ...] = SEEDS) -> Study:
    """Return the study of ACE against the same model without attention.

    Args:
        name: the name of the set.
        task: forecast, fill or classify.
        epochs: hold the number of epochs at this; the set's default if None.
        seeds: of each group.
    """
    default = experiments.get(name).configure(ACE).get("epochs")
    held = {} if epochs is None or epochs == default else {"epochs": epochs}
    ending = "".join(f"-{value}-{key}" for key, value in held.items())
    return Study(name=f"{name}-ace{ending}", experiment=name, groups=(StudyGroup(ACE), StudyGroup(WITHOUT)),
                 question=f"Does attention between its variables help to {WORDS[task]} {name}?", held=held, seeds=seeds,
                 baseline=1)


def reserved_names(catalogue: Catalogue) -> frozenset[str]:
    """Return the names that a new set cannot have: of experiments, data sets, pages, and trained sets.

    A run knows its set by name. Another set of that name would be taken for it.
    """
    return frozenset({*experiments.EXPERIMENTS, *experiments.EXAMPLES, *DATA_SOURCES, *PAGES,
                      *(entry.experiment for entry in catalogue.entries())})


def found_coupling(row: GridRow) -> FoundCoupling | None:
    """Return the coupling that the finished runs of a group found; None if there is no such run."""
    results = []
    for entry in row.entries:
        try:
            found = entry.run.result() if entry.state == "finished" else None
        except UserError:
            continue
        if found and "influence" in found:
            results.append(found)
    if not results:
        return None
    names = tuple(str(name) for name in results[0]["influence"]["names"])
    influence = np.mean([result["influence"]["mean"] for result in results], axis=0)
    attention = [result["attention"]["mean"] for result in results if "attention" in result]
    return FoundCoupling(names, np.mean(attention, axis=0) if attention else None,
                         influence / np.maximum(influence.sum(1, keepdims=True), 1e-12), len(results))


def coupling_text(found: FoundCoupling, count: int = 3) -> str:
    """Name the strongest influences between two variables: `power ← wind (62%), wind ← power (8%)`."""
    shares = np.where(np.eye(len(found.names), dtype=bool), 0.0, found.influence)
    order = np.dstack(np.unravel_index(np.argsort(-shares, axis=None), shares.shape))[0][:count]
    return ", ".join(f"{found.names[i]} ← {found.names[j]} ({100 * shares[i, j]:.0f}%)" for i, j in order
                     if shares[i, j] > 0)


def coupling_caution(row: GridRow, references: Iterable[TrivialReference], measure: MetricFormat, task: str) -> str:
    """Say that the model behind a coupling is worse than the best reference; empty if it is not.

    Args:
        row: the group whose runs found the coupling.
        references: of the study.
        measure: the metric of both.
        task: forecast, fill or classify.
    """
    sign = 1 if measure.higher_is_better else -1
    best = max(references, key=lambda reference: sign * reference.value, default=None)
    if row.mean is None or best is None or sign * row.mean >= sign * best.value:
        return ""
    return (f"The model {DOES[task]} worse than {REFERENCES.get(best.name, best.name)} here "
            f"({measure.number(row.mean)} against {measure.number(best.value)}), so read its coupling with care.")


def ridge_words(references: Sequence[TrivialReference], task: str) -> str:
    """Explain the ridge regressions among the references; empty if there are none."""
    names = {reference.name for reference in references}
    if "ridge" not in names or task not in RIDGE_READS:
        return ""
    own = "; ridge, own past: on those of the same variable only" * ("ridge, own past" in names)
    return f"ridge: linear regression on {RIDGE_READS[task]}{own}"


def is_uniform(attention: np.ndarray, least: float = 0.02) -> bool:
    """Return True if all rows of a mean attention are nearly equal: it then tells nothing about pairs."""
    return bool((attention.max(0) - attention.min(0)).max() < least)


def own_unit_errors(rows: Iterable[GridRow]) -> list[dict[str, object]]:
    """Return the root mean squared errors of every variable in its own unit: groups first, then the references."""
    table: dict[str, dict[str, list[float]]] = {}
    units: dict[str, str] = {}
    for row in rows:
        for entry in row.entries:
            found = (entry.run.result() or {}).get("own_units") if entry.state == "finished" else None
            if not found:
                continue
            units = dict(zip(found["variables"], found["units"], strict=True))
            for name, values in found["rmse"].items():
                for variable, value in zip(found["variables"], values, strict=True):
                    if value is not None:
                        title = row.name if name == "model" else name
                        table.setdefault(title, {}).setdefault(variable, []).append(value)
    titles = [row.name for row in rows if row.name in table]
    titles += [title for title in table if title not in titles]
    return [{"Variable": f"{variable} ({unit})" if unit else variable,
             **{title: f"{np.mean(table[title][variable]):.4g}" for title in titles if variable in table[title]}}
            for variable, unit in units.items()]
