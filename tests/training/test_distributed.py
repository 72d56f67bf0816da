"""The trainer around DistributedDataParallel, in one process: the numbers and checkpoints of plain training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from problems import Smooth
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from acenode import ACENODE, Dense, Solver, UserError
from acenode.training.task import Loss, Metric, ParameterGroups, Recipe, SilentListener
from acenode.training.trainer import Trainer


class Task:
    """Move a batch to ones."""

    metric, iterations = Metric("error", higher_is_better=False), 2

    def __init__(self, gradient: str = "backprop", wrapped: bool = False, **options: Any) -> None:
        torch.manual_seed(0)
        solver = Solver("rk4", step_size=0.5, gradient=gradient)  # type: ignore[arg-type]
        self.layer = ACENODE(Smooth(2, 2), Smooth(2, 4, square=True), Dense((2,), hidden=3), solver=solver)
        self.model: nn.Module = DistributedDataParallel(self.layer, **options) if wrapped else self.layer

    def groups(self, detach_attention: bool) -> ParameterGroups:
        return ParameterGroups.split(self.layer, [self.layer.g], self.layer.q, detach_attention)

    def batch(self, epoch: int, iteration: int) -> Tensor:
        return torch.randn(4, 2, generator=torch.Generator().manual_seed(10 * epoch + iteration))

    def loss(self, batch: Tensor, *, detach_attention: bool) -> Loss:
        path = self.model(batch, detach_attention=detach_attention)
        return Loss((path.h[-1] - 1).square().mean(), {}, path.evaluations)

    @torch.no_grad()
    def evaluate(self, split: str) -> dict[str, float]:
        return {"error": float((self.model(self.batch(9, 9)).h[-1] - 1).square().mean())}


def trained(task: Task, schedule: str) -> Trainer:
    recipe = Recipe(2, 0.1, lambda p, lr, _: torch.optim.SGD(p, lr=lr), schedule=schedule, penalty_weight=0.01)
    trainer = Trainer(task, recipe, SilentListener())
    trainer.run()
    return trainer


@pytest.fixture
def _one_process(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("_one_process")
@pytest.mark.parametrize(("schedule", "gradient"), [
    ("alternating", "backprop"), ("alternating", "checkpointed"), ("epoch", "adjoint"), ("joint", "backprop")])
def test_numbers_and_checkpoints_are_those_of_plain_training(schedule: str, gradient: str) -> None:
    plain, shared = (trained(Task(gradient, wrapped, **({"find_unused_parameters": True} if wrapped else {})), schedule)
                     for wrapped in (False, True))
    found, expected = shared.state_dict(), plain.state_dict()
    assert found["model"].keys() == expected["model"].keys() == found["best"]["model"].keys()
    for name, value in expected["model"].items():
        assert torch.allclose(found["model"][name], value, atol=1e-7), name
    plain.load_state_dict(found)
    shared.load_state_dict(found)


@pytest.mark.usefixtures("_one_process")
def test_a_module_that_waits_for_all_gradients_is_refused() -> None:
    with pytest.raises(UserError, match="use DistributedDataParallel with find_unused_parameters=True"):
        trained(Task(wrapped=True), "alternating")
    trained(Task(wrapped=True), "joint")
