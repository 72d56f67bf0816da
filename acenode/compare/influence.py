"""What acts on what in a trained model, how well that matches known links, and forecasts with something held.

    run = acenode.load("last")                                    a run on named variables
    found = named_influence(run.task)                             |∂ḣ_i/∂h_j| beside softmax(a), and known links
    answer = forecast_with(run.task, "from 60", [Held("a", 3.0, 60, 120)])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from acenode import experiments
from acenode.compare.cells import result_of
from acenode.errors import UserError
from acenode.runs.store import Run

if TYPE_CHECKING:
    from torch import Tensor

    from acenode.compare.study_grid import GridRow
    from acenode.experiments.named_task import NamedTask

SURE = 1.96  # standard deviations around the mean with 95% of a normal distribution


@dataclass(frozen=True)
class CouplingScore:
    """Links found among the k pairs of different variables that the model couples most, and by a random ranking."""

    links: int  # k, known links
    pairs: int  # ordered pairs of different variables
    recovered: int  # known links among the k strongest learned ones
    recovered_by_chance: float  # expected of a random ranking: k² / pairs
    auroc: float  # probability that a link is ranked above a pair without one; ties count half
    chance: tuple[float, float]  # 95% of random rankings have an AUROC in this range

    @property
    def text(self) -> str:
        """The score in one sentence, with the level of chance."""
        verdict = "better" if self.auroc > self.chance[1] else "worse" if self.auroc < self.chance[0] else "no better"
        return (f"{self.recovered} of {self.links} known links recovered (by chance {self.recovered_by_chance:.1f}); "
                f"AUROC {self.auroc:.2f}, {verdict} than chance (0.50; 95% of random rankings are between "
                f"{self.chance[0]:.2f} and {self.chance[1]:.2f}).")


def score(known: np.ndarray, learned: np.ndarray) -> CouplingScore | None:
    """Compare a learned coupling with the known one; None if that has no meaning: no link, or a link between all pairs.

    The diagonal is left out: how a variable depends on itself is no link. The range of chance is the normal
    approximation of the Mann–Whitney statistic, of which the AUROC is a multiple.

    Args:
        known: coupling (V, V), [i, j] from j to i; a link is where it is not zero.
        learned: coupling (V, V); a larger value is a stronger link. NaN counts as the weakest.
    """
    known, learned = np.asarray(known, float), np.asarray(learned, float)
    if known.shape != learned.shape or known.ndim != 2 or known.shape[0] != known.shape[1]:
        return None
    apart = ~np.eye(len(known), dtype=bool)
    is_link = np.nan_to_num(known[apart]) != 0
    strength = np.where(np.isfinite(learned[apart]), learned[apart], -np.inf)
    links, pairs = int(is_link.sum()), len(is_link)
    if not 0 < links < pairs:
        return None
    linked, others = strength[is_link][:, None], strength[~is_link]
    auroc = float(((linked > others) + 0.5 * (linked == others)).mean())
    spread = SURE * math.sqrt((pairs + 1) / (12 * links * (pairs - links)))
    strongest = np.argsort(-strength, kind="stable")[:links]
    return CouplingScore(links, pairs, int(is_link[strongest].sum()), links * links / pairs, auroc,
                         (max(0.0, 0.5 - spread), min(1.0, 0.5 + spread)))


def incoming_shares(flow: np.ndarray) -> np.ndarray:
    """Return the share of each other variable in what flows into a variable, less the share in a uniform flow, (V, V).

    Known and learned coupling are in one unit this way: 0 is uniform, and a row adds up to 0. The diagonal, and rows
    into which nothing flows, are NaN. flow[i, j] is from j to i; negative values count as 0.
    """
    flow = np.clip(np.nan_to_num(np.asarray(flow, float)), 0.0, None)
    np.fill_diagonal(flow, 0.0)
    total = flow.sum(1, keepdims=True)
    shares = flow / np.where(total > 0, total, np.nan) - 1 / max(len(flow) - 1, 1)
    np.fill_diagonal(shares, np.nan)
    return np.asarray(shares)


# The coupling that the runs of a study found ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FoundCoupling:
    """How variables act on each other, averaged over test series, time and runs: [i, j] is from j to i."""

    names: tuple[str, ...]
    attention: np.ndarray | None  # rows sum to one
    influence: np.ndarray  # |∂ḣ_i/∂h_j| as a share of its row
    runs: int


def found_coupling(row: GridRow) -> FoundCoupling | None:
    """Return the coupling that the finished runs of a group found; None if there is no such run."""
    results = [result for entry in row.entries
               if entry.state == "finished" and "influence" in (result := result_of(entry.run))]
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


def is_uniform(attention: np.ndarray, least: float = 0.02) -> bool:
    """Return True if all rows of a mean attention are nearly equal: it then tells nothing about pairs."""
    return bool((attention.max(0) - attention.min(0)).max() < least)


# Influence in the field of one run -----------------------------------------------------------------------------------

TIMES, SERIES = 11, 100  # over which influence is averaged
GRID = 49  # times of a curve


@dataclass(frozen=True, eq=False)
class Influence:
    """What acts on what, averaged over series: [i, j] is from j to i."""

    names: tuple[str, ...]  # the V variables
    t: np.ndarray  # (F,) times, from 0 to 1
    influence: np.ndarray  # (F, V, V) |∂ḣ_i/∂h_j|
    attention: np.ndarray | None  # (F, V, V) softmax(a)
    known: np.ndarray | None = None  # (V, V) links

    def scores(self) -> dict[str, CouplingScore]:
        """Return how well influence and attention, averaged over time, find the known links; empty without links."""
        if self.known is None:
            return {}
        both = {"attention": self.attention, "influence": self.influence}
        found = {name: score(self.known, x.mean(0)) for name, x in both.items() if x is not None}
        return {name: s for name, s in found.items() if s is not None}


def trained_task(run: Run, root: Path) -> Any:
    """Return a run's task with its best parameters, on the CPU; a UserError says why that cannot be."""
    import torch
    from safetensors.torch import load_file

    from acenode.backend import PLAIN

    config, best = run.config(), run.path / "checkpoints" / "best.safetensors"
    if not best.is_file():
        raise UserError(f"{run.id} has no trained parameters: choose a finished run")
    task: Any = experiments.get(config.experiment).make(replace(config, device="cpu"), root, torch.device("cpu"), PLAIN)
    try:
        task.model.load_state_dict(load_file(best))
    except (RuntimeError, OSError) as error:
        raise UserError(f"the parameters of {run.id} do not fit its model: train it again") from error
    task.model.eval()
    return task


def named_influence(task: NamedTask) -> Influence:
    """Compute the influence between named variables on up to 100 test series."""
    from acenode.experiments.named_task import course

    def mean(x: Tensor) -> np.ndarray:
        return x.detach().double().mean(1).cpu().numpy()

    batch = task.data.batch(task.source.parts["test"][:SERIES]).to(task.device)
    t = np.linspace(*batch.span, TIMES)
    _, a, acts = course(task.model, batch, t.tolist())
    return Influence(task.source.variables, t, mean(acts), None if a is None else mean(a.softmax(-1)),
                     task.source.links)


# What if ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Held:
    """Hold a variable at a value in its own unit, from one time to another in the series' own time.

    With `source`, hold instead how much `variable` attends to `source`: `value` is then between 0 and 1.
    """

    variable: str
    value: float
    start: float
    end: float
    source: str = ""


@dataclass(frozen=True, eq=False)
class WhatIf:
    """A forecast with and without something held, in own units."""

    names: tuple[str, ...]
    units: tuple[str, ...]
    t: np.ndarray  # (T,) times in the set's unit, from the start of the series
    without: np.ndarray  # (T, V)
    held: np.ndarray  # (T, V)
    std: np.ndarray  # (V,) standard deviation of each variable in the training data

    @property
    def difference(self) -> np.ndarray:
        """How much holding changes each variable, (T, V)."""
        return self.held - self.without

    @property
    def sizes(self) -> np.ndarray:
        """The largest change of each variable, (V,), in standard deviations, so that variables can be compared."""
        return np.abs(self.difference).max(0) / self.std


def forecast_with(task: NamedTask, series: str, holds: Sequence[Held]) -> WhatIf:
    """Solve the ODE of one series twice: as it is, and with variables or attention held.

    Args:
        task: with trained parameters.
        series: the id of the series.
        holds: times are counted from the start of the series, in the set's unit.
    """
    from acenode.data.named_batches import references_at
    from acenode.models.influence import HeldAttention, HeldVariable, Hold, solve_with

    source, data = task.source, task.data
    if series not in source.ids:
        raise UserError(f"there is no series {series!r} in {source.name}")

    def index(name: str) -> int:
        if name not in source.variables:
            raise UserError(f"there is no variable {name!r}: choose one of {', '.join(source.variables)}")
        return source.variables.index(name)

    wanted: list[Hold] = []
    for held in holds:
        i, times = index(held.variable), (held.start / source.duration, held.end / source.duration)
        if held.source:
            wanted.append(HeldAttention(i, index(held.source), held.value, *times))
        else:
            wanted.append(HeldVariable(i, (held.value - source.mean[i]) / source.std[i], *times))
    batch = data.batch([source.ids.index(series)])
    t = np.linspace(*batch.span, GRID)[1:]
    batch = replace(batch, reference=references_at(batch.seen, t, source.task)).to(task.device)
    breaks = [edge for held in wanted for edge in (held.start, held.end)]
    without, with_holds = (solve_with(task.model, batch, t.tolist(), h, breaks)[0].double().cpu().numpy() * source.std
                           + source.mean for h in ((), wanted))
    return WhatIf(source.variables, source.units, t * source.duration, without, with_holds, source.std)
