"""The graph engine on a GPU under difficult conditions: large learning rates, and fast fields whose steps are rejected.

Two trainings diverge within a hundred iterations however little they differ at first, so both start each iteration from
the engine's state. A change of 1e-7 in the parameters can move a gradient, because a ReLU switches: by a hundredth in
one of a hundred iterations (ODE-Net on an H200), and by a tenth where f and g are fast. So the median distance shows
whether it is the same gradient, the largest whether one was ever wrong.
"""

from __future__ import annotations

import copy
import os
import statistics
from pathlib import Path

import pytest
import torch
from graph_training import CUDA, close, follow, gradients, iterate, trainer
from problems import hasten, relative

from acenode import experiments
from acenode.backend import Backend
from acenode.execution.engine_choice import choose_engine
from acenode.training.task import SilentListener
from acenode.training.trainer import Trainer

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("exact")]


@pytest.mark.parametrize(("method", "factor", "count", "usual", "largest"), [
    ("ace", 1, 100, 1e-4, 1e-2), ("odenet", 1, 100, 1e-4, 3e-2),
    ("ace", 15, 20, 1e-2, 0.3), ("ace", 30, 20, 1e-2, 0.3), ("odenet", 200, 20, 1e-2, 0.3)])
def test_every_iteration_equals_native_steps(method: str, factor: float, count: int, usual: float,
                                             largest: float) -> None:
    settings = {"learning_rate": 0.05 / factor, "epochs": 60}
    log: list[str] = []
    plain, graphed = (trainer(graph, method, log, **settings) for graph in (False, True))
    hasten(graphed.task.layer, factor)
    costs, apart = [], []
    for _ in range(count):
        follow(plain, graphed)
        (expected,), (found,) = iterate(plain, 1), iterate(graphed, 1)
        costs.append((int(found["steps"]), int(found["rejected"])))
        # an error equal to the tolerance up to rounding may be rejected by one and accepted by the other
        if all(found[key] == expected[key] for key in found if key.startswith(("nfe_forward", "steps"))):
            assert found["L_h"] == pytest.approx(expected["L_h"], rel=1e-3)
            apart.append(relative(gradients(graphed), gradients(plain)))
    assert all("recorded in" in line for line in log), log
    assert len(apart) >= 0.9 * count
    print(f"{method}, {factor} times as fast: gradients {statistics.median(apart):.1e} to {max(apart):.1e} apart; "
          f"{count - len(apart)} of {count} by other steps; steps and rejections {sorted(set(costs))}")
    assert statistics.median(apart) < usual
    assert max(apart) < largest
    assert len(set(costs)) > 1
    assert any(rejected for _, rejected in costs) or factor == 1
    close(graphed)


@pytest.mark.realdata
def test_recordings_add_no_error_to_tf32_along_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """One epoch of MNIST with the whole schedule; every tenth iteration also in native steps, in TF32 and float32."""
    root, entry = Path(os.environ.get("ACENODE_DATA") or "nowhere"), experiments.get("mnist")
    if not (root / "mnist.npz").is_file():
        pytest.skip("ACENODE_DATA has no mnist.npz")

    def made(graph: bool) -> Trainer:
        task = entry.make(entry.configure("ace", "full", device="cuda", epochs=1), root, CUDA)
        task.model.train()
        engine = choose_engine(task, CUDA, "auto", Backend(log=print)).engine if graph else None
        return Trainer(task, task.recipe(), SilentListener(), engine)

    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    graphed, plain = made(True), made(False)
    apart: dict[str, list[float]] = {"recorded": [], "native": []}
    for i in range(0, graphed.task.iterations, 10):
        before = copy.deepcopy(graphed.state_dict())
        iterate(graphed, 1)
        found = {"recorded": gradients(graphed).clone()}
        for name, allowed in (("native", True), ("exact", False)):
            monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", allowed)
            plain.load_state_dict(copy.deepcopy(before))
            iterate(plain, 1)
            found[name] = gradients(plain).clone()
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
        for name, all_of in apart.items():
            all_of.append(relative(found[name], found["exact"]))
        iterate(graphed, min(9, graphed.task.iterations - i - 1))
    usual = {name: statistics.median(values) for name, values in apart.items()}
    print({name: f"{usual[name]:.1e}, at most {max(values):.1e}" for name, values in apart.items()})
    assert usual["recorded"] < 1.5 * usual["native"]
    assert max(apart["recorded"]) < 3 * max(apart["native"])
    close(graphed)
