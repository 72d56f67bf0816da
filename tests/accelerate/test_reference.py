"""`engine=reference` needs nothing of `acenode.accelerate` but the dispatcher."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from importlib.abc import MetaPathFinder


class Refuse(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.startswith("acenode.accelerate.") and name != "acenode.accelerate.dispatch":
            raise ImportError(f"{name} is an accelerated implementation")


sys.meta_path.insert(0, Refuse())
experiment, method = sys.argv[1:]

from pathlib import Path

import torch

from acenode import experiments
from acenode.execution import execute
from acenode.execution.engine_choice import choose_engine
from acenode.execution.environment import run_context
from acenode.training.task import SilentListener
from acenode.training.trainer import Trainer

entry, device = experiments.get(experiment), torch.device("cpu")
config = entry.configure(method, device="cpu", engine="reference", batch_size=8)
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


@pytest.mark.parametrize(("experiment", "method"), [("mnist", "ace"), ("physionet", "ace"), ("ushcn", "ace")])
def test_a_step_imports_no_accelerated_implementation(experiment: str, method: str) -> None:
    found = subprocess.run([sys.executable, "-c", SCRIPT, experiment, method], capture_output=True, text=True,
                           check=False, timeout=300)
    assert found.returncode == 0, found.stderr[-2000:]
