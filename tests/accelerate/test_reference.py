"""With `engine=reference` only the dispatcher of `acenode.accelerate` is imported."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
from importlib.abc import MetaPathFinder


class Refuse(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.startswith("acenode.accelerate.") and name != "acenode.accelerate.dispatch":
            raise ImportError(f"{name} is an accelerated implementation")


sys.meta_path.insert(0, Refuse())

from pathlib import Path

import torch

from acenode import experiments
from acenode.execution import execute
from acenode.execution.engine_choice import choose_engine
from acenode.execution.environment import run_context
from acenode.training.task import SilentListener
from acenode.training.trainer import Trainer

device = torch.device("cpu")
for experiment in sys.argv[1:]:
    print(experiment, file=sys.stderr)
    entry = experiments.get(experiment)
    config = entry.configure("ace", device="cpu", engine="reference", batch_size=8)
    with run_context(device, "reference") as backend:
        task = entry.make(config, Path(), device, backend)
        chosen = choose_engine(task, device, "reference", backend)
        trainer = Trainer(task, task.recipe(), SilentListener(), chosen.engine)
        task.model.train()
        before = [p.clone() for p in task.model.parameters()]
        trainer.train_batch()
        assert any(not torch.equal(p, q) for p, q in zip(task.model.parameters(), before))
        task.evaluate("validation")
        task.snapshot()
assert not [m for m in sys.modules if m.startswith("acenode.accelerate.") and m != "acenode.accelerate.dispatch"]
"""


def test_training_and_evaluation_import_no_accelerated_implementation() -> None:
    """Train one step, evaluate and take a snapshot of ACE, with one experiment of each family of models."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, "mnist", "physionet", "ushcn"], capture_output=True, text=True,
                          check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
