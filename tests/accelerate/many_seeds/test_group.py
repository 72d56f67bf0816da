"""A group of seeds when one leaves, fails, or cannot take part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from problems import relative
from seed_groups import digit_trainer, iterate, iterate_together

from acenode import SolveError
from acenode.backend import Backend
from acenode.execution.seed_group import make_passes, unstackable_reason
from acenode.training.trainer import Trainer

CPU = torch.device("cpu")


def same(one: Trainer, other: Trainer) -> None:
    for (name, p), (_, q) in zip(one.task.model.named_parameters(), other.task.model.named_parameters(), strict=True):
        assert relative(q, p) < 2e-2, name  # a ReLU may be at its kink, where rounding decides


@pytest.mark.long
def test_a_run_that_leaves_lets_the_others_continue() -> None:
    alone, together = ([digit_trainer("odenet", seed) for seed in range(3)] for _ in range(2))
    counts, sizes = [1, 3, 2], list[int]()

    def make(tasks: Sequence[Any], backend: Any) -> Any:
        sizes.append(len(tasks))
        return make_passes(tasks, backend)

    for trainer, count in zip(alone, counts, strict=True):
        iterate(trainer, count)
    _, found = iterate_together(together, counts, make)
    assert sizes == [3, 2, 1]  # the last one keeps the kernel
    for index, (one, other) in enumerate(zip(alone, together, strict=True)):
        assert not isinstance(found[index], Exception)
        same(one, other)


def test_a_solve_that_fails_ends_one_run_only() -> None:
    alone, together = ([digit_trainer("odenet", seed, max_steps=9) for seed in range(3)] for _ in range(2))
    for broken in (alone[1], together[1]):
        with torch.no_grad():
            broken.task.model.ode.f.norms[0].weight.fill_(torch.nan)  # type: ignore[union-attr]
    with pytest.raises(SolveError) as expected:
        iterate(alone[1], 2)
    for index in (0, 2):
        iterate(alone[index], 2)
    group, found = iterate_together(together, [2, 2, 2])
    assert isinstance(found[1], SolveError)
    assert str(found[1]) == str(expected.value)
    assert not group.disabled
    for index in (0, 2):
        same(alone[index], together[index])


def test_an_unexpected_error_disables_the_group_with_a_log_line() -> None:
    class Broken:
        def run(self, specs: Any, batches: Any) -> Any:
            raise RuntimeError("no such operation\nwith details")

    alone, together = ([digit_trainer("odenet", seed) for seed in range(2)] for _ in range(2))
    log: list[str] = []
    for trainer in alone:
        iterate(trainer, 2)
    group, _ = iterate_together(together, [2, 2], lambda tasks, backend: Broken(), log)
    line = "not trained as one computation with other seeds: RuntimeError: no such operation"
    assert log == [line, line]
    assert group.disabled
    for one, other in zip(alone, together, strict=True):
        assert all(torch.equal(p, q) for p, q in zip(one.task.model.parameters(), other.task.model.parameters(),
                                                     strict=True))


def test_without_the_kernel_seeds_train_by_themselves_and_say_why() -> None:
    trainers, log = [digit_trainer("odenet", seed) for seed in range(2)], list[str]()
    tasks: list[Any] = [trainer.task for trainer in trainers]
    assert make_passes(tasks, Backend(compile_c=False)) is None
    group, found = iterate_together(trainers, [1, 1], lambda tasks, backend: None, log)
    assert log == 2 * ["not trained as one computation with other seeds: the C kernel does not support this model or "
                       "solver, or there is no C compiler"]
    assert group.disabled
    assert not any(isinstance(each, Exception) for each in found.values())


@pytest.mark.parametrize(("method", "given", "reason"), [
    ("resnet", {}, "this method has no ODE layer between an encoder and a read-out"),
    ("rknet", {}, "it needs our own Runge–Kutta steps with gradient=backprop"),
    ("ace", {"initial": "correlation"}, "the model keeps running averages, which belong to one seed"),
    ("ace", {}, None),
])
def test_which_models_are_trained_together(method: str, given: dict[str, Any], reason: str | None) -> None:
    assert unstackable_reason(digit_trainer(method, 0, **given).task, CPU) == reason


def test_on_a_gpu_all_models_with_recorded_passes_take_part() -> None:
    cuda = torch.device("cuda")
    assert unstackable_reason(digit_trainer("ace", 0, initial="correlation").task, cuda) is None
    assert unstackable_reason(digit_trainer("resnet", 0).task, cuda) is None
