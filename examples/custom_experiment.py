"""Add an experiment to the lab: its runs are trained, stored, stopped, resumed and loaded like the paper's.

This script alone knows it. docs/extending.md says how the command line and the app get to know it.

    python examples/custom_experiment.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from custom_task import D, LinearSystem, Rate
from torch import nn

import acenode
from acenode import ACENODE, Dense, experiments
from acenode.backend import Backend
from acenode.config import Config
from acenode.config.groups import AttentionTraining, SnapshotSettings, SolverSettings, Training
from acenode.execution.execute import create, execute
from acenode.experiments.base import Experiment, Method, recipe_of
from acenode.models.layers import initialise
from acenode.runs.store import RunStore
from acenode.training.task import Metric, Recipe

DEFAULTS = {
    "epochs": 4, "batch_size": 32, "learning_rate": 0.02, "snapshots": 2, "schedule": "alternating", "penalty": "l2",
    "penalty_weight": 1e-3, "detach_attention": False, "solver": "rk4", "step_size": 0.5, "rtol": 1e-4, "atol": 1e-4,
    "max_steps": 1000, "gradient": "backprop", "seminorm": False, "engine": "auto",
}


def build(shape: int, config: Config, backend: Backend) -> nn.Module:
    return ACENODE(Rate(shape), Rate(shape, shape), Dense((shape,)), solver=config.part(SolverSettings).to_solver())


class LabSystem(LinearSystem):
    """The task of `custom_task` with what the lab needs besides: a recipe, snapshots, a report, predictions."""

    def __init__(self, config: Config, root: Path, device: torch.device, backend: Backend) -> None:
        super().__init__(config.seed, config.part(Training).batch_size)
        model = build(D, config, backend)
        initialise(model, config.seed)  # on the CPU, so that every device starts from the same parameters
        self.config, self.device, self.model = config, device, model.to(device)

    def recipe(self) -> Recipe:
        return recipe_of(self.config, lambda p, rate, is_attention: torch.optim.Adam(p, lr=rate), lambda progress: 1.0)

    @torch.no_grad()
    def snapshot(self) -> dict[str, np.ndarray]:
        """Return h(t) and a(t) of a few samples, for the player."""
        t = torch.linspace(0, 1, 11)
        path = self.model.eval()(self.held_out("validation")[0][:4], t)
        return {"t": t.numpy(), "h": path.h.cpu().numpy(), "a": path.a.cpu().numpy()}

    def report(self) -> dict[str, Any]:
        return {}

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Make `acenode.load(run).predict(inputs)` work: states (N, 3) now give states (N, 3) one unit later."""
        start = torch.as_tensor(inputs, dtype=torch.float32, device=self.device)
        return self.model(start).h[-1].cpu().numpy()


EXPERIMENT = Experiment(
    name="linear-system", title="Linear system", summary="where a linear system is after one unit of time",
    about_sample="drawn from a known system", metric=Metric("mse", higher_is_better=False),
    methods={"ace": Method("ace", "ACE", build, (Training, AttentionTraining, SnapshotSettings, SolverSettings))},
    defaults=lambda method, data, given: DEFAULTS, make=LabSystem,
    count=lambda config: sum(p.numel() for p in build(D, config, Backend()).parameters()),
)


def main() -> float:
    experiments.EXPERIMENTS[EXPERIMENT.name] = EXPERIMENT  # in this process alone: see docs/extending.md
    with TemporaryDirectory() as folder:
        run = create(RunStore(folder), EXPERIMENT.configure("ace", learning_rate=0.03))
        outcome = execute(run, Path(folder))
        print(f"{run.id}: {outcome.state}, {outcome.params} parameters, test {outcome.metrics}")
        predicted = acenode.load(run.path).predict(np.eye(D))
    print("from (1, 0, 0) to", predicted[0].round(2))
    return outcome.metrics["mse"]


if __name__ == "__main__":
    main()
