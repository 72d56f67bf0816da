"""Seeds whose recorded passes one thread starts and finishes have the numbers that they have alone.

The passes run on a processor here, with a recorder that does the work at once.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from eager_recorder import ImmediateRecorder
from problems import hasten
from seed_groups import Record, digit_trainer, iterate, iterate_together

from acenode import SolveError
from acenode.accelerate.cuda_graph.engine import GraphEngine
from acenode.accelerate.cuda_graph.recorded_pass import RecordedPass
from acenode.accelerate.many_seeds.graph_pass import GraphLane
from acenode.backend import Backend
from acenode.execution.seed_group import SeedGroup
from acenode.training.trainer import Trainer

QUICK: dict[str, Any] = {"rtol": 1e-2, "atol": 1e-2}


def engine_of(trainer: Trainer) -> GraphEngine:
    return GraphEngine(trainer.task, ImmediateRecorder(), torch.zeros(()), Backend())  # type: ignore[arg-type]


def quick_trainers(method: str, **given: Any) -> list[Trainer]:
    """Return three seeds; the second one's field is faster, so that its solve takes more steps."""
    found = [digit_trainer(method, seed, **(given if method == "resnet" else QUICK | given)) for seed in range(3)]
    if method != "resnet":
        hasten(found[1].task.layer, 4.0)  # type: ignore[union-attr]
    return found


def train_together(trainers: list[Trainer], count: int) -> tuple[SeedGroup, dict[int, list[Record] | Exception]]:
    return iterate_together(trainers, [count] * len(trainers), lane=lambda trainer: GraphLane(engine_of(trainer), None))


def train_alone(trainer: Trainer, count: int) -> list[Record]:
    trainer.engine = engine_of(trainer)
    return iterate(trainer, count)


@pytest.mark.parametrize(("method", "given"), [("ace", {}), ("ace", {"initial": "correlation"}), ("resnet", {})])
def test_numbers_are_those_of_a_seed_alone_to_the_last_digit(method: str, given: dict[str, Any]) -> None:
    alone, together = quick_trainers(method, **given), quick_trainers(method, **given)
    expected = [train_alone(trainer, 2) for trainer in alone]
    group, found = train_together(together, 2)
    assert not group.disabled
    assert [found[index] for index in range(3)] == expected
    if method != "resnet":
        assert expected[1][0]["nfe_forward"] > expected[0][0]["nfe_forward"]
    for one, other in zip(alone, together, strict=True):
        for p, q in zip(one.task.model.parameters(), other.task.model.parameters(), strict=True):
            assert torch.equal(p, q)


def test_all_seeds_are_started_before_one_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def note(name: str) -> None:
        plain = getattr(RecordedPass, name)

        def noted(self: RecordedPass, *args: Any) -> Any:
            order.append(name)
            return plain(self, *args)

        monkeypatch.setattr(RecordedPass, name, noted)

    note("begin")
    note("end")
    train_together(quick_trainers("odenet"), 2)
    assert order == 2 * (3 * ["begin"] + 3 * ["end"])


def test_a_solve_that_fails_ends_one_run_and_the_others_are_updated_once() -> None:
    alone, together = quick_trainers("odenet"), quick_trainers("odenet")
    task: Any = together[1].task
    batch = task.batch
    task.batch = lambda epoch, iteration: tuple(
        x * torch.nan if iteration and x.is_floating_point() else x for x in batch(epoch, iteration))
    group, found = train_together(together, 2)
    assert isinstance(found[1], SolveError)
    assert not group.disabled
    for index in (0, 2):
        assert found[index] == train_alone(alone[index], 2)
        for p, q in zip(alone[index].task.model.parameters(), together[index].task.model.parameters(), strict=True):
            assert torch.equal(p, q)
