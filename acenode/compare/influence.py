"""Influence and what if, of a finished run: what acts on what in its vector field, and forecasts with something held.

    run, root = RunStore("runs").open("last"), data_dir()
    found = influence_of(run, root)          |∂ḣ_i/∂h_j| beside softmax(a), scored against known links
    answer = what_if(run, root, "from 60", [Held("a", 3.0, 60, 120)])

`named_influence` and `forecast_with` do the same with the task of a loaded run, `acenode.load("last").task`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from acenode import experiments
from acenode.compare.coupling_score import CouplingScore, score
from acenode.errors import UserError
from acenode.runs.store import Run

if TYPE_CHECKING:
    from torch import Tensor

    from acenode.experiments.named_task import NamedTask
    from acenode.experiments.series_task import SeriesTask

TIMES, SERIES = 11, 100  # over which influence is averaged
GRID = 49  # times of a curve


@dataclass(frozen=True, eq=False)
class Influence:
    """What acts on what, averaged over series: [i, j] is from j to i.

    Args:
        names: the V variables, or the coordinates of a latent state.
        t: (F,) times, from 0 to 1.
        influence: (F, V, V) |∂ḣ_i/∂h_j|.
        attention: (F, V, V) softmax(a), or None.
        known: (V, V) links, or None.
    """

    names: tuple[str, ...]
    t: np.ndarray
    influence: np.ndarray
    attention: np.ndarray | None
    known: np.ndarray | None = None

    def scores(self) -> dict[str, CouplingScore]:
        """Return how well influence and attention, averaged over time, find the known links; empty without links."""
        if self.known is None:
            return {}
        both = {"attention": self.attention, "influence": self.influence}
        found = {name: score(self.known, x.mean(0)) for name, x in both.items() if x is not None}
        return {name: s for name, s in found.items() if s is not None}


def trained_task(run: Run, root: Path) -> Any:
    """Return a run's task with its best parameters, on the CPU.

    Raises:
        UserError: the run has no parameters yet, its data is missing, or something else than a run was given.
    """
    if not isinstance(run, Run):
        raise UserError(f"a {type(run).__name__} is not a run: open one with RunStore(\"runs\").open(id), or give the "
                        "task of acenode.load(id) to named_influence or forecast_with")
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


def influence_of(run: Run, root: Path) -> Influence:
    """Compute the influence of a run's best model on its test series.

    Raises:
        UserError: the run's model has no ODE layer whose state stands for variables or coordinates.
    """
    from acenode.experiments.named_task import NamedTask
    from acenode.experiments.series_task import SeriesTask
    from acenode.node import ACENODE, NODE, AugmentedNODE

    task = trained_task(run, root)
    if isinstance(task, NamedTask):
        return named_influence(task)
    if isinstance(task, SeriesTask) and type(getattr(task.model, "ode", None)) in (NODE, AugmentedNODE, ACENODE):
        return latent_influence(task)
    raise UserError(f"{run.config().method} has no ODE layer whose influence can be computed")


def named_influence(task: NamedTask) -> Influence:
    """Compute the influence between named variables."""
    from acenode.experiments.named_report import course

    batch = task.data.batch(task.source.parts["test"][:SERIES]).to(task.device)
    t = np.linspace(*batch.span, TIMES)
    _, a, acts = course(task.model, batch, t.tolist())
    return Influence(task.source.variables, t, _mean(acts), None if a is None else _mean(a.softmax(-1)),
                     task.source.links)


def latent_influence(task: SeriesTask) -> Influence:
    """Compute the influence between the coordinates of a latent state z."""
    import torch

    from acenode.models.influence import layer_influence

    model: Any = task.model
    batch = task.batches_of("test")[0]
    t = np.linspace(*batch.span, TIMES)
    with torch.no_grad():
        z0 = model.encode(batch)[0]
    path, acts = layer_influence(model.ode, z0, t.tolist())
    names = tuple(f"z{i + 1}" for i in range(path.h.shape[-1]))
    return Influence(names, t, _mean(acts), None if path.a is None else _mean(torch.softmax(path.a, -1)))


def _mean(x: Tensor) -> np.ndarray:
    """Average (F, B, V, V) over series."""
    return x.detach().double().mean(1).cpu().numpy()


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
    """A forecast with and without something held, in own units.

    Args:
        names, units: of the variables.
        t: (T,) times in the set's unit, from the start of the series.
        without, held: (T, V).
        std: (V,) standard deviation of each variable in the training data.
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    t: np.ndarray
    without: np.ndarray
    held: np.ndarray
    std: np.ndarray

    @property
    def difference(self) -> np.ndarray:
        """How much holding changes each variable, (T, V)."""
        return self.held - self.without

    @property
    def sizes(self) -> np.ndarray:
        """The largest change of each variable, (V,), in standard deviations, so that variables can be compared."""
        return np.abs(self.difference).max(0) / self.std


def what_if(run: Run, root: Path, series: str, holds: Sequence[Held]) -> WhatIf:
    """Forecast a series with and without something held; see `forecast_with`."""
    from acenode.experiments.named_task import NamedTask

    task = trained_task(run, root)
    if not isinstance(task, NamedTask):
        raise UserError("what if needs a run on named variables")
    return forecast_with(task, series, holds)


def forecast_with(task: NamedTask, series: str, holds: Sequence[Held]) -> WhatIf:
    """Solve the ODE of one series twice: as it is, and with variables or attention held.

    Args:
        task: with trained parameters.
        series: the id of the series.
        holds: times are counted from the start of the series, in the set's unit.

    Raises:
        UserError: there is no such series or variable, or a hold has no meaning.
    """
    from acenode.data.named_batches import references_at
    from acenode.models.named.what_if import HeldAttention, HeldVariable, Hold, solve_with

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
